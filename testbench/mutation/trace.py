"""One run of the machine as raw events and final state, and what differs between two runs."""

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from isa.config import PlenaConfig
from sim.mismatch import canonical

__all__ = ["Difference", "Event", "Kind", "Trace", "difference", "events"]


class Kind(enum.IntEnum):
    """Events in the log of the compiled engine's clock loop."""

    DISPATCH = 0
    COMPLETION = 1
    ROW = 2
    STORED = 3
    BEAT = 4


class Event(NamedTuple):
    """`detail`: (word, unit, state registers) of a dispatch; (row, lanes, data of these lanes, NaNs
    alike) of a row; (index, value) of a register or word, its file is `port`; (address, bytes that
    the strobe selects) of a beat."""

    kind: Kind
    port: int
    cycle: int
    pc: int
    stage: int
    detail: tuple[Any, ...]


class Difference(enum.Enum):
    """What tells a run from the one without a mutant, the strongest first."""

    RESULT = "other instructions, results, memory contents or halt record"
    TIMING = "an instruction that is dispatched or completes in another cycle"
    COUNTERS = "a profile counter, in a run that is otherwise equal"


@dataclass(frozen=True)
class Trace:
    """A run, through breakpoints, to its end.

    Attributes:
        log: the raw log.
        cycles: at every halt.
        state: bytes of memories, registers, state and halt records.
        counters: bytes of the profile counters.
        pages: bytes of the memory device, by page.
    """

    log: bytes
    cycles: tuple[int, ...]
    state: bytes
    counters: bytes
    pages: tuple[tuple[int, bytes], ...]


def events(trace: Trace, config: PlenaConfig, state_registers: int) -> Iterator[Event]:
    """The events of a run in order; a dispatch shows so many state registers."""
    words = np.frombuffer(trace.log, np.uint64)
    lane_words, data_words = -(-config.MLEN // 64), -(-16 * config.MLEN // 64)
    plain: list[int] = words.tolist()
    at = 0
    while at < len(plain):
        kind, port, cycle = Kind(plain[at] & 255), plain[at] >> 8, plain[at + 1]
        pc = stage = 0
        match kind:
            case Kind.DISPATCH:
                end = at + 6 + state_registers
                pc, word, stage, unit = plain[at + 2 : at + 6]
                detail = (word, unit, *plain[at + 6 : end])
            case Kind.COMPLETION:
                end = at + 4
                pc, stage = plain[at + 2 : end]
                detail = ()
            case Kind.ROW:
                middle = at + 5 + lane_words
                end = middle + data_words
                row, pc, stage = plain[at + 2 : at + 5]
                lanes = sum(word << 64 * i for i, word in enumerate(plain[at + 5 : middle]))
                data = canonical(words[middle:end].view(np.uint16)[: config.MLEN])
                detail = row, lanes, _selected(data, lanes)
            case Kind.STORED:
                end = at + 4
                detail = tuple(plain[at + 2 : end])
            case Kind.BEAT:
                end = at + 13
                pc, address, strobe = plain[at + 2 : at + 5]
                detail = address, strobe, _selected(words[at + 5 : end].view(np.uint8), strobe)
        yield Event(kind, port, cycle, pc, stage, detail)
        at = end


def _selected(data: np.ndarray[Any, Any], mask: int) -> bytes:
    """The elements that a bit mask selects."""
    return data[[bool(mask >> i & 1) for i in range(len(data))]].tobytes()


def difference(
    found: Trace, wanted: Trace, config: PlenaConfig, state_registers: int
) -> Difference | None:
    """The strongest difference, in the terms of the checks of every run."""
    if found == wanted:
        return None
    if found.log == wanted.log and found.cycles == wanted.cycles:
        same = found.state == wanted.state and found.pages == wanted.pages
        return Difference.COUNTERS if same else Difference.RESULT
    got, want = (list(events(t, config, state_registers)) for t in (found, wanted))
    if (
        _results(got) != _results(want)
        or found.state != wanted.state
        or found.pages != wanted.pages
    ):
        return Difference.RESULT
    if found.cycles != wanted.cycles or _times(got) != _times(want):
        return Difference.TIMING
    return Difference.COUNTERS if found.counters != wanted.counters else None


def _results(run: Sequence[Event]) -> Any:
    """What lock step compares, without the times."""
    dispatched = [(e.pc, e.detail) for e in run if e.kind is Kind.DISPATCH]
    completed = Counter(e.pc for e in run if e.kind is Kind.COMPLETION)
    written: dict[tuple[int, ...], list[Any]] = {}
    for e in run:
        if e.kind is Kind.STORED:
            written.setdefault((e.kind, e.port, e.detail[0]), []).append(e.detail)
        elif e.kind in (Kind.ROW, Kind.BEAT):
            written.setdefault((e.kind, e.pc), []).append((e.stage, *e.detail))
    return dispatched, completed, written


def _times(run: Sequence[Event]) -> list[tuple[int, Kind, int, int]]:
    times = (Kind.DISPATCH, Kind.COMPLETION)
    return sorted((e.cycle, e.kind, e.port, e.pc) for e in run if e.kind in times)
