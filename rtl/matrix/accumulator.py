"""The accumulators of M_MM and M_MV, and their write-outs."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import Completion, Shapes
from rtl.leaves import FP32, FloatAdd, RoundToBF16

from .slots import Acc, slot_layout, write_out_layout

__all__ = ["Accumulator"]


class Accumulator(wiring.Component):
    """m_acc and v_acc, twice: products add to one bank while the other is written out and cleared.

    Members
    -------
    coming : In(slot_layout)
        The slot that will be in ``slot`` in the next cycle.
    slot : In(slot_layout)
        Per-head rows, and write-outs of per-head accumulators, move nothing.
    sums : In(BLEN x FP32)
        Of the row in ``slot``, if there is one.
    write : Out(shapes.vram_write)
    write_done : Out(Completion)
    active : Out(1), v_active : Out(1)
        The bank that is m_acc (v_acc) as the program sees it.
    banks : list[list[Signal]]
        banks[b][i] is row i of bank b, BLEN FP32 words.
    v_banks : list[Signal]

    A slot per cycle; slots with a write-out at least BLEN cycles apart, and rows of v_acc at least
    two. Cycle t is the one with the write-out in ``slot``::

        cycle    t - 1       t              t + 1          ...   t + BLEN - 1    t + BLEN
        add      read row    add, write it  (other bank)
        m_acc:
        drain                read, clear    read, clear          read, clear
                             row 0          row 1                row BLEN - 1
        write                               row 0                row BLEN - 2    row BLEN - 1,
                                                                                 write_done
        v_acc:                              read, clear    write, write_done (t + 2)

    The banks swap at the end of cycle t. The row that is added in cycle t is the last one drained,
    and a row is read for its next addition BLEN - 1 cycles after it was last added to (v_acc: one
    cycle): nothing has to be forwarded.
    """

    coming: Any
    slot: Any
    sums: Any
    write: Any
    write_done: Any
    active: Signal
    v_active: Signal
    banks: list[list[Any]]
    v_banks: list[Any]

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._row = row = data.ArrayLayout(FP32.width, config.BLEN)
        shapes, slot = Shapes(config), slot_layout(config)
        self.banks = [
            [Signal(row, name=f"m_acc_{bank}_{i}") for i in range(config.BLEN)] for bank in range(2)
        ]
        self.v_banks = [Signal(row, name=f"v_acc_{bank}") for bank in range(2)]
        super().__init__(
            {
                "coming": In(slot),
                "slot": In(slot),
                "sums": In(row),
                "write": Out(shapes.vram_write),
                "write_done": Out(Completion),
                "active": Out(1),
                "v_active": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        blen, groups = self._config.BLEN, self._config.MLEN // self._config.BLEN
        slot, coming, write_out = self.slot, self.coming, self.slot.write_out
        swap = Signal()
        v_swap = Signal()
        m.d.comb += [
            swap.eq(write_out.valid & (write_out.acc == Acc.M_ACC)),
            v_swap.eq(write_out.valid & (write_out.acc == Acc.V_ACC)),
        ]
        with m.If(swap):
            m.d.sync += self.active.eq(~self.active)
        with m.If(v_swap):
            m.d.sync += self.v_active.eq(~self.v_active)

        def each_row(bank: Value, row: Value, statement: Callable[[Any], Any]) -> None:
            """Do it to the row of m_acc, at the end of the cycle."""
            with m.Switch(Cat(row[: exact_log2(blen)], bank)):
                for b in range(2):
                    for i in range(blen):
                        with m.Case(b * blen + i):
                            m.d.sync += statement(self.banks[b][i])

        def v_row(bank: Value, statement: Callable[[Any], Any]) -> None:
            """Do it to v_acc, at the end of the cycle."""
            for b in range(2):
                with m.If(bank == b):
                    m.d.sync += statement(self.v_banks[b])

        # Add. The old value is read a cycle early, from the bank that will be active then.
        old = Signal(self._row)
        adders = [FloatAdd(FP32).bind(a=old[j], b=self.sums[j]) for j in range(blen)]
        for j, adder in enumerate(adders):
            m.submodules[f"add_{j}"] = adder
        new = Cat(adder.o for adder in adders)
        with m.If(coming.valid):
            with m.If(coming.acc == Acc.M_ACC):
                each_row(self.active ^ swap, coming.row, lambda row: old.eq(row))
            with m.Elif(coming.acc == Acc.V_ACC):
                v_row(self.v_active ^ v_swap, lambda row: old.eq(row))
        with m.If(slot.valid):
            with m.If(slot.acc == Acc.M_ACC):
                each_row(self.active, slot.row, lambda row: row.eq(new))
            with m.Elif(slot.acc == Acc.V_ACC):
                v_row(self.v_active, lambda row: row.eq(new))

        # Drain m_acc, beginning in the cycle of the swap, or v_acc, a cycle later.
        # rows are left of the bank that was active
        draining = Signal()
        v_draining = Signal()
        drained = Signal(exact_log2(blen))  # their first
        leaving = Signal(self._row)
        target: Any = Signal(write_out_layout(self._config))  # of the row in `leaving`
        last = Signal()
        m.d.sync += [
            target.valid.eq(swap | draining | v_draining),
            last.eq((drained == blen - 1) | v_draining),
            v_draining.eq(v_swap),
        ]
        with m.If(swap | draining):
            each_row(self.active ^ draining, drained, lambda row: leaving.eq(row))
            each_row(self.active ^ draining, drained, lambda row: row.as_value().eq(0))
            m.d.sync += [
                drained.eq(drained + 1),
                draining.eq(drained != blen - 1),
                target.row.eq(target.row + target.stride),
            ]
        with m.If(v_draining):
            v_row(~self.v_active, lambda row: leaving.eq(row))
            v_row(~self.v_active, lambda row: row.as_value().eq(0))
        with m.If(swap | v_swap):
            m.d.sync += [
                target[name].eq(write_out[name]) for name in ("tag", "row", "lane", "stride")
            ]

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
