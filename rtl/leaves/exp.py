"""Correctly rounded BF16 exponential."""

from math import isqrt

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from .format import BF16
from .leaf import Leaf

__all__ = ["BF16Exp"]

CLAMP = 0x42B0  # 88.0
LOG2E = 12_102_203  # round(log2(e) * 2^23): with an 8-bit significand, a product of 32 bits
FRACTION_BITS = 24  # of x * log2(e)
SEGMENT_BITS = 5  # 32 parabolas
OFFSET_BITS = 14  # position within a segment, for the linear coefficient
SQUARE_BITS = 8  # the same, for the quadratic one
RESULT_BITS = 18  # fraction of 2^f
# Half a unit for each of the two products that are truncated on the way to the sum.
TRUNCATION = 1


def power_of_two(numerator: int, log_denominator: int, scale: int) -> int:
    """floor(2^(numerator / 2^log_denominator) * 2^scale), by repeated exact square roots."""
    value = 1 << (numerator + (scale << log_denominator))
    for _ in range(log_denominator):
        value = isqrt(value)
    return value


def parabolas() -> list[tuple[int, int, int]]:
    """c0, c1, c2 for each segment: c0 + c1 t + c2 t^2 meets 2^f at t = 0, 1/2 and 1."""
    guard = 40
    half = 1 << (guard - 1)
    table = []
    for segment in range(1 << SEGMENT_BITS):
        left, middle, right = (
            power_of_two(2 * segment + k, SEGMENT_BITS + 1, RESULT_BITS + guard) for k in range(3)
        )
        exact = left, 4 * middle - 3 * left - right, 2 * (left + right - 2 * middle)
        c0, c1, c2 = ((value + half) >> guard for value in exact)
        table.append((c0, c1, c2))
    return table


PARABOLAS = parabolas()
C0_BITS, C1_BITS, C2_BITS = (max(c).bit_length() for c in zip(*PARABOLAS, strict=True))


class BF16Exp(Leaf):
    """``o`` = e^x of ``i`` clamped to [-88, 88], correctly rounded for all 65,536 inputs.

    The clamp includes the infinities, so the result is never 0, never infinite, and subnormal only
    for the two least arguments, -87.5 and -88. NaN gives the canonical NaN.

    Members
    -------
    i : In(16)
    o : Out(16)

    e^x = 2^n * 2^f, with n + f = x * log2(e) in fixed point and 2^f on one of 32 parabolas. The
    error is near 2^-17, and the closest result stands 2^-24 from a rounding boundary (x = 6.84):
    correct rounding is a fact of these constants, proven by trying every input (tests). Steps::

        i --clamp--> |x| --reduce--> n, f --table--> c0, c1, c2 --power--> 2^f --round--> o
    """

    i: Value
    o: Signal

    def __init__(self, *, latency: int = 0) -> None:
        super().__init__({"i": In(BF16.width), "o": Out(BF16.width)}, latency=latency)

    def _datapath(self, m: Module) -> None:
        clamped = Signal(BF16.width - 1)
        product_bits = FRACTION_BITS + BF16.exp
        reduced = Signal(product_bits)  # n and f
        curve = Signal(data.StructLayout({"c0": C0_BITS, "c1": C1_BITS, "c2": C2_BITS}))
        power = Signal(RESULT_BITS + 2)  # 2^f in [1, 2], both ends included

        size = BF16.magnitude_of(self.i)
        m.submodules.clamp = clamp = Module()
        clamp.d.comb += clamped.eq(size)
        with clamp.If(size > CLAMP):
            clamp.d.comb += clamped.eq(CLAMP)

        # The product stands at the fraction of the largest exponent, that of the clamp.
        m.submodules.reduce = reduce = Module()
        right = (CLAMP >> BF16.man) - BF16.exp_of(clamped)
        product = (BF16.significand_of(clamped) * LOG2E)[:product_bits]
        scaled = product >> Mux(right < 31, right, 31)[:5]
        reduce.d.comb += reduced.eq(scaled)
        with reduce.If(BF16.sign_of(self.i)):
            reduce.d.comb += reduced.eq(-scaled)

        m.submodules.table = table = Module()
        fraction = reduced[:FRACTION_BITS]
        with table.Switch(fraction[-SEGMENT_BITS:]):
            for segment, (c0, c1, c2) in enumerate(PARABOLAS):
                with table.Case(segment):
                    table.d.comb += Value.cast(curve).eq(
                        Cat(Const(c0, C0_BITS), Const(c1, C1_BITS), Const(c2, C2_BITS))
                    )

        m.submodules.power = evaluate = Module()
        offset = fraction[-SEGMENT_BITS - OFFSET_BITS : -SEGMENT_BITS]
        slope = curve.c1 + ((curve.c2 * offset[-SQUARE_BITS:]) >> SQUARE_BITS)
        evaluate.d.comb += power.eq(curve.c0 + ((slope * offset) >> OFFSET_BITS) + TRUNCATION)

        m.submodules.round = rounding = Module()
        n = reduced[FRACTION_BITS:]
        low = RESULT_BITS - BF16.man
        # The hidden bit adds 1 to the exponent field. Only n = -bias is subnormal, by one place.
        # No result is half-way, so that adding half a unit rounds to nearest.
        rounded = (power + (1 << (low - 1)))[low:]
        field = (n + (BF16.bias - 1))[: BF16.exp]
        rounding.d.comb += self.o.eq((rounded + Cat(Const(0, BF16.man), field))[: BF16.width - 1])
        with rounding.If(n == (1 << BF16.exp) - BF16.bias):
            rounding.d.comb += self.o.eq((power + (1 << low))[low + 1 :])
        with rounding.If(size > BF16.inf):
            rounding.d.comb += self.o.eq(BF16.nan)
