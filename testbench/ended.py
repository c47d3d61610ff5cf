"""How a run ended, all of it, and the first thing in which two runs of one program differ."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.result import RunResult
from testbench.fuzz.final import Final

__all__ = ["Ended", "difference"]


@dataclass(frozen=True)
class Ended:
    """Events in order, one result for each time that the machine halted, and the final state."""

    events: Sequence[object]
    results: Sequence[RunResult]
    final: Final


def difference(one: Ended, other: Ended) -> str:
    """The first of event, result or bit of the final state that differs, as two lines or
    `one | other`; empty when the runs are equal in all but the engine and its time."""
    ours, theirs = one.events, other.events
    if ours != theirs:
        pairs = zip(ours, theirs, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
        first, second = (str(e[at]) if at < len(e) else "no event" for e in (ours, theirs))
        return f"event {at} differs:\n  {first}\n  {second}"
    for ended, as_well in zip(one.results, other.results, strict=True):
        same = {"engine": "", "wall_seconds": 0.0}
        if replace(ended, **same) != replace(as_well, **same):
            return f"the results differ:\n  {ended}\n  {as_well}"
    found = one.final.difference(other.final)
    return found and f"the final states differ: {found}"
