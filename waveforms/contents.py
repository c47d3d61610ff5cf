"""The contents of the memories: read once, then kept up to date by what is written."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from isa.opcodes import OPCODES, State
from rtl.top import PlenaTop
from sim.engine import Engine
from sim.observers import Written

LANE_BITS = 16


@dataclass(frozen=True, eq=False)
class Cell:
    """One variable: bits `shift` to `shift + width - 1` of a row of a memory."""

    name: str
    row: int
    shift: int
    width: int

    def of(self, row: int) -> int:
        """Its value, in the value of the row."""
        return row >> self.shift & ((1 << self.width) - 1)


class Contents:
    """The rows of one memory that are shown.

    Members: `name` (the scope), `unit` (for selections), `cells` (the variables), `of_row` (those
    of each row), `rows` (row number to value, once `load` was called).
    """

    def __init__(self, name: str, unit: str, cells: list[Cell]) -> None:
        self.name, self.unit, self.cells = name, unit, cells
        self.rows: dict[int, int] = {}
        self.of_row: dict[int, list[Cell]] = {}
        for cell in cells:
            self.of_row.setdefault(cell.row, []).append(cell)

    def load(self, engine: Engine) -> None:
        """Read what the memory holds in the cycle that the engine is in."""
        self.rows = dict(zip(self.of_row, self._read(engine, list(self.of_row)), strict=True))

    def written(self, event: Written) -> None:
        """A row was written in the cycle of `event`; it shows in the next one."""

    def touched(self, word: int, cycle: int) -> None:
        """The instruction `word` was dispatched or completed in `cycle`."""

    def update(self, engine: Engine, cycle: int) -> list[int]:
        """Bring `rows` to the beginning of `cycle`; returns the rows that may have changed."""
        raise NotImplementedError

    def _read(self, engine: Engine, rows: list[int]) -> list[int]:
        raise NotImplementedError


class SramContents(Contents):
    """Vector or matrix SRAM: every write is an event, so nothing is read again."""

    def __init__(self, name: str, unit: str, cells: list[Cell], top: PlenaTop) -> None:
        super().__init__(name, unit, cells)
        self._top: Any = top
        self._lanes = top.config.MLEN
        self._events: list[Written] = []  # in order, not yet in `rows`
        self._masks: dict[int, int] = {}

    def written(self, event: Written) -> None:
        """A row was written in the cycle of `event`; it shows in the next one."""
        if event.memory == self.name and event.row in self.of_row:
            self._events.append(event)

    def update(self, engine: Engine, cycle: int) -> list[int]:
        """The rows written before `cycle`."""
        due = [e for e in self._events if e.cycle < cycle]
        self._events = self._events[len(due) :]
        for event in due:
            mask = self._mask(event.lanes)
            self.rows[event.row] = (self.rows[event.row] & ~mask) | (event.data & mask)
        return [event.row for event in due]

    def _mask(self, lanes: int) -> int:
        if lanes not in self._masks:
            on = (lane for lane in range(self._lanes) if lanes >> lane & 1)
            self._masks[lanes] = sum(((1 << LANE_BITS) - 1) << LANE_BITS * lane for lane in on)
        return self._masks[lanes]

    def _read(self, engine: Engine, rows: list[int]) -> list[int]:
        if self.name == "vram":
            return engine.read_memory(self._top.vector_sram.storage, rows[0], len(rows))
        sram, first, count = self._top.matrix_sram, rows[0], len(rows)
        banks = [engine.read_memory(bank, first, count) for bank in sram.banks]
        values = [0] * count
        for number, bank in enumerate(banks):
            for i, element in enumerate(bank):
                _, _, column = sram.element(self._lanes, number, first + i)
                values[i] |= element << LANE_BITS * column
        return values


class WordContents(Contents):
    """FP_MEM or INT_MEM, which have no write events: read again after an instruction that writes.

    What the scalar unit stores shows in the cycle after its dispatch, when it is in the memory.
    """

    def __init__(self, name: str, state: State, cells: list[Cell], top: PlenaTop) -> None:
        super().__init__(name, "scalar", cells)
        self._storage = {State.FP_MEM: top.scalar.fp_mem, State.INT_MEM: top.scalar.int_mem}[state]
        self._writers = {o.code for o in OPCODES.values() if o.access(state, writes=True)}
        self._touched: list[int] = []  # in these cycles

    def touched(self, word: int, cycle: int) -> None:
        """Remembers instructions that write this memory."""
        if word & 0x3F in self._writers:
            self._touched.append(cycle)

    def update(self, engine: Engine, cycle: int) -> list[int]:
        """The rows that are not what they were, if an instruction touched any before `cycle`."""
        later = [c for c in self._touched if c >= cycle]
        if len(later) == len(self._touched):
            return []
        self._touched = later
        before = self.rows
        self.load(engine)
        return [row for row, value in self.rows.items() if before[row] != value]

    def _read(self, engine: Engine, rows: list[int]) -> list[int]:
        return engine.read_memory(self._storage, rows[0], len(rows))


def memories(top: PlenaTop, rows: range, *, lanes: bool = False) -> list[Contents]:
    """The memories of a machine, each with those of the `rows` that it has.

    Rows are numbered through the tiles of the matrix SRAM; FP_MEM and INT_MEM count in words. With
    `lanes`, every lane of the two SRAMs is a variable too. Raises ValueError for negative rows and
    for a range with a step.
    """
    if rows.step != 1 or rows.start < 0 or rows.stop < 0:
        raise ValueError(f"memory rows {rows}: must be a number of rows, or a range of them")
    config, mlen = top.config, top.config.MLEN

    def within(count: int) -> range:
        return range(min(rows.start, count), min(rows.stop, count))

    def sram(count: int, name_of: Callable[[int], str]) -> Iterator[Cell]:
        for row in within(count):
            yield Cell(name_of(row), row, 0, LANE_BITS * mlen)
            for lane in range(mlen if lanes else 0):
                yield Cell(f"{name_of(row)}_lane_{lane}", row, LANE_BITS * lane, LANE_BITS)

    vram = sram(config.VRAM_ROWS, lambda row: f"row_{row}")
    mram = sram(config.MRAM_TILES * mlen, lambda row: f"tile_{row // mlen}_row_{row % mlen}")
    fp = (
        Cell(f"word_{i}", i // mlen, LANE_BITS * (i % mlen), LANE_BITS)
        for i in within(config.FP_MEM_WORDS)
    )
    integers = (Cell(f"word_{i}", i, 0, 32) for i in within(config.INT_MEM_WORDS))
    every = (
        SramContents("vram", "vector", list(vram), top),
        SramContents("mram", "matrix", list(mram), top),
        WordContents("fp_mem", State.FP_MEM, list(fp), top),
        WordContents("int_mem", State.INT_MEM, list(integers), top),
    )
    return [memory for memory in every if memory.cells]
