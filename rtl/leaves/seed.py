"""Piecewise linear estimates of integer functions, computed when a leaf is built, in integers."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.utils import bits_for, exact_log2

__all__ = ["LinearSeed"]


@dataclass(frozen=True)
class LinearSeed:
    """Lines ``(start + slope * offset) >> fraction``, one for each of some equal ranges of indices.

    Built by ``fit``: the estimate of entry ``i`` is ``target[i]`` or ``target[i] - 1``, so that one
    exact comparison finishes the job. Slopes may be negative (kept as two's complement).
    """

    lines: tuple[tuple[int, int], ...]
    entries: int
    fraction: int

    @classmethod
    def fit(cls, target: Sequence[int], *, segments: int, fraction: int) -> "LinearSeed":
        """The highest lines that never exceed ``target``."""
        size = len(target) // segments
        lines = []
        for first in range(0, len(target), size):
            part = target[first : first + size]
            steepness = round((part[-1] - part[0] << fraction) / (size - 1))
            nearby = range(steepness - (1 << fraction), steepness + (1 << fraction) + 1)
            for slope in sorted(nearby, key=lambda slope: abs(slope - steepness)):
                start = min((top + 1 << fraction) - 1 - slope * k for k, top in enumerate(part))
                estimates = [start + slope * k >> fraction for k in range(size)]
                if all(top - estimate <= 1 for top, estimate in zip(part, estimates, strict=True)):
                    lines.append((start, slope))
                    break
            else:
                raise ValueError(f"no line with {fraction} fraction bits fits {part}")
        return cls(tuple(lines), len(target), fraction)

    @property
    def offset_bits(self) -> int:
        """Low bits of an index that tell the entries of a segment."""
        return exact_log2(self.entries // len(self.lines))

    @property
    def bits(self) -> int:
        """Width of a start value, and of a slope in two's complement."""
        return bits_for(max(start for start, _ in self.lines))

    def look_up(self, m: Module, index: Value, line: Signal) -> None:
        """Drive ``line`` (2 * ``bits``) with the start and slope for ``index``."""
        with m.Switch(index[self.offset_bits :]):
            for segment, (start, slope) in enumerate(self.lines):
                with m.Case(segment):
                    m.d.comb += line.eq(Cat(Const(start, self.bits), Const(slope, self.bits)))

    def evaluate(self, index: Value, line: Value) -> Value:
        """The estimate for ``index`` on its ``line``."""
        start, slope = line[: self.bits], line[self.bits :]
        offset = index[: self.offset_bits]
        return (start + slope * offset)[: self.bits] >> self.fraction
