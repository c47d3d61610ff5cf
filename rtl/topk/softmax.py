"""The weights of the selected experts."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from rtl.leaves import BF16, FP32, FloatAdd, FloatMul

from .exponential import FallingExp
from .ranking import KEY_OF_MINUS_INF, logit_of

__all__ = ["QUOTIENT_BITS", "SelectedSoftmax"]

# Steps of the division: a quotient in (2^16, 2^17].
QUOTIENT_BITS = 18


class SelectedSoftmax(wiring.Component):
    """The softmax over up to ``size`` selected logits, within 1 BF16 ulp of the exact one.

    Steps, exactly, for logits l_0 >= l_1 >= ... >= l_(k-1) that are neither NaN nor -0.0. FP32
    operations round to nearest even and keep subnormals::

        d_i = l_i - l_0, an FP32 subtraction; 0 where l_i = l_0, for infinities too
        e_i = e^-|d_i|, as `FallingExp` computes it
        s   = ((e_0 + e_1) + e_2) + ..., FP32 additions
        r   = floor(2^40 / S) * 2^(110 - x), for s = S * 2^(x - 150), 2^23 <= S < 2^24, 127 <= x
        w_i = e_i * r, the exact product rounded once to BF16
        and r = 0 if l_0 = -inf, so that then all weights are 0

    So equal logits have equal weights, and of a +inf that leads, all +inf have e_i = 1 and the rest
    0.

    Error: |d_i| carries at most 2^-18 of rounding from 64 on (from 128 on both results vanish), and
    2^-19 below, where `FallingExp` cuts 2^-17 off. With the 2^-16.1 of its other steps, e_i has a
    relative error below 2^-15.3. s has the largest one of its terms, plus 2^-24 for each of at
    most 254 additions; r adds 2^-16. Together less than 2^-13.6: at most 2^-5.6 of a BF16 ulp. With
    half an ulp of the one rounding, a weight is within 0.53 ulp of the exact softmax. Below
    2^-126, what e_i loses to 2^-149 is 2^-16 of an ulp.

    One logit per cycle. Cycle 0 is the last one's; D = 18 steps of the division, k logits::

        cycle       0          1            2          3          4
                    operands   difference   reduce     evaluate   sum, store
        cycle       5 .. D+4   D+4    D+5      D+6     and then one per cycle
                    division   fetch  product  weight 0

    Members
    -------
    load : In(1)
        A logit comes; its ``key``; whether it is the ``first`` or the ``last`` one (or both).
        Not again from the last one's cycle to that of the last weight.
    weight_valid : Out(1)
        A weight goes, in the order of the logits: ``weight``; whether it is ``weight_last``.
    """

    load: Signal
    key: Signal
    first: Signal
    last: Signal
    weight_valid: Signal
    weight: Signal
    weight_last: Signal

    def __init__(self, size: int) -> None:
        self._size = size
        super().__init__(
            {
                "load": In(1),
                "key": In(BF16.width),
                "first": In(1),
                "last": In(1),
                "weight_valid": Out(1),
                "weight": Out(BF16.width),
                "weight_last": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from the last logit to the first weight."""
        return QUOTIENT_BITS + 6

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # Which of the stages difference, reduce, evaluate and sum have a logit, and the last one.
        valid = Signal(4)
        last = Signal(4)
        m.d.sync += [valid.eq(Cat(self.load, valid[:-1])), last.eq(Cat(self.last, last[:-1]))]

        logit = Signal(BF16.width)
        largest = Signal(BF16.width)
        same = Signal()
        top_key = Signal(BF16.width)
        total = Signal(FP32.width)
        m.submodules.operand = operand = Module()
        value = Signal(BF16.width)
        with operand.If(self.load):
            operand.d.comb += value.eq(logit_of(self.key))
        with m.If(self.load):
            m.d.sync += [logit.eq(value), same.eq(self.first | (self.key == top_key))]
            with m.If(self.first):
                m.d.sync += [top_key.eq(self.key), largest.eq(value), total.eq(0)]

        m.submodules.difference = difference = FloatAdd(FP32)
        less = Cat(BF16.magnitude_of(largest), ~BF16.sign_of(largest))
        difference.bind(a=_widened(logit), b=_widened(less))
        m.submodules.exponential = exponential = FallingExp()
        distance = Signal(FP32.width - 1)
        with m.If(valid[0]):
            m.d.sync += distance.eq(Mux(same, 0, FP32.magnitude_of(difference.o)))
        exponential.a, exponential.reduce, exponential.evaluate = distance, valid[1], valid[2]

        m.submodules.sum = accumulate = FloatAdd(FP32)
        accumulate.bind(a=total, b=Cat(exponential.o, Const(0, 1)))
        with m.If(valid[3]):
            m.d.sync += total.eq(accumulate.o)

        reciprocal = Signal(FP32.width)
        fetch = Signal()
        m.submodules.divide = self._divide(total, top_key, last[3], reciprocal, fetch)
        self._weigh(m, exponential.o, valid[3], fetch, reciprocal)
        return m

    def _divide(
        self, total: Value, top_key: Value, start: Value, reciprocal: Signal, fetch: Signal
    ) -> Module:
        """The reciprocal of the sum, a bit per cycle from the one after `start`; `fetch` in the
        last of them."""
        m = Module()
        divisor = FP32.significand_of(total)
        rest = Signal(FP32.precision + 1)
        quotient = Signal(QUOTIENT_BITS - 1)  # the steps shift out what it holds before
        busy = Signal()
        step = Signal(range(QUOTIENT_BITS))
        with m.If(start):
            m.d.sync += [busy.eq(1), step.eq(0), rest.eq(FP32.hidden)]
        with m.If(busy):
            fits = rest >= divisor
            bits = Cat(fits, quotient)
            m.d.sync += [
                step.eq(step + 1),
                rest.eq((rest - Mux(fits, divisor, 0)) << 1),
                quotient.eq(bits),
            ]
            with m.If(step == QUOTIENT_BITS - 1):
                # The quotient's top bit adds 1 to the exponent field, or 2 where it is 2^17.
                field = (2 * FP32.bias - 2 - FP32.exp_of(total))[: FP32.exp]
                places = FP32.man - (QUOTIENT_BITS - 2)
                word = (bits << places) + Cat(Const(0, FP32.man), field)
                nothing = top_key == KEY_OF_MINUS_INF
                m.d.comb += fetch.eq(1)
                m.d.sync += [busy.eq(0), reciprocal.eq(Mux(nothing, 0, word))]
        return m

    def _weigh(
        self, m: Module, term: Value, store: Value, fetch: Signal, reciprocal: Signal
    ) -> None:
        """Keeps the exponentials, and multiplies them by the reciprocal from `fetch` on."""
        depth = max(2, self._size)
        m.submodules.terms = terms = memory.Memory(shape=FP32.width - 1, depth=depth, init=[])
        write, read = terms.write_port(), terms.read_port()
        stored = Signal(range(depth + 1))
        fetched = Signal(range(depth + 1))
        fetching = Signal()
        y_valid = Signal()
        y_last = Signal()
        m.submodules.product = product = FloatMul(FP32, BF16)
        product.bind(a=Cat(read.data, Const(0, 1)), b=reciprocal)
        m.d.comb += [
            write.en.eq(store),
            write.addr.eq(stored),
            write.data.eq(term),
            read.en.eq(fetch | fetching),
            read.addr.eq(fetched),
        ]
        with m.If(store):
            m.d.sync += stored.eq(stored + 1)
        final = fetched + 1 == stored
        m.d.sync += [y_valid.eq(read.en), y_last.eq(read.en & final)]
        with m.If(read.en):
            m.d.sync += [fetched.eq(fetched + 1), fetching.eq(~final)]
            with m.If(final):
                m.d.sync += [fetched.eq(0), stored.eq(0)]
        m.d.sync += [self.weight_valid.eq(y_valid), self.weight_last.eq(y_last)]
        with m.If(y_valid):
            m.d.sync += self.weight.eq(product.o)


def _widened(word: Value) -> Value:
    """A BF16 word as FP32."""
    return Cat(Const(0, FP32.width - BF16.width), word)
