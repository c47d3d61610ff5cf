"""Which instructions are unfinished, from the events of a run."""

from isa.opcodes import Unit
from sim.observers import Completed, Dispatched


class Flight:
    """The unfinished instructions of every unit, oldest first.

    A unit finishes instructions of one pc in the order in which it got them, so a completion is
    that of the oldest one with its pc.
    """

    def __init__(self) -> None:
        self._of: dict[Unit, list[Dispatched]] = {unit: [] for unit in Unit}

    def enter(self, event: Dispatched) -> None:
        """An instruction was dispatched."""
        self._of[Unit(event.unit)].append(event)

    def leave(self, event: Completed) -> Dispatched | None:
        """An instruction completed; returns its dispatch, or None when that was not seen."""
        for unfinished in self._of.values():
            for place, entry in enumerate(unfinished):
                if entry.pc == event.pc:
                    return unfinished.pop(place)
        return None

    def clear(self) -> None:
        """Forget everything, at the start of a run."""
        for unfinished in self._of.values():
            unfinished.clear()

    def oldest(self, unit: Unit) -> Dispatched | None:
        """The oldest unfinished instruction of a unit."""
        unfinished = self._of[unit]
        return unfinished[0] if unfinished else None

    def count(self, unit: Unit) -> int:
        """Unfinished instructions of a unit."""
        return len(self._of[unit])

    @property
    def total(self) -> int:
        """Unfinished instructions of all units."""
        return sum(map(len, self._of.values()))

    def unfinished(self) -> list[Dispatched]:
        """All of them, in program order of dispatch."""
        return sorted((e for unit in self._of.values() for e in unit), key=lambda e: e.cycle)
