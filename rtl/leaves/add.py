"""Floating-point addition."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .format import FloatFormat, fields
from .leading import leading_zero_cases
from .leaf import Leaf

__all__ = ["FloatAdd"]


class FloatAdd(Leaf):
    """``o`` = ``a`` + ``b``, rounded once to nearest even, subnormals kept (IEEE 754-2019, 5.4.1).

    x - x = +0; inf - inf and any NaN give the canonical NaN. Subtraction is addition with the
    sign of ``b`` inverted by the user.

    Members
    -------
    a, b : In(fmt.width)
    o : Out(fmt.width)

    Four steps. Each is a module that reads only the one signal of the step before it (a few values
    pass through for that reason): Amaranth's simulator runs a module whole for every change of an
    input, so that in this form every step is run once, and every signal costs it about as much as
    ten operations. No field is wider than 32 bits::

        a, b --order--> large, sig, gap, opposite --align--> total, exp, sign, nan
             --lead--> the same and shift --round--> o

    ``total`` is the sum in units of 1/8 of the larger operand's last place: a carry bit, the
    significand, and three bits below it, the last of which is sticky (an OR of all it replaces).
    """

    a: Value
    b: Value
    o: Signal

    def __init__(self, fmt: FloatFormat, *, latency: int = 0) -> None:
        self._fmt = fmt
        super().__init__(
            {"a": In(fmt.width), "b": In(fmt.width), "o": Out(fmt.width)}, latency=latency, fmt=fmt
        )

    def _datapath(self, m: Module) -> None:
        fmt, precision = self._fmt, self._fmt.precision
        bits = precision + 4  # of total
        shift_bits = bits_for(bits - 1)
        ordered = Signal(fmt.width + precision + fmt.exp + 1)
        aligned = Signal(bits + fmt.exp + 2)
        led = Signal(bits + fmt.exp + 2 + shift_bits)

        # Ties go to b if a is negative, so that the sign of a zero difference is positive.
        m.submodules.order = order = Module()
        a, b = self.a, self.b
        opposite = fmt.sign_of(a) ^ fmt.sign_of(b)
        with order.If(fmt.magnitude_of(b) + fmt.sign_of(a) > fmt.magnitude_of(a)):
            gap = (fmt.biased_exp_of(b) - fmt.biased_exp_of(a))[: fmt.exp]
            order.d.comb += ordered.eq(Cat(b, fmt.significand_of(a), gap, opposite))
        with order.Else():
            gap = (fmt.biased_exp_of(a) - fmt.biased_exp_of(b))[: fmt.exp]
            order.d.comb += ordered.eq(Cat(a, fmt.significand_of(b), gap, opposite))

        m.submodules.align = align = Module()
        large, sig, gap, opposite = fields(ordered, fmt.width, precision, fmt.exp, 1)
        augend, addend = fmt.significand_of(large) << 3, sig << 3
        shift, far = gap[:shift_bits], gap[shift_bits:] != 0
        lost = (addend & ((1 << shift) - 1)[: bits - 1]) != 0
        # An addend that is far below the last place, even of half the augend, cannot change it.
        part = Mux(far, 0, (addend >> shift) | lost)
        sign = fmt.sign_of(large)
        total = Mux(opposite, (augend - part)[:bits], augend + part)
        with align.If(fmt.exp_of(large) == fmt.exp_max):
            # Infinity is a normal number of this exponent.
            nan = (fmt.man_of(large) != 0) | (opposite & (gap == 0) & (sig == fmt.hidden))
            align.d.comb += aligned.eq(
                Cat(Const(1 << (bits - 1), bits), Const(fmt.exp_max, fmt.exp), sign & ~nan, nan)
            )
        with align.Else():
            align.d.comb += aligned.eq(Cat(total, fmt.biased_exp_of(large), sign))

        # The shift is the leading zeros of total, but not more than exp: there the result becomes
        # subnormal. The bit `stop` sees to that.
        m.submodules.lead = lead = Module()
        total, exp = fields(aligned, bits, fmt.exp)
        stop = Mux(exp < bits, (1 << (bits - 1)) >> exp[:shift_bits], 0)
        for zeros in leading_zero_cases(lead, total | stop):
            lead.d.comb += led.eq(Cat(aligned, Const(zeros, shift_bits)))

        # The hidden bit adds 1 to the exponent field, unless the result is subnormal or zero.
        m.submodules.round = rounding = Module()
        total, exp, sign, nan, shift = fields(led, bits, fmt.exp, 1, 1, shift_bits)
        norm = (total << shift)[:bits]
        rounded = (norm + 7 + norm[4])[4:]
        field = (exp - shift)[: fmt.exp]
        with rounding.If(field >= fmt.exp_max - 1):
            rounding.d.comb += self.o.eq(fmt.signed(fmt.inf, sign) | (nan << (fmt.man - 1)))
        with rounding.Else():
            word = (rounded + Cat(Const(0, fmt.man), field))[: fmt.width - 1]
            rounding.d.comb += self.o.eq(Cat(word, sign))
