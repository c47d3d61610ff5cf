"""Correctly rounded BF16 reciprocal."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from .format import BF16
from .leading import leading_zero_cases
from .leaf import Leaf
from .seed import LinearSeed

__all__ = ["BF16Reciprocal"]

HIDDEN = BF16.hidden
# For a significand s in [128, 256): the quotient 2^16 / s in (256, 512], with one bit below the
# last place of the result; of the rest of the division only "exact or not" matters.
QUOTIENTS = [(1 << 16) // s for s in range(HIDDEN, 2 * HIDDEN)]
SEED = LinearSeed.fit(QUOTIENTS, segments=16, fraction=4)


class BF16Reciprocal(Leaf):
    """``o`` = 1 / ``i``, correctly rounded for all 65,536 inputs, subnormals kept on both sides.

    1/+-0 = +-inf, 1/+-inf = +-0, NaN gives the canonical NaN; inputs of at most 2^-128 overflow to
    infinity.

    Members
    -------
    i : In(16)
    o : Out(16)

    A line from a table of 16 estimates the quotient, never too high and at most one too low; one
    multiplication by the divisor corrects it. Four steps, each reading the one before::

        i --normalise--> sig, exp --seed--> line --estimate--> quotient --round--> o
    """

    i: Value
    o: Signal

    def __init__(self, *, latency: int = 0) -> None:
        super().__init__({"i": In(BF16.width), "o": Out(BF16.width)}, latency=latency)

    def _datapath(self, m: Module) -> None:
        man, precision = BF16.man, BF16.precision
        # The exponent field of the result is 253 less that of the operand. It is kept plus 2, since
        # it can be -1; for an operand of zero it overflows.
        operand = Signal(data.StructLayout({"man": man, "exp": BF16.exp + 1}))
        line = Signal(2 * SEED.bits)
        estimated = Signal(precision + 1)

        m.submodules.normalise = normalise = Module()
        offset = 2 * BF16.bias - 1 + 2
        field = BF16.exp_of(self.i)
        normalise.d.comb += [
            operand.man.eq(BF16.man_of(self.i)),
            operand.exp.eq(offset - field),
        ]
        with normalise.If(field == 0):
            normalise.d.comb += operand.exp.eq(offset + man)
            for zeros in leading_zero_cases(normalise, BF16.man_of(self.i)):
                normalise.d.comb += [
                    operand.man.eq(self.i[:man] << (zeros + 1)),
                    operand.exp.eq(offset + zeros),
                ]

        m.submodules.seed = seed = Module()
        SEED.look_up(seed, operand.man, line)

        m.submodules.estimate = estimate = Module()
        estimate.d.comb += estimated.eq(SEED.evaluate(operand.man, line))

        m.submodules.round = rounding = Module()
        divisor = Cat(operand.man, Const(1, 1))
        exact = operand.man == 0
        low = ((estimated + 1) * divisor)[: 2 * precision + 2] <= (1 << 2 * precision)
        quotient = Mux(exact, HIDDEN * 2, estimated + low)[: precision + 1]
        exp = operand.exp + exact
        # A subnormal result is one or two places further right; it is not exact, so no tie counts.
        right = Mux(exp > 2, 0, 3 - exp)[:2]
        shifted = quotient >> right
        word = shifted[1:] + shifted[0] + (Mux(exp > 2, exp - 3, 0)[: BF16.exp] << man)
        size = BF16.magnitude_of(self.i)
        sign = BF16.sign_of(self.i)
        rounding.d.comb += self.o.eq(Cat(word[: BF16.width - 1], sign))
        with rounding.If(size > BF16.inf):
            rounding.d.comb += self.o.eq(BF16.nan)
        with rounding.Elif(size == BF16.inf):
            rounding.d.comb += self.o.eq(BF16.signed(0, sign))
        with rounding.Elif(exp >= BF16.exp_max + 2):
            rounding.d.comb += self.o.eq(BF16.signed(BF16.inf, sign))
