"""V_RED_SUM and V_RED_MAX: neighbours-first trees with a register per level."""

from typing import Any, ClassVar

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from rtl.interfaces import Completion, FpWrite, Tag
from rtl.leaves import BF16, FP32, BF16MinMax, FloatAdd, RoundToBF16

__all__ = ["MaxTree", "Reduction", "SumTree"]


class _Tree(wiring.Component):
    """A binary tree over the lanes of a row that are on: 2i with 2i+1, then pairs of pairs.

    Members
    -------
    load : In(1)
    row : In(16 * lanes)
    heads : In(heads)
        A bit per ``lanes / heads`` lanes; a lane that is off counts as the subclass's neutral word.
    o : Out(width)

    One row per cycle; ``o`` shows ``log2(lanes) + 1`` cycles after ``load`` and holds::

        cycle   0            1              2             log2(lanes) + 1
        load -> operand  ->  level 1    ->  level 2  ...  o
                register     register       register
    """

    load: Signal
    row: Signal
    heads: Signal
    o: Signal

    _width: ClassVar[int]
    _neutral: ClassVar[int]

    def __init__(self, lanes: int, heads: int) -> None:
        self._lanes = lanes
        self._levels = exact_log2(lanes)
        super().__init__(
            {
                "load": In(1),
                "row": In(BF16.width * lanes),
                "heads": In(heads),
                "o": Out(self._width),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``load`` to ``o``."""
        return self._levels + 1

    def combine(self, m: Module, name: str, a: Value, b: Value) -> Value:
        """Add the node called ``name`` and return its output."""
        raise NotImplementedError  # the sum and the maximum have their own

    def widen(self, word: Value) -> Value:
        """A BF16 lane in the format of the tree."""
        return word

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        operands = Signal.like(self.row)
        head = len(self.row) // len(self.heads)
        off = Const(sum(self._neutral << at for at in range(0, head, BF16.width)), head)
        with m.If(self.load):
            m.d.sync += operands.eq(
                Cat(Mux(on, self.row.word_select(h, head), off) for h, on in enumerate(self.heads))
            )
        # Bit k: the operands of level k are new. A level moves only then.
        fresh = Signal(self._levels)
        m.d.sync += fresh.eq(Cat(self.load, fresh))

        lanes = [operands.word_select(i, BF16.width) for i in range(self._lanes)]
        nodes = [self.widen(lane) for lane in lanes]
        for level in range(self._levels):
            results = [
                self.combine(m, f"level_{level}_{i}", nodes[2 * i], nodes[2 * i + 1])
                for i in range(len(nodes) // 2)
            ]
            last = level == self._levels - 1
            register = self.o if last else Signal(self._width * len(results), name=f"level_{level}")
            with m.If(fresh[level]):
                m.d.sync += register.eq(Cat(results))
            nodes = [register.word_select(i, self._width) for i in range(len(results))]
        return m


class SumTree(_Tree):
    """FP32 sum, rounded at each addition; +0.0 for the lanes that are off. Ports: see `_Tree`."""

    _width = FP32.width
    _neutral = 0

    def widen(self, word: Value) -> Value:
        """FP32 is BF16 with zeros below."""
        return Cat(Const(0, FP32.width - BF16.width), word)

    def combine(self, m: Module, name: str, a: Value, b: Value) -> Value:
        """Add an adder."""
        m.submodules[name] = add = FloatAdd(FP32).bind(a=a, b=b)
        return add.o


class MaxTree(_Tree):
    """BF16 maximum, NaN if there is one; -inf for the lanes that are off. Ports: see `_Tree`."""

    _width = BF16.width
    _neutral = BF16.sign_mask | BF16.inf

    def combine(self, m: Module, name: str, a: Value, b: Value) -> Value:
        """Add a maximum."""
        m.submodules[name] = leaf = BF16MinMax().bind(a=a, b=b, is_max=Const(1, 1))
        return leaf.o


class Reduction(wiring.Component):
    """Both reductions: tree over the row, combination with the starting value, write of f[index].

    Members
    -------
    load_sum, load_max : In(1)
        Start a reduction; at most one of the two.
    row, heads : In
        As in the trees.
    start : In(16)
        The value of f before.
    index : In(3)
    tag : In(Tag)
    done : Out(Completion)
    fp_write : Out(FpWrite)

    One reduction per cycle; both kinds take ``log2(lanes) + 2`` cycles, so they finish in order::

        cycle 0   1 .. log2(lanes)   log2(lanes) + 1     log2(lanes) + 2
        load      tree levels        start with result   round; fp_write, done
    """

    load_sum: Signal
    load_max: Signal
    row: Signal
    heads: Signal
    start: Signal
    index: Signal
    tag: data.View
    done: data.View
    fp_write: data.View

    def __init__(self, lanes: int, heads: int) -> None:
        self._sum, self._max = SumTree(lanes, heads), MaxTree(lanes, heads)
        super().__init__(
            {
                "load_sum": In(1),
                "load_max": In(1),
                "row": In(BF16.width * lanes),
                "heads": In(heads),
                "start": In(BF16.width),
                "index": In(3),
                "tag": In(Tag),
                "done": Out(Completion),
                "fp_write": Out(FpWrite),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``load_*`` to ``done``."""
        return self._sum.latency + 1

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.sum, m.submodules.max = self._sum, self._max
        for tree, load in ((self._sum, self.load_sum), (self._max, self.load_max)):
            m.d.comb += [tree.load.eq(load), tree.row.eq(self.row), tree.heads.eq(self.heads)]

        # What belongs to a reduction travels beside the trees; flight[k] is k + 1 cycles old, and
        # all zero when there is none. One signal for all of it costs a simulator one update in an
        # idle cycle.
        item = data.StructLayout(
            {"valid": 1, "is_max": 1, "start": BF16.width, "index": 3, "tag": Tag}
        )
        flight = Signal(data.ArrayLayout(item, self.latency))
        new = Signal(item)
        with m.If(self.load_sum | self.load_max):
            m.d.comb += [
                new.valid.eq(1),
                new.is_max.eq(self.load_max),
                new.start.eq(self.start),
                new.index.eq(self.index),
                new.tag.eq(self.tag),
            ]
        m.d.sync += flight.as_value().eq(Cat(new, flight))

        # The starting value has a register for each kind, so that the other kind's leaf is quiet.
        meet, merge, last = (flight[self.latency - back] for back in (3, 2, 1))
        sum_start = Signal(BF16.width)
        max_start = Signal(BF16.width)
        with m.If(meet.valid):
            with m.If(meet.is_max):
                m.d.sync += max_start.eq(meet.start)
            with m.Else():
                m.d.sync += sum_start.eq(meet.start)

        wide_start = self._sum.widen(sum_start)
        m.submodules.sum_merge = add = FloatAdd(FP32).bind(a=wide_start, b=self._sum.o)
        m.submodules.max_merge = highest = BF16MinMax().bind(
            a=max_start, b=self._max.o, is_max=Const(1, 1)
        )
        total = Signal(FP32.width)
        maximum = Signal(BF16.width)
        with m.If(merge.valid):
            with m.If(merge.is_max):
                m.d.sync += maximum.eq(highest.o)
            with m.Else():
                m.d.sync += total.eq(add.o)
        m.submodules.round = rounded = RoundToBF16().bind(i=total)

        m.d.comb += [
            self.done.valid.eq(last.valid),
            self.done.tag.eq(last.tag),
            self.fp_write.valid.eq(last.valid),
            self.fp_write.index.eq(last.index),
            self.fp_write.value.eq(Mux(last.is_max, maximum, rounded.o)),
        ]
        return m
