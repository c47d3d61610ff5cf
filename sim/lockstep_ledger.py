"""What the machine did for unfinished instructions, and the hardware still owes."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from isa.instruction import Instruction
from isa.opcodes import State
from sim.machine import Effect, HbmWrite, MachineState, RegisterWrite, RowWrite, WordWrite
from sim.observers import Written

Place = tuple[str, int | str]
"""A register or a word, by file or memory, and index."""
ValueWrite = RegisterWrite | WordWrite


@dataclass(slots=True)
class OwedRow:
    """A row write, and its lanes that have not been written."""

    effect: RowWrite
    owed: int


@dataclass(eq=False, slots=True)
class Unfinished:
    """A dispatched instruction: its number in the run, its pc, and what it owes.

    `failed`: the memory answers it with an error, so it never completes, and its target rows are
    undefined.
    """

    number: int
    pc: int
    failed: bool
    rows: dict[Place, list[OwedRow]] = field(default_factory=dict)
    values: list[ValueWrite] = field(default_factory=list)
    content: list[HbmWrite] = field(default_factory=list)
    completed: int | None = None

    def owed(self) -> Iterator[Effect]:
        """Rows and values that are missing."""
        yield from (row.effect for rows in self.rows.values() for row in rows if row.owed)
        yield from self.values


def _place(effect: ValueWrite) -> Place:
    if isinstance(effect, RegisterWrite):
        return effect.file, effect.index
    return effect.memory, effect.address


class Ledger:
    """The unfinished instructions by pc, and the order of the writes of every register and word."""

    def __init__(self) -> None:
        self._at: dict[int, deque[Unfinished]] = {}
        self._writers: dict[Place, deque[Unfinished]] = {}
        self._closing: deque[Unfinished] = deque()

    def __iter__(self) -> Iterator[Unfinished]:
        """All of them, by pc and then in program order."""
        for queue in self._at.values():
            yield from queue

    def at(self, pc: int) -> Sequence[Unfinished]:
        """Those at `pc`, in program order."""
        return self._at.get(pc, ())  # type: ignore[return-value]

    def add(self, instance: Unfinished, effects: Sequence[Effect]) -> None:
        """One was dispatched; state registers are not kept here."""
        self._at.setdefault(instance.pc, deque()).append(instance)
        for effect in effects:
            if isinstance(effect, RowWrite):
                row = OwedRow(effect, effect.lanes)
                instance.rows.setdefault((effect.memory, effect.row), []).append(row)
            elif isinstance(effect, HbmWrite):
                instance.content.append(effect)
            elif not (isinstance(effect, RegisterWrite) and effect.file == "state"):
                instance.values.append(effect)
                self._writers.setdefault(_place(effect), deque()).append(instance)

    def complete(self, pc: int, cycle: int) -> bool:
        """The oldest at `pc` completes in `cycle`; False when there is none."""
        for instance in self._at.get(pc, ()):
            if instance.completed is None and not instance.failed:
                instance.completed = cycle
                self._closing.append(instance)
                return True
        return False

    def settled(self, cycle: int) -> Iterator[Unfinished]:
        """Takes out those that completed before `cycle`: what they wrote is in the memories."""
        closing = self._closing
        while closing and (closing[0].completed or 0) < cycle:
            instance = closing.popleft()
            self._at[instance.pc].remove(instance)
            yield instance

    def take_row(self, event: Written) -> tuple[Unfinished, RowWrite] | None:
        """Who owes these lanes of the row, the oldest first; they are owed no longer."""
        key = event.memory, event.row
        for instance in self._at.get(event.pc, ()):
            for row in instance.rows.get(key, ()):
                if event.lanes & row.owed == event.lanes:
                    row.owed &= ~event.lanes
                    return instance, row.effect
        return None

    def take_value(self, file: str, index: int) -> tuple[Unfinished, ValueWrite] | None:
        """Who owes the next write of a register or word; it is owed no longer."""
        place = file, index
        writers = self._writers.get(place)
        if not writers:
            return None
        instance = writers.popleft()
        at = next(i for i, effect in enumerate(instance.values) if _place(effect) == place)
        return instance, instance.values.pop(at)

    def overlaid(self, address: int, number: int) -> bool:
        """Whether an instruction behind `number` writes this byte of device memory too."""
        return any(
            effect.address <= address < effect.address + len(effect.content)
            for instance in self
            if instance.number > number
            for effect in instance.content
        )


def prefetch_targets(memories: MachineState, word: int) -> set[tuple[str, int]]:
    """The rows that the H_* instruction `word` may write, as (memory, row); a store has none."""
    config, instruction = memories.config, Instruction.decode(word)
    first = memories.gp[instruction.value("rd")] // config.MLEN
    for state, memory, count in (
        (State.VECTOR_SRAM, "vram", config.v_prefetch),
        (State.MATRIX_SRAM, "mram", config.m_prefetch),
    ):
        if instruction.opcode.access(state, writes=True):
            return {(memory, row) for row in range(first, first + count)}
    return set()
