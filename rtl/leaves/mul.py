"""Floating-point multiplication."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .format import BF16, FP32, FloatFormat
from .leaf import Leaf

__all__ = ["FloatMul"]


class FloatMul(Leaf):
    """``o`` = ``a`` * ``b``, the exact product rounded once to ``out_fmt`` (IEEE 754-2019, 5.4.1).

    To nearest even, subnormals kept on both sides; inf * 0 and any NaN give the canonical NaN. BF16
    to FP32 is exact unless the result under- or overflows. ``b_fmt`` is ``in_fmt`` unless
    given: ``FloatMul(FP32, FP32, b_fmt=BF16)`` scales a sum. Exponent ranges must be equal.

    Members
    -------
    a : In(in_fmt.width)
    b : In(b_fmt.width)
    o : Out(out_fmt.width)

    Three steps, each evaluated once per change of the operands in Amaranth's simulator::

        a, b --multiply--> product, exp, sign, nan --lead--> frame, the rest, shift --round--> o

    ``exp`` is the exponent field that belongs to the top bit of the product, plus ``offset``.
    """

    a: Value
    b: Value
    o: Signal

    def __init__(
        self,
        in_fmt: FloatFormat = BF16,
        out_fmt: FloatFormat = FP32,
        *,
        b_fmt: FloatFormat | None = None,
        latency: int = 0,
    ) -> None:
        b_fmt = in_fmt if b_fmt is None else b_fmt
        if not in_fmt.exp == b_fmt.exp == out_fmt.exp:
            raise ValueError(
                f"FloatMul needs one exponent range: {in_fmt.name}, {b_fmt.name}, {out_fmt.name}"
            )
        self._a_fmt, self._b_fmt, self._out_fmt = in_fmt, b_fmt, out_fmt
        super().__init__(
            {"a": In(in_fmt.width), "b": In(b_fmt.width), "o": Out(out_fmt.width)},
            latency=latency, in_fmt=in_fmt, out_fmt=out_fmt, b_fmt=b_fmt,
        )

    def datapath(self, m: Module) -> None:
        a_fmt, b_fmt, fmt = self._a_fmt, self._b_fmt, self._out_fmt
        bits = a_fmt.precision + b_fmt.precision  # of the product
        frame_bits = max(bits, fmt.precision + 2)  # the product with room for rounding
        exp_bits = fmt.exp + 1
        offset = fmt.bias - 1
        # Steps hand over one packed signal each: one update in a simulator, free in hardware.
        multiplied = Signal(bits + exp_bits + 2)
        zeros_bits = bits_for(bits - 1)
        led = Signal(frame_bits + exp_bits + 2 + zeros_bits)

        def fields(step: Signal, bits: int) -> tuple[Value, Value, Value, Value, Value]:
            e = bits + exp_bits
            return step[:bits], step[bits:e], step[e], step[e + 1], step[e + 2:]

        m.submodules.multiply = multiply = Module()
        product = a_fmt.significand_of(self.a) * b_fmt.significand_of(self.b)
        exp = a_fmt.biased_exp_of(self.a) + b_fmt.biased_exp_of(self.b)
        sign = a_fmt.sign_of(self.a) ^ b_fmt.sign_of(self.b)
        nan = (
            (a_fmt.magnitude_of(self.a) > a_fmt.inf) | (b_fmt.magnitude_of(self.b) > b_fmt.inf)
            | (a_fmt.magnitude_of(self.a) == 0) | (b_fmt.magnitude_of(self.b) == 0)
        )
        special = (a_fmt.exp_of(self.a) == fmt.exp_max) | (b_fmt.exp_of(self.b) == fmt.exp_max)
        multiply.d.comb += multiplied.eq(Cat(product, exp[:exp_bits], sign, 0))
        with multiply.If(special):
            # Infinity is the overflow of an exponent out of range.
            top = Const(1 << (bits - 1), bits), Const((1 << exp_bits) - 1, exp_bits)
            multiply.d.comb += multiplied.eq(Cat(*top, sign & ~nan, nan))

        # Normalise, to the left by the leading zeros, but not below the least exponent; or to the
        # right, collecting the lost bits, when the exponent is below it anyway.
        m.submodules.lead = lead = Module()
        product, exp, sign, nan, _ = fields(multiplied, bits)
        frame = Cat(Const(0, frame_bits - bits), product)
        room = (exp - offset - 1)[:zeros_bits]
        stop = Mux(exp <= offset + bits, (1 << (bits - 1)) >> room, 0)[:bits]
        with lead.If(exp <= offset):
            deficit = (offset + 1 - exp)[:exp_bits]
            right = Mux(deficit < frame_bits, deficit, frame_bits)[:bits_for(frame_bits)]
            kept = frame >> right
            lost = (kept << right)[:frame_bits] != frame
            lead.d.comb += led.eq(Cat(kept | lost, Const(0, exp_bits), sign, nan))
        with lead.Else():
            with lead.Switch(product | stop):
                for zeros in range(bits):
                    with lead.Case("0" * zeros + "1" + "-" * (bits - 1 - zeros)):
                        lead.d.comb += led.eq(Cat(frame, exp, sign, nan, Const(zeros, zeros_bits)))
                with lead.Default():
                    lead.d.comb += led.eq(Cat(frame, exp, sign, nan))

        m.submodules.round = rounding = Module()
        frame, exp, sign, nan, left = fields(led, frame_bits)
        norm = (frame << left)[:frame_bits]
        low = frame_bits - fmt.precision
        up = (norm[:low] + norm[low]) > (1 << (low - 1))
        exp = (exp - offset - left)[:exp_bits]
        with rounding.If(norm[-1] & (exp >= fmt.exp_max)):
            quiet = nan << (fmt.man - 1)
            rounding.d.comb += self.o.eq(Cat(quiet[:fmt.man], Const(fmt.exp_max, fmt.exp), sign))
        with rounding.Else():
            field = Mux(norm[-1], exp, 0)[:fmt.exp]
            word = (Cat(norm[low:-1], field) + up)[:fmt.width - 1]
            rounding.d.comb += self.o.eq(Cat(word, sign))
