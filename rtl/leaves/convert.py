"""Rounding of FP32 to BF16."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.wiring import In, Out

from .format import BF16, FP32
from .leaf import Leaf

__all__ = ["RoundToBF16"]


class RoundToBF16(Leaf):
    """FP32 to BF16, to nearest even (IEEE 754-2019, 5.4.2). Every NaN becomes the canonical one.

    The formats share their exponent range, so BF16 is the upper half of the word, plus one where
    the lower half asks for it: a carry runs through the significand into the exponent, and from
    the largest finite number into infinity.

    Members
    -------
    i : In(32)
    o : Out(16)
    """

    i: Value
    o: Signal

    def __init__(self, *, latency: int = 0) -> None:
        super().__init__({"i": In(FP32.width), "o": Out(BF16.width)}, latency=latency)

    def _datapath(self, m: Module) -> None:
        low = FP32.width - BF16.width
        lost, kept = self.i[:low], self.i[low:]
        up = (lost + kept[0]) > (1 << (low - 1))
        m.d.comb += self.o.eq(kept + up)
        with m.If(FP32.magnitude_of(self.i) > FP32.inf):
            m.d.comb += self.o.eq(BF16.nan)
