"""The accumulators of M_MM, and their write-out."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import Completion, Shapes
from rtl.leaves import FP32, FloatAdd, RoundToBF16

from .sequencer import slot_layout

__all__ = ["Accumulator"]


class Accumulator(wiring.Component):
    """m_acc, twice: products add to one bank while the other is written out and cleared.

    Members
    -------
    coming : In(slot_layout)
        The slot that will be in ``slot`` in the next cycle.
    slot : In(slot_layout)
    sums : In(BLEN x FP32)
        Of the row in ``slot``, if there is one.
    write : Out(shapes.vram_write)
    write_done : Out(Completion)
    active : Out(1)
        The bank that is m_acc as the program sees it.
    banks : list[list[Signal]]
        banks[b][i] is row i of bank b, BLEN FP32 words.

    A slot per cycle; slots with a write-out at least BLEN cycles apart. Cycle t is the one with the
    write-out in ``slot``::

        cycle    t - 1       t              t + 1          ...   t + BLEN - 1    t + BLEN
        add      read row    add, write it  (other bank)
        drain                read, clear    read, clear          read, clear
                             row 0          row 1                row BLEN - 1
        write                               row 0                row BLEN - 2    row BLEN - 1,
                                                                                 write_done

    The banks swap at the end of cycle t. The row that is added in cycle t is the last one drained,
    and a row is read for its next addition BLEN - 1 cycles after it was last added to: nothing has
    to be forwarded.
    """

    coming: Any
    slot: Any
    sums: Any
    write: Any
    write_done: Any
    active: Signal
    banks: list[list[Any]]

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._row = row = data.ArrayLayout(FP32.width, config.BLEN)
        shapes, slot = Shapes(config), slot_layout(config)
        self._write_out = slot["write_out"].shape
        self.banks = [
            [Signal(row, name=f"m_acc_{bank}_{i}") for i in range(config.BLEN)] for bank in range(2)
        ]
        super().__init__(
            {
                "coming": In(slot),
                "slot": In(slot),
                "sums": In(row),
                "write": Out(shapes.vram_write),
                "write_done": Out(Completion),
                "active": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        blen, groups = self._config.BLEN, self._config.MLEN // self._config.BLEN
        slot, coming = self.slot, self.coming
        swap = slot.write_out.valid
        with m.If(swap):
            m.d.sync += self.active.eq(~self.active)

        def each_row(bank: Value, row: Value, statement: Callable[[Any], Any]) -> None:
            """Do it to the row, at the end of the cycle."""
            with m.Switch(Cat(row, bank)):
                for b in range(2):
                    for i in range(blen):
                        with m.Case(b * blen + i):
                            m.d.sync += statement(self.banks[b][i])

        # Add. The old value is read a cycle early, from the bank that will be active then.
        old = Signal(self._row)
        adders = [FloatAdd(FP32).bind(a=old[j], b=self.sums[j]) for j in range(blen)]
        for j, adder in enumerate(adders):
            m.submodules[f"add_{j}"] = adder
        with m.If(coming.valid):
            each_row(self.active ^ swap, coming.row, lambda row: old.eq(row))
        with m.If(slot.valid):
            each_row(self.active, slot.row, lambda row: row.eq(Cat(adder.o for adder in adders)))

        # Drain, beginning in the cycle of the swap.
        draining = Signal()  # rows are left of the bank that is no longer active
        drained = Signal(exact_log2(blen))  # their first
        leaving = Signal(self._row)
        target: Any = Signal(self._write_out)  # of the row in `leaving`
        last = Signal()
        m.d.sync += [target.valid.eq(swap | draining), last.eq(drained == blen - 1)]
        with m.If(swap | draining):
            each_row(self.active ^ draining, drained, lambda row: leaving.eq(row))
            each_row(self.active ^ draining, drained, lambda row: row.as_value().eq(0))
            m.d.sync += [
                drained.eq(drained + 1),
                draining.eq(drained != blen - 1),
                target.row.eq(target.row + target.stride),
            ]
        with m.If(swap):
            m.d.sync += target.eq(slot.write_out)

        words = []
        for j in range(blen):
            m.submodules[f"round_{j}"] = rounding = RoundToBF16().bind(i=leaving[j])
            words.append(rounding.o)
        group = target.lane >> exact_log2(blen)
        m.submodules.result = result = Module()
        result.d.comb += [
            self.write.en.eq(target.valid),
            self.write.row.eq(target.row),
            self.write.lanes.eq(Cat((group == g).replicate(blen) for g in range(groups))),
            self.write.data.eq(Cat(*words).replicate(groups)),
            self.write.tag.eq(target.tag),
            self.write_done.valid.eq(target.valid & last),
            self.write_done.tag.eq(target.tag),
        ]
        return m
