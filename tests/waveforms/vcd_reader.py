"""A strict reader of value change dumps, written from the standard and not from the writer."""

import re
from dataclasses import dataclass, field
from pathlib import Path

ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\(.)")


@dataclass
class Dump:
    """Variables by full name: (type, width), and their changes as (time, value)."""

    variables: dict[str, tuple[str, int]] = field(default_factory=dict)
    changes: dict[str, list[tuple[int, int | str]]] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)

    def at(self, name: str, time: int) -> int | str:
        """The value at a time."""
        return [value for when, value in self.changes[name] if when <= time][-1]


def read_vcd(path: Path) -> Dump:
    """Reads a file; AssertionError when it is not well-formed to its last byte."""
    text = path.read_text(encoding="ascii")
    assert text.endswith("\n")
    head, _, body = text.partition("$enddefinitions $end\n")
    assert body or text.endswith("$enddefinitions $end\n")
    dump, scope, of = Dump(), [], {}
    for line in head.splitlines():
        words = line.split()
        assert words[-1] == "$end", line
        if words[0] == "$scope":
            scope.append(words[2])
        elif words[0] == "$upscope":
            scope.pop()
        elif words[0] == "$var":
            _, kind, width, code, name, _ = words
            path_name = ".".join([*scope, name])
            assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+", path_name)
            assert path_name not in dump.variables
            dump.variables[path_name] = (kind, int(width))
            dump.changes[path_name] = []
            of[code] = path_name
        else:
            assert words[0] in ("$comment", "$timescale", "$version"), line
    assert scope == []
    in_first = False
    for line in body.splitlines():
        if line[0] == "#":
            dump.times.append(int(line[1:]))
        elif line == "$dumpvars":
            in_first = True
        elif line == "$end":
            assert in_first
            in_first = False
            assert all(dump.changes.values()), "variables without a first value"
        else:
            code, value = _value(line)
            kind, width = dump.variables[of[code]]
            assert (kind == "string") == isinstance(value, str), line
            assert isinstance(value, str) or value < 1 << width, line
            dump.changes[of[code]].append((dump.times[-1], value))
    assert not in_first
    assert dump.times == sorted(set(dump.times))
    return dump


def _value(line: str) -> tuple[str, int | str]:
    if line[0] in "bs":
        value, code = line[1:].split(" ")
        if line[0] == "b":
            return code, int(value, 2)
        return code, ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], value)
    assert line[0] in "01", line
    return line[1:], int(line[0])
