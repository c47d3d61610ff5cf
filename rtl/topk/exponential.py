"""e^-a with a wide result, for the softmax."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rtl.leaves import FP32
from rtl.leaves.exp import (
    C0_BITS,
    C1_BITS,
    C2_BITS,
    FRACTION_BITS,
    LOG2E,
    OFFSET_BITS,
    PARABOLAS,
    RESULT_BITS,
    SEGMENT_BITS,
    SQUARE_BITS,
)

__all__ = ["FallingExp"]

# At an argument of this power of two, and above, nothing is left of the result.
VANISHING = 7
# Fraction bits of LOG2E.
LOG2E_BITS = 23
# The exponent field of the arguments just below it: A is their significand as it is.
LARGEST_FIELD = FP32.bias + VANISHING - 1
ARGUMENT_FRACTION = FP32.precision - VANISHING
POWER_BITS = 8


class FallingExp(wiring.Component):
    """``o`` = e^-a, an FP32 number of 19 significant bits, for an FP32 magnitude ``a``.

    The relative error is below 2^-15.5, of which the parabola's is 2^-16.3 and the cut of ``a``
    2^-17; below 2^-126 up to 2^-149 comes on top. e^-0 is 1, and 0 comes of infinity.

    Steps, exactly; ``>>`` drops bits::

        A = a in units of 2^-17, cut off there; from 128 on the result is 0
        Q = -((A * 12102203) >> 16)         a * -log2(e) in units of 2^-24, two's complement
        n, f = Q >> 24, Q mod 2^24          e^-a = 2^n * 2^(f / 2^24), n <= 0
        t, u = (f >> 5) mod 2^14, (f >> 11) mod 2^8
        P = c0 + (((c1 + ((c2 * u) >> 8)) * t) >> 14)
        o = P * 2^(n - 18), an FP32 subnormal cut off at its last place

    c0, c1, c2 belong to segment f >> 19: the parabola through 2^x at the segment's start, middle
    and end, c0 + c1 s + c2 s^2 for s from 0 to 1, each coefficient rounded to units of 2^-18.
    P lies in [2^18, 2^19).

    Two stages, a result per cycle: with ``reduce``, ``a`` becomes Q (cycle 0); with ``evaluate``, Q
    becomes ``o`` (cycle 1); ``o`` is there in cycle 2.

    Members
    -------
    reduce, evaluate : In(1)
    a : In(31)
    o : Out(31)
        Magnitudes, FP32 words without sign.
    """

    reduce: Value
    evaluate: Value
    a: Value
    o: Signal

    def __init__(self) -> None:
        size = FP32.width - 1
        super().__init__({"reduce": In(1), "evaluate": In(1), "a": In(size), "o": Out(size)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        reduced = Signal(FRACTION_BITS + POWER_BITS)  # Q
        next_reduced = Signal.like(reduced)
        curve_bits = C0_BITS + C1_BITS + C2_BITS
        curve = Signal(data.StructLayout({"c0": C0_BITS, "c1": C1_BITS, "c2": C2_BITS}))
        power = Signal(RESULT_BITS + 1)  # P
        next_o = Signal.like(self.o)

        m.submodules.reduce_argument = reduction = Module()
        size = Cat(self.a, Const(0, 1))
        field = FP32.exp_of(size)
        places = (LARGEST_FIELD - field)[: FP32.exp]
        argument = FP32.significand_of(size) >> Mux(places < 31, places, 31)[:5]
        product = (argument * LOG2E) >> (ARGUMENT_FRACTION + LOG2E_BITS - FRACTION_BITS)
        reduction.d.comb += next_reduced.eq(-product)
        with reduction.If(field > LARGEST_FIELD):
            # Below the last place of the least subnormal.
            reduction.d.comb += next_reduced.eq(-(160 << FRACTION_BITS))
        with m.If(self.reduce):
            m.d.sync += reduced.eq(next_reduced)

        m.submodules.table = table = Module()
        fraction = reduced[:FRACTION_BITS]
        with table.Switch(fraction[-SEGMENT_BITS:]):
            for segment, (c0, c1, c2) in enumerate(PARABOLAS):
                with table.Case(segment):
                    table.d.comb += Value.cast(curve).eq(
                        Const(c0 | c1 << C0_BITS | c2 << (C0_BITS + C1_BITS), curve_bits)
                    )

        m.submodules.power = evaluation = Module()
        offset = fraction[-SEGMENT_BITS - OFFSET_BITS : -SEGMENT_BITS]
        slope = curve.c1 + ((curve.c2 * offset[-SQUARE_BITS:]) >> SQUARE_BITS)
        evaluation.d.comb += power.eq(curve.c0 + ((slope * offset) >> OFFSET_BITS))

        # The hidden bit adds 1 to the exponent field. A field below 0 is the places to the right.
        m.submodules.assemble = assemble = Module()
        field = (reduced[FRACTION_BITS:] + (FP32.bias - 1))[:POWER_BITS]
        significand = power << (FP32.man - RESULT_BITS)
        assemble.d.comb += next_o.eq(significand + Cat(Const(0, FP32.man), field))
        with assemble.If(field[-1]):
            assemble.d.comb += next_o.eq(significand >> (-field)[:POWER_BITS])
        with m.If(self.evaluate):
            m.d.sync += self.o.eq(next_o)
        return m
