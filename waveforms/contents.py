"""The contents of the memories: read once, then kept up to date by what is written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import MemoryData

from rtl.top import PlenaTop
from sim.engine import Engine
from sim.observers import Stored, Written

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

    Every write is an event and shows in the cycle after it, so nothing is read again.

    Args:
        name: the scope. unit: for selections. cells: the variables.
        read: the values of the rows from a first one on, as many as asked for.

    Members: also `of_row` (the cells of each row), `rows` (row number to value, once `load` was
    called).
    """

    def __init__(
        self,
        name: str,
        unit: str,
        cells: list[Cell],
        read: Callable[[Engine, int, int], list[int]],
    ) -> None:
        self.name, self.unit, self.cells = name, unit, cells
        self.rows: dict[int, int] = {}
        self.of_row: dict[int, list[Cell]] = {}
        for cell in cells:
            self.of_row.setdefault(cell.row, []).append(cell)
        self._read = read
        self._due: list[tuple[int, int, int, int]] = []  # cycle, row, mask, bits; in order

    def load(self, engine: Engine) -> None:
        """Read what the memory holds in the cycle that the engine is in."""
        shown = list(self.of_row)
        self.rows = dict(zip(shown, self._read(engine, shown[0], len(shown)), strict=True))

    def written(self, cycle: int, row: int, mask: int, bits: int) -> None:
        """The bits of `mask` of a row were written in `cycle`."""
        if row in self.of_row:
            self._due.append((cycle, row, mask, bits))

    def update(self, cycle: int) -> list[int]:
        """Bring `rows` to the beginning of `cycle`; returns the rows written before it."""
        due = [d for d in self._due if d[0] < cycle]
        self._due = self._due[len(due) :]
        for _, row, mask, bits in due:
            self.rows[row] = (self.rows[row] & ~mask) | (bits & mask)
        return [row for _, row, _, _ in due]


class Writes:
    """Takes the events of a run to the memories that they are about.

    Args:
        contents: the memories that are shown. lanes: MLEN.
    """

    def __init__(self, contents: Sequence[Contents], lanes: int) -> None:
        self._of = {memory.name: memory for memory in contents}
        self._lanes = lanes
        self._masks: dict[int, int] = {}

    def written(self, event: Written) -> None:
        """A row of an SRAM was written."""
        memory = self._of.get(event.memory)
        if memory is not None:
            memory.written(event.cycle, event.row, self._mask(event.lanes), event.data)

    def stored(self, event: Stored) -> None:
        """A register or a word was written."""
        memory = self._of.get(event.file.lower())
        if event.file == "INT_MEM" and memory is not None:
            memory.written(event.cycle, event.number, (1 << 32) - 1, event.value)
        elif event.file == "FP_MEM" and memory is not None:
            row, lane = divmod(event.number, self._lanes)
            at = LANE_BITS * lane
            memory.written(event.cycle, row, ((1 << LANE_BITS) - 1) << at, event.value << at)

    def _mask(self, lanes: int) -> int:
        if lanes not in self._masks:
            on = (lane for lane in range(self._lanes) if lanes >> lane & 1)
            self._masks[lanes] = sum(((1 << LANE_BITS) - 1) << LANE_BITS * lane for lane in on)
        return self._masks[lanes]


def _of_memory(memory: MemoryData) -> Callable[[Engine, int, int], list[int]]:
    return lambda engine, first, count: engine.read_memory(memory, first, count)


def _of_banks(top: PlenaTop) -> Callable[[Engine, int, int], list[int]]:
    """Rows of the matrix SRAM, whose elements are in banks."""
    sram: Any = top.matrix_sram

    def read(engine: Engine, first: int, count: int) -> list[int]:
        values = [0] * count
        for number, bank in enumerate(sram.banks):
            for i, element in enumerate(engine.read_memory(bank, first, count)):
                _, _, column = sram.element(top.config.MLEN, number, first + i)
                values[i] |= element << LANE_BITS * column
        return values

    return read


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
        Contents("vram", "vector", list(vram), _of_memory(top.vector_sram.storage)),
        Contents("mram", "matrix", list(mram), _of_banks(top)),
        Contents("fp_mem", "scalar", list(fp), _of_memory(top.scalar.fp_mem)),
        Contents("int_mem", "scalar", list(integers), _of_memory(top.scalar.int_mem)),
    )
    return [memory for memory in every if memory.cells]
