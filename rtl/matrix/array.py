"""The multipliers and their adder trees."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import Shapes
from rtl.leaves import BF16, FP32, FloatAdd, FloatMul

__all__ = ["MultiplierArray"]

GROUP = 64  # lanes in one register signal, so that none is too wide for a simulator at MLEN 512


class MultiplierArray(wiring.Component):
    """BLEN columns of MLEN multipliers, each with a tree of FP32 adders: a row in, BLEN sums out.

    Members
    -------
    column_i : In(shapes.row)
        A column of weights.
    load : In(BLEN)
        One-hot: the column whose waiting weights take ``column_i``.
    swap : In(1)
        The waiting weights, as they are in this cycle, become those in use.
    row_i : In(shapes.row)
        A row of activations.
    take : In(1)
        ``row_i`` goes into the multipliers' operand register.
    advance : In(log2(MLEN) + 1)
        Bit 0: the products are wanted; bit n: the sums of level n are. Registers of steps that hold
        nothing keep their value, so a bubble moves nothing.
    tap : In(1)
        The sums of level log2(HLEN) are wanted in ``heads``.
    sums : Out(BLEN x FP32)
    heads : Out(MLEN / HLEN x FP32), an array of BLEN
        heads[j][h] is the sum over head h in column j.

    A row per cycle. Cycle 0 is the one with ``take``; ``swap`` is in the same cycle or earlier::

        cycle 0    1          2            ...   log2(MLEN) + 1    log2(MLEN) + 2
        row_i      multiply   add level 1        add level n       sums
        take       advance 0  advance 1          advance n

        cycle                 log2(HLEN) + 1     log2(HLEN) + 2
                              tap                heads

    Level n adds neighbours of level n - 1, so that element h of level log2(HLEN) is the sum over
    head h. It has a register of its own there, for what is behind it to rest while the other works.
    Columns are equal modules, and hold their registers as a few wide signals: next to the leaves
    they would be hundreds, each with a process of its own that a simulator runs in every cycle.
    """

    column_i: Any
    load: Signal
    swap: Signal
    row_i: Any
    take: Signal
    advance: Signal
    tap: Signal
    sums: Any
    heads: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._lanes, self._columns = config.MLEN, config.BLEN
        self._head_level = exact_log2(config.HLEN)
        self._row = row = Shapes(config).row
        super().__init__(
            {
                "column_i": In(row),
                "load": In(config.BLEN),
                "swap": In(1),
                "row_i": In(row),
                "take": In(1),
                "advance": In(exact_log2(config.MLEN) + 1),
                "tap": In(1),
                "sums": Out(data.ArrayLayout(FP32.width, config.BLEN)),
                "heads": Out(data.ArrayLayout(FP32.width, config.heads)).array(config.BLEN),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``take`` to ``sums``."""
        return exact_log2(self._lanes) + 2

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        activations = Signal(self._row)
        with m.If(self.take):
            m.d.sync += activations.eq(self.row_i)
        for number in range(self._columns):
            # A bit of its own, so that the columns are equal modules and are converted once.
            load = Signal(name="load_column")
            m.d.comb += load.eq(self.load[number])
            column, total = self._column(number, load, activations)
            m.submodules[f"column_{number}"] = column
            m.d.comb += self.sums[number].eq(total)
        return m

    def _column(self, number: int, load: Signal, activations: Any) -> tuple[Module, Value]:
        """One column and its sum."""
        m = Module()
        waiting = Signal(self._row)
        weights = Signal(self._row)
        with m.If(load):
            m.d.sync += waiting.eq(self.column_i)
        with m.If(self.swap):
            m.d.sync += weights.eq(waiting)

        terms = self._step(
            m,
            0,
            "multiply",
            [
                FloatMul(BF16, FP32).bind(a=activations[lane], b=weights[lane])
                for lane in range(self._lanes)
            ],
        )
        for level in range(1, exact_log2(self._lanes) + 1):
            pairs = zip(terms[::2], terms[1::2], strict=True)
            adders = [FloatAdd(FP32).bind(a=even, b=odd) for even, odd in pairs]
            terms = self._step(m, level, f"add_{level}", adders)
            if level == self._head_level:
                with m.If(self.tap):
                    m.d.sync += self.heads[number].eq(Cat(adder.o for adder in adders))
        return m, terms[0]

    def _step(
        self, m: Module, level: int, name: str, leaves: Sequence[FloatMul | FloatAdd]
    ) -> list[Value]:
        """Leaves that work in one cycle, and the registers behind them."""
        terms: list[Value] = []
        for start in range(0, len(leaves), GROUP):
            group = leaves[start : start + GROUP]
            for place, leaf in enumerate(group, start):
                m.submodules[f"{name}_{place}"] = leaf
            suffix = f"_{start // GROUP}" if len(leaves) > GROUP else ""
            register = Signal(data.ArrayLayout(FP32.width, len(group)), name=f"{name}_o{suffix}")
            with m.If(self.advance[level]):
                m.d.sync += register.eq(Cat(leaf.o for leaf in group))
            terms += [register[place] for place in range(len(group))]
        return terms
