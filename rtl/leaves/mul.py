"""Floating-point multiplication."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .format import BF16, FP32, FloatFormat, fields
from .leading import leading_zero_cases
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

    Three steps, each of which reads only the signal of the one before it (see FloatAdd)::

        a, b --multiply--> product, exp, sign, nan
             --lead--> frame, shift, exp, sign, nan --round--> o

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
            latency=latency,
            in_fmt=in_fmt,
            out_fmt=out_fmt,
            b_fmt=b_fmt,
        )

    def _datapath(self, m: Module) -> None:
        a_fmt, b_fmt, fmt = self._a_fmt, self._b_fmt, self._out_fmt
        bits = a_fmt.precision + b_fmt.precision  # of the product
        frame_bits = max(bits, fmt.precision + 2)  # the product with room for rounding
        exp_bits = fmt.exp + 1
        offset = fmt.bias - 1
        shift_bits = bits_for(bits - 1)
        multiplied = Signal(bits + exp_bits + 2)
        led = Signal(frame_bits + shift_bits + exp_bits + 2)

        m.submodules.multiply = multiply = Module()
        a, b = self.a, self.b
        sign = a_fmt.sign_of(a) ^ b_fmt.sign_of(b)
        exp = a_fmt.biased_exp_of(a) + b_fmt.biased_exp_of(b)
        with multiply.If((a_fmt.exp_of(a) == fmt.exp_max) | (b_fmt.exp_of(b) == fmt.exp_max)):
            # Infinity is a normal number of an exponent out of range.
            a_size, b_size = a_fmt.magnitude_of(a), b_fmt.magnitude_of(b)
            nan = (a_size > a_fmt.inf) | (b_size > b_fmt.inf) | (a_size == 0) | (b_size == 0)
            most = Const((1 << exp_bits) - 1, exp_bits)
            multiply.d.comb += multiplied.eq(
                Cat(Const(1 << (bits - 1), bits), most, sign & ~nan, nan)
            )
        with multiply.Else():
            product = a_fmt.significand_of(a) * b_fmt.significand_of(b)
            multiply.d.comb += multiplied.eq(Cat(product, exp, sign))

        # Normalise to the left by the leading zeros, but not below the least exponent (the bit
        # `stop` sees to that); or to the right, collecting the lost bits, if it is below anyway.
        m.submodules.lead = lead = Module()
        product, exp = fields(multiplied, bits, exp_bits)
        flags = multiplied[bits + exp_bits :]
        whole = Cat(Const(0, frame_bits - bits), product)
        least = Const((offset + 1) << shift_bits, shift_bits + exp_bits)
        with lead.If(exp <= offset):
            deficit = (offset + 1 - exp)[:exp_bits]
            right = Mux(deficit < frame_bits, deficit, frame_bits)[: bits_for(frame_bits)]
            kept = whole >> right
            lost = (kept << right)[:frame_bits] != whole
            lead.d.comb += led.eq(Cat(kept | lost, least, flags))
        with lead.Else():
            room = (exp - (offset + 1))[:shift_bits]
            stop = Mux(exp <= offset + bits, (1 << (bits - 1)) >> room, 0)[:bits]
            lead.d.comb += led.eq(Cat(whole, least, flags))
            for zeros in leading_zero_cases(lead, product | stop):
                lead.d.comb += led.eq(Cat(whole, Const(zeros, shift_bits), exp, flags))

        # The hidden bit adds 1 to the exponent field, unless the result is subnormal or zero.
        m.submodules.round = rounding = Module()
        frame, shift, exp, sign, nan = fields(led, frame_bits, shift_bits, exp_bits, 1, 1)
        norm = (frame << shift)[:frame_bits]
        low = frame_bits - fmt.precision
        rounded = (norm + ((1 << (low - 1)) - 1) + norm[low])[low:]
        field = (exp - shift)[:exp_bits]
        with rounding.If(field >= fmt.exp_max + offset):
            rounding.d.comb += self.o.eq(fmt.signed(fmt.inf, sign) | (nan << (fmt.man - 1)))
        with rounding.Else():
            field = (field - (offset + 1))[: fmt.exp]
            word = (rounded + Cat(Const(0, fmt.man), field))[: fmt.width - 1]
            rounding.d.comb += self.o.eq(Cat(word, sign))
