"""The element-wise lanes of the vector unit that finish a row in one pass."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from rtl.leaves import BF16, BF16MinMax, FloatAdd, FloatMul

__all__ = ["AddLanes", "ClampLanes", "MultiplyLanes", "ShiftLanes"]


def _in_every_lane(word: Value, lanes: int) -> Value:
    return Cat(word for _ in range(lanes))


class AddLanes(wiring.Component):
    """Sums and differences of two rows.

    The operands are captured at the end of a cycle with ``load`` and held until the next one; ``o``
    follows combinationally, so it is there in the cycle after. One row per cycle.

    Members
    -------
    load : In(1)
    a, b : In(16 * lanes)
    scalar : In(16)
    use_scalar : In(1)
        ``scalar`` in every lane takes the place of ``b``.
    negate_a, negate_b : In(1)
        Inverts the sign of every lane: a difference is a sum with one sign inverted.
    o : Out(16 * lanes)
    """

    load: Signal
    a: Signal
    b: Signal
    scalar: Signal
    use_scalar: Signal
    negate_a: Signal
    negate_b: Signal
    o: Signal

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        row = BF16.width * lanes
        super().__init__(
            {
                "load": In(1),
                "a": In(row),
                "b": In(row),
                "scalar": In(BF16.width),
                "use_scalar": In(1),
                "negate_a": In(1),
                "negate_b": In(1),
                "o": Out(row),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        x = Signal.like(self.a)
        y = Signal.like(self.b)
        signs = Const(sum(BF16.sign_mask << BF16.width * i for i in range(self._lanes)), len(x))
        second = Mux(self.use_scalar, _in_every_lane(self.scalar, self._lanes), self.b)
        with m.If(self.load):
            m.d.sync += [
                x.eq(self.a ^ Mux(self.negate_a, signs, 0)),
                y.eq(second ^ Mux(self.negate_b, signs, 0)),
            ]
        sums = []
        for lane in range(self._lanes):
            a, b = (row.word_select(lane, BF16.width) for row in (x, y))
            m.submodules[f"add_{lane}"] = add = FloatAdd(BF16).bind(a=a, b=b)
            sums.append(add.o)
        m.d.comb += self.o.eq(Cat(sums))
        return m


class MultiplyLanes(wiring.Component):
    """Products of two rows; timing as `AddLanes`.

    Members
    -------
    load : In(1)
    a, b : In(16 * lanes)
    scalar : In(16)
    use_scalar : In(1)
        As in `AddLanes`.
    o : Out(16 * lanes)
    """

    load: Signal
    a: Signal
    b: Signal
    scalar: Signal
    use_scalar: Signal
    o: Signal

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        row = BF16.width * lanes
        super().__init__(
            {
                "load": In(1),
                "a": In(row),
                "b": In(row),
                "scalar": In(BF16.width),
                "use_scalar": In(1),
                "o": Out(row),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        x = Signal.like(self.a)
        y = Signal.like(self.b)
        second = Mux(self.use_scalar, _in_every_lane(self.scalar, self._lanes), self.b)
        with m.If(self.load):
            m.d.sync += [x.eq(self.a), y.eq(second)]
        products = []
        for lane in range(self._lanes):
            a, b = (row.word_select(lane, BF16.width) for row in (x, y))
            m.submodules[f"mul_{lane}"] = mul = FloatMul(BF16, BF16).bind(a=a, b=b)
            products.append(mul.o)
        m.d.comb += self.o.eq(Cat(products))
        return m


class ClampLanes(wiring.Component):
    """Maximum or minimum of a row's lanes and one scalar; timing as `AddLanes`.

    Members
    -------
    load : In(1)
    a : In(16 * lanes)
    bound : In(16)
    is_max : In(1)
    o : Out(16 * lanes)
    """

    load: Signal
    a: Signal
    bound: Signal
    is_max: Signal
    o: Signal

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        row = BF16.width * lanes
        super().__init__(
            {"load": In(1), "a": In(row), "bound": In(BF16.width), "is_max": In(1), "o": Out(row)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        x = Signal.like(self.a)
        y = Signal.like(self.bound)
        is_max = Signal()
        with m.If(self.load):
            m.d.sync += [x.eq(self.a), y.eq(self.bound), is_max.eq(self.is_max)]
        clamped = []
        for lane in range(self._lanes):
            leaf = BF16MinMax().bind(a=x.word_select(lane, BF16.width), b=y, is_max=is_max)
            m.submodules[f"minmax_{lane}"] = leaf
            clamped.append(leaf.o)
        m.d.comb += self.o.eq(Cat(clamped))
        return m


class ShiftLanes(wiring.Component):
    """A row whose lanes move up, zeros entering at lane 0; timing as `AddLanes`.

    Members
    -------
    load : In(1)
    a : In(16 * lanes)
    amount : In(ceil_log2(lanes) + 1)
        Lanes to move by, 0 to ``lanes`` (which leaves only zeros).
    o : Out(16 * lanes)
    """

    load: Signal
    a: Signal
    amount: Signal
    o: Signal

    def __init__(self, lanes: int) -> None:
        row = BF16.width * lanes
        super().__init__(
            {"load": In(1), "a": In(row), "amount": In(ceil_log2(lanes) + 1), "o": Out(row)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        x = Signal.like(self.a)
        amount = Signal.like(self.amount)
        with m.If(self.load):
            m.d.sync += [x.eq(self.a), amount.eq(self.amount)]
        # One stage per bit of the amount. The last one moves by all lanes: nothing is left.
        for bit, step in enumerate(amount):
            distance = BF16.width << bit
            moved = Signal.like(x, name=f"moved_{bit}")
            m.d.comb += moved.eq(Mux(step, Cat(Const(0, distance), x)[: len(x)], x))
            x = moved
        m.d.comb += self.o.eq(x)
        return m
