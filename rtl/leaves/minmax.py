"""Minimum and maximum."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from .format import BF16
from .leaf import Leaf

__all__ = ["BF16MinMax"]


class BF16MinMax(Leaf):
    """``o`` = the larger (``is_max``) or smaller of ``a`` and ``b``; NaN if either is NaN.

    These are IEEE 754-2019 maximum and minimum (9.6), with -0 below +0 in either operand order.

    Members
    -------
    a, b : In(16)
    is_max : In(1)
    o : Out(16)
    """

    a: Value
    b: Value
    is_max: Value
    o: Signal

    def __init__(self, *, latency: int = 0) -> None:
        ports = {"a": In(BF16.width), "b": In(BF16.width), "is_max": In(1), "o": Out(BF16.width)}
        super().__init__(ports, latency=latency)

    def _datapath(self, m: Module) -> None:
        def rank(word: Value) -> Value:
            """Unsigned order of the ranks is order of the numbers."""
            return word ^ Mux(BF16.sign_of(word), 2 * BF16.sign_mask - 1, BF16.sign_mask)

        a_below = rank(self.a) < rank(self.b)
        m.d.comb += self.o.eq(Mux(self.is_max ^ a_below, self.a, self.b))
        with m.If((BF16.magnitude_of(self.a) > BF16.inf) | (BF16.magnitude_of(self.b) > BF16.inf)):
            m.d.comb += self.o.eq(BF16.nan)
