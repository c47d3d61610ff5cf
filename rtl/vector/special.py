"""The exponential and reciprocal lanes of the vector unit, fewer than a row has."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.leaves import BF16, BF16Exp, BF16Reciprocal

__all__ = ["SpecialLanes"]


class SpecialLanes(wiring.Component):
    """One function of a BF16 number on ``lanes`` of the ``row_lanes`` lanes of a row at a time.

    A row takes ``row_lanes / lanes`` passes. In each, the operands of slice ``part`` are captured
    at the end of a cycle with ``load`` and held until the next one; ``o`` follows combinationally,
    so it is there in the cycle after. One slice per cycle.

    Members
    -------
    load : In(1)
    part : In(range(row_lanes // lanes))
        The slice: lanes ``part * lanes`` to ``(part + 1) * lanes - 1``.
    a : In(16 * row_lanes)
    o : Out(16 * lanes)
    """

    load: Signal
    part: Signal
    a: Signal
    o: Signal

    def __init__(
        self, function: type[BF16Exp] | type[BF16Reciprocal], *, lanes: int, row_lanes: int
    ) -> None:
        if row_lanes % lanes:
            raise ValueError(
                f"SpecialLanes: {lanes} lanes must divide the {row_lanes} lanes of a row"
            )
        self._function, self._lanes, self._parts = function, lanes, row_lanes // lanes
        super().__init__(
            {
                "load": In(1),
                "part": In(range(self._parts)),
                "a": In(BF16.width * row_lanes),
                "o": Out(BF16.width * lanes),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        x = Signal.like(self.o, name="x")
        with m.If(self.load), m.Switch(self.part):
            for part in range(self._parts):
                with m.Case(part):
                    m.d.sync += x.eq(self.a.word_select(part, len(x)))
        results = []
        for lane in range(self._lanes):
            leaf = self._function().bind(i=x.word_select(lane, BF16.width))
            m.submodules[f"lane_{lane}"] = leaf
            results.append(leaf.o)
        m.d.comb += self.o.eq(Cat(results))
        return m
