"""RTLIL text as modules that can be renamed, compared and written again.

Only what Amaranth's backend writes is read: modules of wires, memories, cells, processes and
connections, one statement per line.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

__all__ = ["Cell", "Memory", "Module", "Process", "Wire", "parse", "rewrite"]

_IDENTIFIER = re.compile(r"[\\$][^\s]+")
_WIRE = re.compile(r"wire (?:width (\d+) )?\s*(signed )?\s*(?:(input|output|inout) \d+ )?\s*(\S+)$")
_KEPT_ATTRIBUTE = "\\init"


def rewrite(text: str, rename: Callable[[str], str]) -> str:
    """`text` with every identifier replaced; constants and keywords have none."""
    return _IDENTIFIER.sub(lambda match: rename(match[0]), text)


@dataclass
class Wire:
    """A net; `direction` is input, output, or empty for one inside."""

    name: str
    width: int
    signed: bool
    direction: str
    init: str = ""

    def renamed(self, name: str) -> "Wire":
        """A copy with another name."""
        return replace(self, name=name)


@dataclass
class Memory:
    """A memory's declaration."""

    name: str
    head: str

    def renamed(self, name: str) -> "Memory":
        """A copy with another name."""
        return replace(self, name=name)


@dataclass
class Cell:
    """`ports` are connections in the order of the text."""

    kind: str
    name: str
    parameters: list[str] = field(default_factory=list)
    ports: list[tuple[str, str]] = field(default_factory=list)

    @property
    def memory(self) -> str:
        """The memory that a port cell belongs to, or nothing."""
        for parameter in self.parameters:
            if parameter.startswith("parameter \\MEMID "):
                return parameter.split('"')[1].replace("\\\\", "\\")
        return ""

    def renamed(
        self, kind: str, name: str, ports: list[tuple[str, str]], rename: Callable[[str], str]
    ) -> "Cell":
        """A copy with other names; `rename` is for its memory's."""
        memory = self.memory
        old, new = (
            f'"{m.replace(chr(92), chr(92) * 2)}"' for m in (memory, memory and rename(memory))
        )
        parameters = [p.replace(old, new) if memory else p for p in self.parameters]
        return Cell(kind, name, parameters, ports)


@dataclass
class Process:
    """The lines of a process, with their indentation."""

    name: str
    lines: list[str]

    def renamed(self, name: str, lines: list[str]) -> "Process":
        """A copy with other names."""
        return Process(name, lines)

    def targets(self) -> Iterator[str]:
        """The wires that it assigns."""
        for line in self.lines:
            words = line.split(maxsplit=2)
            if words and words[0] == "assign":
                yield words[1]


@dataclass
class Module:
    """One module. `connections` are (target, source).

    `aliases` are wires that were dropped, with what they stood for; `suggestions` are names for
    unnamed ports. Neither is part of the text.
    """

    name: str
    wires: list[Wire] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    connections: list[tuple[str, str]] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    suggestions: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> tuple[str, ...]:
        """The module's place in the hierarchy that Amaranth converted."""
        return tuple(self.name[1:].split("."))

    @property
    def ports(self) -> list[Wire]:
        """The wires that are ports, in order."""
        return [wire for wire in self.wires if wire.direction]

    def text(self) -> str:
        """The module in RTLIL."""
        lines = [f"module {self.name}"]
        index = 0
        for wire in self.wires:
            if wire.init:
                lines.append(f"  attribute {_KEPT_ATTRIBUTE} {wire.init}")
            kind = "signed " if wire.signed else ""
            if wire.direction:
                kind += f"{wire.direction} {index} "
                index += 1
            lines.append(f"  wire width {wire.width} {kind}{wire.name}")
        lines += [f"  {memory.head} {memory.name}" for memory in self.memories]
        for cell in self.cells:
            lines.append(f"  cell {cell.kind} {cell.name}")
            lines += [f"    {parameter}" for parameter in cell.parameters]
            lines += [f"    connect {port} {value}" for port, value in cell.ports]
            lines.append("  end")
        for process in self.processes:
            lines += [f"  process {process.name}", *process.lines, "  end"]
        lines += [f"  connect {target} {source}" for target, source in self.connections]
        return "\n".join((*lines, "end", ""))


def parse(text: str) -> list[Module]:
    """The modules of Amaranth's output, without attributes other than initial values.

    Raises:
        ValueError: a line that Amaranth 0.5.10 does not write.
    """
    modules: list[Module] = []
    lines = iter(text.splitlines())
    init = ""
    for line in lines:
        words = line.split(maxsplit=2)
        if not words or (words[0] in ("autoidx", "end") and len(words) < 3):
            continue
        match words[0]:
            case "module":
                modules.append(Module(words[1]))
            case "attribute":
                if words[1] == _KEPT_ATTRIBUTE:
                    init = words[2]
            case "wire":
                modules[-1].wires.append(_wire(line.strip(), init))
                init = ""
            case "memory":
                head, name = line.strip().rsplit(" ", 1)
                modules[-1].memories.append(Memory(name, head))
            case "cell":
                modules[-1].cells.append(_cell(words[1], words[2], lines))
            case "process":
                modules[-1].processes.append(Process(words[1], list(_block(lines))))
            case "connect":
                modules[-1].connections.append((words[1], words[2]))
            case _:
                raise ValueError(f"RTLIL line not understood: {line!r}")
    return modules


def _wire(line: str, init: str) -> Wire:
    match = _WIRE.match(line)
    if match is None:
        raise ValueError(f"RTLIL line not understood: {line!r}")
    return Wire(match[4], int(match[1] or 1), bool(match[2]), match[3] or "", init)


def _cell(kind: str, name: str, lines: Iterator[str]) -> Cell:
    cell = Cell(kind, name)
    for line in lines:
        words = line.split(maxsplit=2)
        if words[0] == "end":
            break
        if words[0] == "connect":
            cell.ports.append((words[1], words[2]))
        elif words[0] == "parameter":
            cell.parameters.append(line.strip())
    return cell


def _block(lines: Iterator[str]) -> Iterator[str]:
    """The lines of a process up to its end."""
    depth = 0
    for line in lines:
        word = line.split(maxsplit=1)[0] if line.strip() else ""
        if word == "end":
            if depth == 0:
                return
            depth -= 1
        elif word == "switch":
            depth += 1
        if word and word != "attribute":
            yield line
