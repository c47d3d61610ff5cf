"""Questions to a waveform file: first dispatch of a stage, a signal's values, spans of stages.

Numbers are read with vcdvcd; it drops string variables, so those are read here. Values are
integers, strings for string variables; times are cycles. Command line:
`python -m waveforms.query FILE ...`.
"""

import difflib
import re
import signal as signals
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

from isa.command import leave_with
from isa.stages import Stage
from waveforms.dump import PERIOD_TEXT

Path = str | PathLike[str]

_PERIOD = re.compile(re.escape(PERIOD_TEXT).replace(r"\{\}", r"(\d+)"))
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\x20": " ", "\\\\": "\\"}


class QueryError(ValueError):
    """A file that is no waveform of this project, or a signal or stage that does not exist."""


def signal_names(path: Path) -> list[str]:
    """Every variable's full name, in the order of the file."""
    return [name for name, _, _ in _variables(path)]


def signal(path: Path, name: str) -> list[tuple[int, int | str]]:
    """The changes of one signal, as (cycle, value), from its value at the file's beginning on.

    Raises:
        QueryError: there is no such signal; the message has the nearest names.
        OSError: the file cannot be read.
    """
    variables = {full: (kind, code) for full, kind, code in _variables(path)}
    if name not in variables:
        near = difflib.get_close_matches(name, variables, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "see --signals for the names"
        raise QueryError(f"{path}: no signal {name!r}; {hint}")
    period, (kind, code) = _period(path), variables[name]
    changes = _texts(path, code) if kind == "string" else _numbers(path, [name])[name]
    return [(time // period, value) for time, value in changes]


def first_dispatch(path: Path, stage_label: str) -> int | None:
    """The first cycle in which an instruction of this stage was dispatched; None when none was.

    Raises:
        QueryError: no such stage, or no dispatch in the file.
        OSError: the file cannot be read.
    """
    try:
        wanted = Stage.from_label(stage_label)
    except ValueError as error:
        raise QueryError(str(error)) from None
    for start, _, (valid, stage) in _together(path, "dispatch.valid", "dispatch.stage_index"):
        if valid and stage == wanted:
            return start
    return None


def stage_spans(path: Path) -> list[tuple[str, int, int]]:
    """Whom the cycles belong to: (stage, first cycle, cycle after the last), without a gap.

    Lengths added up per stage are the `wall` counters of the profile (within the file's window).
    """
    spans: list[tuple[str, int, int]] = []
    for start, stop, (counting, stage) in _together(path, "run.counting", "run.bill_stage_index"):
        label = Stage(stage).label
        if counting and spans and spans[-1][0] == label:
            spans[-1] = (label, spans[-1][1], stop)
        elif counting:
            spans.append((label, start, stop))
    return spans


def _together(path: Path, *names: str) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The values of several number signals for every (first cycle, cycle after) between changes."""
    known = signal_names(path)
    missing = [name for name in names if name not in known]
    if missing:
        raise QueryError(f"{path}: no signal {', '.join(missing)}; was it written by VcdWriter?")
    period, changes = _period(path), _numbers(path, [*names, "run.cycle"])
    events: dict[int, dict[str, int]] = {}
    for name in changes:
        for time, value in changes[name]:
            events.setdefault(time // period, {})[name] = value
    now: dict[str, int] = {}
    cycles = sorted(events)
    for start, stop in zip(cycles, [*cycles[1:], cycles[-1] + 1] if cycles else [], strict=True):
        now |= events[start]
        yield start, stop, tuple(now[name] for name in names)


def _numbers(path: Path, names: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Changes of number signals, as (picoseconds, value)."""
    before = signals.getsignal(signals.SIGPIPE)
    from vcdvcd import VCDVCD

    with suppress(ValueError):  # of other threads, which vcdvcd cannot disturb
        signals.signal(signals.SIGPIPE, before)  # it takes it, for the whole process
    try:
        parsed: Any = VCDVCD(str(path), signals=list(names))
        return {name: [(t, int(v, 2)) for t, v in parsed[name].tv] for name in names}
    except (ValueError, IndexError, KeyError) as error:
        raise QueryError(f"{path}: damaged, or no value change dump ({error})") from error


def _texts(path: Path, code: str) -> list[tuple[int, str]]:
    """Changes of a string variable, as (picoseconds, value)."""
    changes, time, end = [], 0, f" {code}\n"
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith("#"):
                time = int(line[1:])
            elif line.startswith("s") and line.endswith(end):
                text = re.sub(r"\\(?:x20|.)", lambda m: _ESCAPES[m[0]], line[1 : -len(end)])
                changes.append((time, text))
    return changes


def _variables(path: Path) -> list[tuple[str, str, str]]:
    """Full name, type and identifier of every variable."""
    scope: list[str] = []
    variables = []
    for line in _head(path):
        words = line.split()
        if words[:1] == ["$scope"]:
            scope.append(words[2])
        elif words[:1] == ["$upscope"]:
            scope.pop()
        elif words[:1] == ["$var"]:
            variables.append((".".join([*scope, words[4]]), words[1], words[3]))
    return variables


def _period(path: Path) -> int:
    for line in _head(path):
        found = _PERIOD.search(line)
        if found:
            return int(found[1])
    raise QueryError(f"{path}: the file does not say what a cycle is; was it written by VcdWriter?")


def _head(path: Path) -> Iterator[str]:
    """The lines before the values."""
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                if line.startswith("$enddefinitions"):
                    return
                yield line
    except UnicodeDecodeError:
        pass
    raise QueryError(f"{path}: no value change dump")


if __name__ == "__main__":
    from waveforms.query_command import main

    leave_with(main)
