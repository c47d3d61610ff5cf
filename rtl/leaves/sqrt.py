"""Correctly rounded BF16 square root."""

from math import isqrt

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from .format import BF16
from .leading import leading_zero_cases
from .leaf import Leaf
from .seed import LinearSeed

__all__ = ["BF16Sqrt"]

HIDDEN = BF16.hidden
# The radicand s * 2^7 or, with an odd exponent, s * 2^8: its root is a significand.
RADICANDS = [s << BF16.man + odd for odd in (0, 1) for s in range(HIDDEN, 2 * HIDDEN)]
# Rounded: no root of an integer lies half-way between integers, and isqrt(4x) = floor(2 * sqrt(x)).
SEED = LinearSeed.fit([(isqrt(4 * x) + 1) // 2 for x in RADICANDS], segments=16, fraction=4)


class BF16Sqrt(Leaf):
    """``o`` = the square root of ``i``, correctly rounded for all 65,536 inputs.

    sqrt(-0) = -0; any other negative number, and NaN, give the canonical NaN.

    Members
    -------
    i : In(16)
    o : Out(16)

    A line from a table of 16 estimates the root, never too high and at most one too low; it is too
    low when the radicand exceeds estimate * (estimate + 1), the square of the half-way point. Four
    steps, each reading the one before::

        i --normalise--> man, odd, exp --seed--> line --estimate--> root --round--> o
    """

    i: Value
    o: Signal

    def __init__(self, *, latency: int = 0) -> None:
        super().__init__({"i": In(BF16.width), "o": Out(BF16.width)}, latency=latency)

    def _datapath(self, m: Module) -> None:
        man, precision = BF16.man, BF16.precision
        # With an even number added that keeps it positive, the operand's exponent field is e; the
        # exponent of the operand is odd when e is even, since the bias is odd.
        positive = 8
        operand = Signal(data.StructLayout({"man": man, "odd": 1, "exp": BF16.exp + 1}))
        line = Signal(2 * SEED.bits)
        estimated = Signal(precision)

        def unpacked(sig: Value, field: Value) -> list:
            return [operand.man.eq(sig), operand.odd.eq(~field[0]), operand.exp.eq(field)]

        m.submodules.normalise = normalise = Module()
        field = BF16.exp_of(self.i)
        normalise.d.comb += unpacked(BF16.man_of(self.i), field + positive)
        with normalise.If(field == 0):
            for zeros in leading_zero_cases(normalise, BF16.man_of(self.i)):
                sig = self.i[:man] << (zeros + 1)
                normalise.d.comb += unpacked(sig, Const(positive - zeros))

        m.submodules.seed = seed = Module()
        index = Cat(operand.man, operand.odd)
        SEED.look_up(seed, index, line)

        m.submodules.estimate = estimate = Module()
        estimate.d.comb += estimated.eq(SEED.evaluate(index, line))

        m.submodules.round = rounding = Module()
        radicand = Cat(Const(0, man), operand.man, Const(1, 1)) << operand.odd
        low = radicand > estimated * (estimated + 1)
        root = (estimated + low)[:precision]
        # (e - positive - bias - odd) / 2 + bias, in which odd makes the sum even.
        exp = ((operand.exp + (BF16.bias - positive)) - operand.odd)[1:]
        sign = BF16.sign_of(self.i)
        size = BF16.magnitude_of(self.i)
        rounding.d.comb += self.o.eq(Cat(root[:man], exp[: BF16.exp]))
        with rounding.If(size == 0):
            rounding.d.comb += self.o.eq(self.i)
        with rounding.Elif(sign | (size > BF16.inf)):
            rounding.d.comb += self.o.eq(BF16.nan)
        with rounding.Elif(size == BF16.inf):
            rounding.d.comb += self.o.eq(BF16.inf)
