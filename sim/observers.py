"""What the host may watch while the machine runs. An observer is called once per cycle that has an
event for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from amaranth.hdl import Value

from isa.image import ProgramImage


class TagError(AssertionError):
    """The hardware completed an instruction under another stage than the image gives it."""


class Dispatched(NamedTuple):
    """An instruction left the dispatcher.

    `state`: what the state registers held before it, in the order of `Memories.read_state`; may
    be left out when no observer wants `Stored` events.
    """

    cycle: int
    pc: int
    word: int
    stage: int
    unit: int
    state: tuple[int, ...] = ()


class Completed(NamedTuple):
    """An instruction completed on `port`."""

    cycle: int
    port: str
    pc: int
    stage: int


class Written(NamedTuple):
    """A write to an SRAM row: `lanes` is a bit per lane, `data` the row (only enabled lanes
    count)."""

    cycle: int
    port: str
    memory: str
    row: int
    lanes: int
    data: int
    pc: int
    stage: int


class Stored(NamedTuple):
    """A write of register or word `number` of `file`: "gp", "f", "a", "FP_MEM" or "INT_MEM"."""

    cycle: int
    file: str
    number: int
    value: int


class HbmWritten(NamedTuple):
    """The memory accepted a write: the bytes of beat `address` that `strobe` has a bit for, for the
    instruction at `pc`."""

    cycle: int
    pc: int
    address: int
    data: int
    strobe: int


@dataclass(frozen=True)
class Samples:
    """What an observer wants of every cycle from `first` up to, not including, `stop`: the settled
    values of `signals`, which are signals or rows of memories. `stop` None is the end."""

    signals: Sequence[Value]
    first: int
    stop: int | None


class Observer:
    """Base of every observer; the methods for events that it does not want do nothing.

    A class that says `accepts_late_events = True` gets its events in order, but maybe thousands of
    cycles late, so it must not look at the machine, and `cycle` is not called. That lets an engine
    clock on without it. What such an observer wants of a cycle besides events, it asks for by
    `samples`.
    """

    accepts_late_events: ClassVar[bool] = False

    def samples(self) -> Samples | None:
        """Asked when a run begins, by an engine that is late with events."""
        return None

    def sampling(self, cycle: int) -> None:
        """The machine stands at the beginning of `cycle`, the first to be sampled, and may be
        looked at."""

    def sampled(self, cycle: int, values: Sequence[int]) -> None:
        """The values of the samples in `cycle`, after its events."""

    def start(self, simulation: "object") -> None:
        """The run is about to begin."""

    def cycle(self, cycle: int) -> None:
        """A cycle has settled; every cycle, so keep it cheap or do not override it."""

    def dispatched(self, event: Dispatched) -> None:
        """An instruction was dispatched."""

    def completed(self, event: Completed) -> None:
        """An instruction completed."""

    def written(self, event: Written) -> None:
        """An SRAM row was written."""

    def stored(self, event: Stored) -> None:
        """A register or a word was written."""

    def hbm_written(self, event: HbmWritten) -> None:
        """A beat was written to the device memory."""

    def stop(self) -> None:
        """The run is over, or was interrupted."""


class EventLog(Observer):
    """Every event of a run, in order."""

    accepts_late_events = True

    def __init__(self) -> None:
        self.events: list[object] = []

    def dispatched(self, event: Dispatched) -> None:
        self.events.append(event)

    def completed(self, event: Completed) -> None:
        self.events.append(event)

    def written(self, event: Written) -> None:
        self.events.append(event)

    def stored(self, event: Stored) -> None:
        self.events.append(event)

    def hbm_written(self, event: HbmWritten) -> None:
        self.events.append(event)


class TagChecker(Observer):
    """Checks on every run that the tag of each dispatch, completion and memory request is the
    image's tag at its pc."""

    def __init__(self, image: ProgramImage) -> None:
        self._stages = [int(s) for s in image.stages]
        self._vocabulary = image.vocabulary

    def _check(self, what: str, pc: int, stage: int) -> None:
        if self._stages[pc] != stage:
            raise TagError(
                f"pc {pc} {what} with stage {self._vocabulary[stage]}, "
                f"but the image tags it {self._vocabulary[self._stages[pc]]}"
            )

    def dispatched(self, event: Dispatched) -> None:
        self._check("was dispatched", event.pc, event.stage)

    def requested(self, pc: int, stage: int) -> None:
        """A request of the instruction at `pc` went to the memory."""
        self._check("sent a memory request", pc, stage)

    def completed(self, event: Completed) -> None:
        self._check("completed", event.pc, event.stage)


class LastWriter(Observer):
    """Remembers, for every lane of the vector SRAM, the pc of the instruction that wrote it last
    (-1: none)."""

    def __init__(self, rows: int, lanes: int) -> None:
        self.pc = np.full((rows, lanes), -1, np.int32)
        self._all = (1 << lanes) - 1
        self._lanes = lanes

    def written(self, event: Written) -> None:
        if event.memory != "vram":
            return
        if event.lanes == self._all:
            self.pc[event.row] = event.pc
        else:
            for lane in range(self._lanes):
                if event.lanes >> lane & 1:
                    self.pc[event.row, lane] = event.pc
