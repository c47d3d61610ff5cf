"""The matrix unit: products of BLEN rows with BLEN columns, accumulated and written out."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Module, Signal, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import Completion, Shapes, Tag

from .accumulator import Accumulator
from .array import MultiplierArray
from .sequencer import Sequencer, slot_layout

__all__ = ["MatrixUnit"]


class MatrixUnit(wiring.Component):
    """Execute M_MM, M_TMM and M_MM_WO in program order; no other operation may be issued.

    Members
    -------
    issue : In(stream of shapes.matrix_issue)
        ``index`` and ``lane`` are multiples of BLEN.
    mram_read : Out(shapes.mram_read)
    vram_read : Out(shapes.vram_read)
    vram_write : Out(shapes.vram_write)
    product_done : Out(Completion)
        Of M_MM and M_TMM, in the cycle of their last addition.
    write_done : Out(Completion)
        Of M_MM_WO, in the cycle of its last ``vram_write``.
    mac_busy : Out(1), mac_tag : Out(Tag)
        A row of activations is in the multipliers, and whose.

    Cycle 0 is the one with ``issue.valid`` and ``issue.ready``, and the unit is idle. B = BLEN,
    n = log2(MLEN), i = 0 .. B - 1 is a column or row, l = 1 .. n a level of the adder trees::

        cycle           stage        M_MM, M_TMM
        0                            into the queue
        1 + i                        mram_read of column i (M_TMM: of row i)
        B + 1 + i       fetch        vram_read of row i
        B + 2 + i       operand      row i arrives; with row 0 the weights swap
        B + 3 + i       multiply     mac_busy
        B + 3 + l + i   add_l
        B + 4 + n + i   accumulate   product_done with the last row: cycle 2 B + n + 3

        cycle           stage        M_MM_WO with no product before it
        2               fetch        a slot without a row
        5 + n           accumulate   t
        t + 1 + i                    vram_write of row i; write_done with the last: cycle B + n + 5

    A write-out behind a product that has not read its last row yet rides with that row, which gives
    t, and takes no slot. Throughput: a product per B cycles, with or without a write-out behind
    each; and a write-out per B cycles. Both kinds can complete in one cycle.

    Order within the unit: products accumulate, write-outs take what was accumulated before them,
    and write their rows in issue order. Rows of activations are read B + 1 cycles or more after
    issue, so until product_done nothing outside may write them (a later write-out does so only
    after). An M_MM that reads what an M_MM_WO writes must not be issued before write_done.

    Structure::

        issue --Sequencer--> slot -> operand -> multiply -> add_1 .. add_n -> accumulate
                   | mram_read          |          |            |               |
                   | vram_read          v          v            v               v
                   '-- SRAM data --> MultiplierArray ------ sums ------> Accumulator --> vram_write

    A slot (see `slot_layout`) goes down the pipeline beside the data. The vector forms would be one
    slot per instruction, into another accumulator; the per-head forms tap the trees at level
    log2(HLEN).
    """

    issue: Any
    mram_read: Any
    vram_read: Any
    vram_write: Any
    product_done: Any
    write_done: Any
    mac_busy: Signal
    mac_tag: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self.accumulator = Accumulator(config)
        shapes = Shapes(config)
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.matrix_issue)),
                "mram_read": Out(shapes.mram_read),
                "vram_read": Out(shapes.vram_read),
                "vram_write": Out(shapes.vram_write),
                "product_done": Out(Completion),
                "write_done": Out(Completion),
                "mac_busy": Out(1),
                "mac_tag": Out(Tag),
            }
        )

    @property
    def interval(self) -> int:
        """Cycles per product, or per product and write-out, when the issue never waits."""
        return self._config.BLEN

    def latency(self, op: IntEnum) -> int:
        """Cycles from issue to completion, of an instruction that finds the unit idle."""
        levels = exact_log2(self._config.MLEN)
        if op.name in ("M_MM", "M_TMM"):
            return 2 * self._config.BLEN + levels + 3
        if op.name == "M_MM_WO":
            return self._config.BLEN + levels + 5
        raise ValueError(
            f"the matrix unit does not execute {op.name}; it does M_MM, M_TMM and M_MM_WO"
        )

    def m_acc(self, get: Callable[[ValueLike], int]) -> list[list[int]]:
        """The program's m_acc[row][column] as FP32 words; ``get`` reads a signal."""
        bank = self.accumulator.banks[get(self.accumulator.active)]
        return [[get(row[j]) for j in range(self._config.BLEN)] for row in bank]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.sequencer = sequencer = Sequencer(self._config)
        m.submodules.array = array = MultiplierArray(self._config)
        m.submodules.accumulator = accumulator = self.accumulator

        # The slot of each stage, in the order of the stages.
        levels = exact_log2(self._config.MLEN)
        names = ("operand", "multiply", *(f"add_{n}" for n in range(1, levels + 1)), "accumulate")
        stages = [Signal(slot_layout(self._config), name=name) for name in names]
        operand, multiply, last_add, accumulate = stages[0], stages[1], stages[-2], stages[-1]
        for before, after in zip([sequencer.slot, *stages], stages, strict=False):
            m.d.sync += after.eq(before)

        connect(m, flipped(self.issue), sequencer.issue)
        connect(m, accumulator.write, flipped(self.vram_write))
        for port in ("mram_read", "vram_read"):
            ours, asked = getattr(self, port), getattr(sequencer, port)
            for name in asked.signature.members:
                m.d.comb += getattr(ours, name).eq(getattr(asked, name))
        m.d.comb += [
            array.column_i.eq(self.mram_read.data),
            array.load.eq(sequencer.load),
            array.row_i.eq(self.vram_read.data),
            array.take.eq(operand.valid),
            array.swap.eq(operand.valid & (operand.row == 0)),
            array.advance.eq(Cat(stage.valid for stage in stages[1:-1])),
            accumulator.sums.eq(array.sums),
            accumulator.coming.eq(last_add),
            accumulator.slot.eq(accumulate),
            self.mac_busy.eq(multiply.valid),
            self.mac_tag.eq(multiply.tag),
            self.product_done.valid.eq(accumulate.valid & accumulate.last),
            self.product_done.tag.eq(accumulate.tag),
            self.write_done.eq(accumulator.write_done),
        ]
        return m
