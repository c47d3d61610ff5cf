"""Floating-point addition."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from .format import FloatFormat
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

    Four steps, each evaluated once per change of the operands in Amaranth's simulator, because each
    reads only signals of the step before::

        a, b --order--> large, small --align--> total, exp, sign, nan
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

    def datapath(self, m: Module) -> None:
        fmt = self._fmt
        bits = fmt.precision + 4  # of total
        large, small = Signal(fmt.width), Signal(fmt.width)
        # Steps hand over one packed signal each: one update in a simulator, free in hardware.
        packed = bits + fmt.exp + 2
        aligned, led = Signal(packed), Signal(packed + 5)

        def fields(step: Signal) -> tuple[Value, Value, Value, Value]:
            e = bits + fmt.exp
            return step[:bits], step[bits:e], step[e], step[e + 1]

        m.submodules.order = order = Module()
        order.d.comb += [large.eq(self.a), small.eq(self.b)]
        with order.If(fmt.magnitude_of(self.b) > fmt.magnitude_of(self.a)):
            order.d.comb += [large.eq(self.b), small.eq(self.a)]

        m.submodules.align = align = Module()
        exp = fmt.biased_exp_of(large)
        gap = (exp - fmt.biased_exp_of(small))[:fmt.exp]
        shift = Mux(gap < bits, gap, bits - 1)[:5]
        big = Cat(Const(0, 3), fmt.significand_of(large))
        whole = Cat(Const(0, 3), fmt.significand_of(small))
        kept = whole >> shift
        part = kept | ((kept << shift)[:bits] != whole)
        opposite = fmt.sign_of(large) ^ fmt.sign_of(small)
        cancels = opposite & (fmt.magnitude_of(large) == fmt.magnitude_of(small))
        total = Mux(opposite, big - part, big + part)[:bits]
        sign = fmt.sign_of(large) & ~cancels
        nan = (fmt.man_of(large) != 0) | cancels
        align.d.comb += aligned.eq(Cat(total, exp, sign, 0))
        with align.If(fmt.exp_of(large) == fmt.exp_max):
            top = Const(1 << (bits - 1), bits), Const(fmt.exp_max - 1, fmt.exp)
            align.d.comb += aligned.eq(Cat(*top, sign & ~nan, nan))

        # Leading zeros of total, but not more than exp: there the result is subnormal.
        m.submodules.lead = lead = Module()
        total, exp, _, _ = fields(aligned)
        stop = Mux(exp < bits, (1 << (bits - 1)) >> exp[:5], 0)[:bits]
        with lead.Switch(total | stop):
            for zeros in range(bits):
                with lead.Case("0" * zeros + "1" + "-" * (bits - 1 - zeros)):
                    lead.d.comb += led.eq(Cat(aligned, Const(zeros, 5)))
            with lead.Default():
                lead.d.comb += led.eq(aligned)

        m.submodules.round = rounding = Module()
        total, exp, sign, nan = fields(led)
        shift = led[packed:]
        norm = (total << shift)[:bits]
        up = (norm[:4] + norm[4]) > 8
        exp = (exp + 1 - shift)[:fmt.exp]
        word = (Cat(norm[4:-1], exp) + up)[:fmt.width - 1]
        with rounding.If(~norm[-1]):
            # Zero or a subnormal number, which a sum always represents exactly.
            rounding.d.comb += self.o.eq(Cat(norm[4:-1], Const(0, fmt.exp), sign))
        with rounding.Elif(exp == fmt.exp_max):
            quiet = nan << (fmt.man - 1)
            rounding.d.comb += self.o.eq(Cat(quiet[:fmt.man], Const(fmt.exp_max, fmt.exp), sign))
        with rounding.Else():
            rounding.d.comb += self.o.eq(Cat(word, sign))
