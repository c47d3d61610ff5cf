"""The comparison of bit patterns, and the report of a difference: where, what, and which
instruction wrote it last."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isa.image import ProgramImage
from sim.observers import LastWriter
from sim.result import describe

EXPONENT, MANTISSA, CANONICAL_NAN = 0x7F80, 0x007F, 0x7FC0


def canonical(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """BF16 patterns with every NaN as 0x7FC0, the only freedom that equality has (numerics.md)."""
    nan = ((bits & EXPONENT) == EXPONENT) & ((bits & MANTISSA) != 0)
    return np.where(nan, np.uint16(CANONICAL_NAN), bits)


@dataclass(frozen=True)
class Mismatch:
    """One element that differs; `row` and `column` count in the tensor, `vram_row` and `lane` in
    the memory."""

    row: int
    column: int
    vram_row: int
    lane: int
    got: int
    want: int
    writer: str

    def __str__(self) -> str:
        return (
            f"row {self.row} column {self.column} (vector SRAM row {self.vram_row} lane "
            f"{self.lane}): "
            f"got 0x{self.got:04X}, want 0x{self.want:04X}; last written by {self.writer}"
        )


@dataclass(frozen=True)
class WordMismatch:
    """One word of INT_MEM or FP_MEM that differs; `column` counts in the window, `row` is 0."""

    column: int
    got: int
    want: int
    row: int = 0
    writer: str = "not recorded for words"

    def __str__(self) -> str:
        return f"word {self.column}: got 0x{self.got:04X}, want 0x{self.want:04X}"


@dataclass(frozen=True)
class Comparison:
    """The result for one tensor: how many of its elements differ, and the first of them in full."""

    name: str
    elements: int
    different: int
    first: tuple[Mismatch | WordMismatch, ...]

    @property
    def ok(self) -> bool:
        """Whether every bit agrees, and there was something to compare."""
        return self.different == 0 and self.elements > 0

    def __str__(self) -> str:
        if self.elements == 0:
            return f"{self.name}: nothing was compared"
        if self.ok:
            return f"{self.name}: all {self.elements} elements agree in every bit"
        lines = [f"{self.name}: {self.different} of {self.elements} elements differ"]
        lines += [f"  {mismatch}" for mismatch in self.first]
        if self.different > len(self.first):
            lines.append(f"  ... and {self.different - len(self.first)} more")
        return "\n".join(lines)


def compare(
    name: str,
    got: npt.NDArray[np.uint16],
    want: npt.NDArray[np.uint16],
    *,
    locate: Callable[[int, int], tuple[int, int]],
    writers: LastWriter,
    image: ProgramImage,
    limit: int = 5,
) -> Comparison:
    """Compares [rows, columns] patterns; `locate` gives an element's vector SRAM row and lane.

    Raises ValueError when the shapes differ, naming both.
    """
    if got.shape != want.shape:
        raise ValueError(f"{name}: got shape {got.shape}, want {want.shape}")
    rows, columns = np.nonzero(canonical(got) != canonical(want))
    first = []
    for row, column in zip(rows[:limit].tolist(), columns[:limit].tolist(), strict=True):
        vram_row, lane = locate(row, column)
        pc = int(writers.pc[vram_row, lane])
        writer = describe(image, pc) if pc >= 0 else "no instruction"
        first.append(
            Mismatch(
                row, column, vram_row, lane, int(got[row, column]), int(want[row, column]), writer
            )
        )
    return Comparison(name, got.size, len(rows), tuple(first))


def compare_words(
    name: str, got: npt.NDArray[np.integer], want: npt.NDArray[np.integer], *, limit: int = 5
) -> Comparison:
    """Compares words [n] of INT_MEM, or of FP_MEM when they are BF16 patterns (uint16).

    Raises ValueError when the shapes differ, naming both.
    """
    if got.shape != want.shape:
        raise ValueError(f"{name}: got shape {got.shape}, want {want.shape}")
    differs = got != want
    if got.dtype == np.uint16 and want.dtype == np.uint16:
        differs = canonical(got.astype(np.uint16)) != canonical(want.astype(np.uint16))
    (places,) = np.nonzero(differs)
    first = [WordMismatch(i, int(got[i]), int(want[i])) for i in places[:limit].tolist()]
    return Comparison(name, got.size, len(places), tuple(first))
