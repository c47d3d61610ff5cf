"""Floating-point addition."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .format import FloatFormat
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

    Four steps. Each is a module that reads only the signals of the one before it (a few values pass
    through for that reason): Amaranth's simulator runs a module whole for every change of an
    input, so that in this form every step is run once. No conditional value is wider than 32 bits::

        a, b --order--> large, small, gap, opposite --align--> total, exp, sign, nan
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
        large = Signal(fmt.width)
        small = Signal(precision + fmt.exp)  # significand and gap
        opposite = Signal()
        total = Signal(bits)
        status = Signal(fmt.exp + 2)  # exp, sign, nan
        held_total = Signal(bits)
        held_status = Signal(shift_bits + fmt.exp + 2)  # shift and status

        # Ties go to b if a is negative, so that the sign of a zero difference is positive.
        m.submodules.order = order = Module()
        a, b = self.a, self.b
        order.d.comb += opposite.eq(fmt.sign_of(a) ^ fmt.sign_of(b))
        with order.If(fmt.magnitude_of(b) + fmt.sign_of(a) > fmt.magnitude_of(a)):
            gap = (fmt.biased_exp_of(b) - fmt.biased_exp_of(a))[: fmt.exp]
            order.d.comb += [large.eq(b), small.eq(Cat(fmt.significand_of(a), gap))]
        with order.Else():
            gap = (fmt.biased_exp_of(a) - fmt.biased_exp_of(b))[: fmt.exp]
            order.d.comb += [large.eq(a), small.eq(Cat(fmt.significand_of(b), gap))]

        m.submodules.align = align = Module()
        sig, gap = small[:precision], small[precision:]
        augend, addend = fmt.significand_of(large) << 3, sig << 3
        shift, far = gap[:shift_bits], gap[shift_bits:] != 0
        lost = (addend & ((1 << shift) - 1)[: bits - 1]) != 0
        # An addend that is far below the last place, even of half the augend, cannot change it.
        part = Mux(far, 0, (addend >> shift) | lost)
        sign = fmt.sign_of(large)
        align.d.comb += [
            total.eq(Mux(opposite, (augend - part)[:bits], augend + part)),
            status.eq(Cat(fmt.biased_exp_of(large), sign)),
        ]
        with align.If(fmt.exp_of(large) == fmt.exp_max):
            # Infinity is a normal number of this exponent.
            nan = (fmt.man_of(large) != 0) | (opposite & (gap == 0) & (sig == fmt.hidden))
            align.d.comb += [
                total.eq(1 << (bits - 1)),
                status.eq(Cat(Const(fmt.exp_max, fmt.exp), sign & ~nan, nan)),
            ]

        # The shift is the leading zeros of total, but not more than exp: there the result becomes
        # subnormal. The bit `stop` sees to that.
        m.submodules.lead = lead = Module()
        exp = status[: fmt.exp]
        stop = Mux(exp < bits, (1 << (bits - 1)) >> exp[:shift_bits], 0)
        lead.d.comb += [held_total.eq(total), held_status[-2:].eq(status[-2:])]
        for zeros in leading_zero_cases(lead, total | stop):
            lead.d.comb += held_status[:-2].eq(Cat(Const(zeros, shift_bits), exp))

        # The hidden bit adds 1 to the exponent field, unless the result is subnormal or zero.
        m.submodules.round = rounding = Module()
        shift, exp, sign, nan = (
            held_status[:shift_bits],
            held_status[shift_bits:-2],
            held_status[-2],
            held_status[-1],
        )
        norm = (held_total << shift)[:bits]
        rounded = (norm + 7 + norm[4])[4:]
        field = (exp - shift)[: fmt.exp]
        with rounding.If(field >= fmt.exp_max - 1):
            rounding.d.comb += self.o.eq(fmt.signed(fmt.inf, sign) | (nan << (fmt.man - 1)))
        with rounding.Else():
            word = (rounded + Cat(Const(0, fmt.man), field))[: fmt.width - 1]
            rounding.d.comb += self.o.eq(Cat(word, sign))
