"""What every instruction of the program cost: the counters per stage, split by pc.

The hardware counts per stage. This observer counts the same from the events of the run, so that a
profile can say what a routed pair cost, and so that each confirms the other.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.opcodes import Unit
from rtl.interfaces import SLOT_BITS
from sim.hbm import BEAT_BYTES
from sim.observers import Completed, Dispatched, Observer

Counts = npt.NDArray[np.int64]

#: Unfinished instructions that can be, and the one at dispatch.
_ROOM = (1 << SLOT_BITS) + 1
_COUNT, _SINCE = 0, 1  # of `progress`


class PcAccounts(Observer):
    """Cycles, completions and bytes of a run by pc; always attached, exact in every cycle.

    The rules are those of the hardware's counters (`rtl.profile.COUNTERS`): a cycle belongs to the
    oldest unfinished instruction, or to the one at dispatch when none is unfinished; a unit's cycle
    to its oldest unfinished instruction. An instruction is unfinished from the cycle after its
    dispatch to the cycle of its completion.

    After a memory error the failed instruction never completes, so that cycles from then on are
    billed to it; `rtl` bills them to the next one.

    Attributes (arrays with one element per pc):
        wall: cycles of the run.
        completions: instructions that completed.
        bytes_read, bytes_written: bytes that the HBM device counted.
        busy: [unit][pc], cycles of a unit, by `Unit` value.

    A compiled clock loop updates these arrays, and the two below, in place of this class.
        order: [i] = (pc, unit) of the unfinished instructions, oldest first.
        progress: how many those are, and the first cycle that is not accounted for.
    """

    def __init__(self, length: int) -> None:
        self.wall: Counts = np.zeros(length, np.int64)
        self.completions: Counts = np.zeros(length, np.int64)
        self.bytes_read: Counts = np.zeros(length, np.int64)
        self.bytes_written: Counts = np.zeros(length, np.int64)
        self.busy: Counts = np.zeros((len(Unit), length), np.int64)
        self.order: Counts = np.zeros((_ROOM, 2), np.int64)
        self.progress: Counts = np.zeros(2, np.int64)

    def beat(self, pc: int, write: bool) -> None:
        """The memory accepted a request of the instruction at `pc`."""
        (self.bytes_written if write else self.bytes_read)[pc] += BEAT_BYTES

    def close(self, cycle: int, front_pc: int) -> None:
        """Bills the cycles before `cycle`, in which nothing happened; `front_pc` is at dispatch."""
        self._bill(cycle, front_pc)

    def dispatched(self, event: Dispatched) -> None:
        self._bill(event.cycle + 1, event.pc)
        self.order[self.progress[_COUNT]] = event.pc, event.unit
        self.progress[_COUNT] += 1

    def completed(self, event: Completed) -> None:
        self._bill(event.cycle + 1, event.pc)
        self.completions[event.pc] += 1
        count = int(self.progress[_COUNT])
        if event.port == "immediate":  # it is the one just dispatched, and never was unfinished
            unit = int(self.order[count - 1, 1])
            if unit not in self.order[: count - 1, 1]:
                self.busy[unit, event.pc] += 1
            slot = count - 1
        else:
            slot = int(np.flatnonzero(self.order[:count, 0] == event.pc)[0])
        self.order[slot : count - 1] = self.order[slot + 1 : count].copy()
        self.progress[_COUNT] -= 1

    def _bill(self, end: int, front_pc: int) -> None:
        """Bills the cycles up to `end` to who was unfinished in them."""
        count, since = self.progress.tolist()
        cycles = end - since
        if cycles <= 0:
            return
        self.progress[_SINCE] = end
        self.wall[self.order[0, 0] if count else front_pc] += cycles
        seen: set[int] = set()
        for pc, unit in self.order[:count].tolist():
            if unit not in seen:
                seen.add(unit)
                self.busy[unit, pc] += cycles

    def by(self, groups: Sequence[int] | npt.NDArray[Any], count: int) -> dict[str, Counts]:
        """Sums over the pcs of each group 0 to `count` - 1; `groups[pc]` is the pc's group."""
        columns = {
            "wall": self.wall,
            "completed": self.completions,
            "read": self.bytes_read,
            "written": self.bytes_written,
            **{f"busy_{unit.name.lower()}": self.busy[unit.value] for unit in Unit},
        }
        sums = {name: np.zeros(count, np.int64) for name in columns}
        for name, column in columns.items():
            np.add.at(sums[name], np.asarray(groups), column)
        return sums
