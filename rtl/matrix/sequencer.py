"""The order of events in the matrix unit: which column, row or write-out goes when."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from isa.opcodes import BY_MNEMONIC
from rtl.interfaces import Shapes, Tag

__all__ = ["Sequencer", "slot_layout"]

M_TMM, M_MM_WO = (BY_MNEMONIC[name].code for name in ("M_TMM", "M_MM_WO"))

QUEUE_DEPTH = 4  # a product with its write-out, twice


def slot_layout(config: PlenaConfig) -> data.StructLayout:
    """What enters the pipeline in a cycle: a row of activations, a write-out, both, or nothing."""
    shapes = Shapes(config)
    write_out = data.StructLayout(
        {
            "valid": 1,
            "tag": Tag,
            "row": shapes.row_bits,
            "lane": shapes.lane_bits,
            "stride": shapes.row_bits,
        }
    )
    return data.StructLayout(
        {
            "valid": 1,  # there is a row
            "row": exact_log2(config.BLEN),  # which one of its instruction's
            "last": 1,
            "tag": Tag,
            "write_out": write_out,  # the accumulators are written out after this slot
        }
    )


def _request(port: wiring.Signature) -> wiring.Signature:
    """A read port without the data, which go elsewhere."""
    return wiring.Signature({name: m for name, m in port.members.items() if name != "data"})


class Sequencer(wiring.Component):
    """Hold the instructions that wait, read their operands, and fill the pipeline's slots.

    Members
    -------
    issue : In(stream of shapes.matrix_issue)
    mram_read : Out(shapes.mram_read, without ``data``)
    load : Out(BLEN)
        One-hot, a cycle after ``mram_read.en``: the column of the array that the weights are for.
    vram_read : Out(shapes.vram_read, without ``data``)
    slot : Out(slot_layout)
        Of this cycle; its row is the one that ``vram_read`` asks for.

    Cycle 0 is the one with ``issue.valid`` and ``issue.ready``, and nothing is waiting::

        cycle        0       1         ...  BLEN          BLEN + 1   ...  2 * BLEN
        M_MM         queue   column 0       column        row 0           row BLEN - 1,
                                            BLEN - 1                      and its write-out
        next M_MM            (queue)                      column 0        column BLEN - 1
        M_MM_WO      queue   pending   bubble slot

    A product occupies the queue's head while its columns are read, then moves on to the rows: BLEN
    cycles per product, without a bubble between. A write-out behind it that comes while it loads,
    or while its rows are read, takes no slot: it waits in ``pending`` and is attached to the last
    row. Otherwise it gets a slot without a row. Write-outs keep a distance of BLEN cycles, in which
    the accumulators drain.
    """

    issue: Any
    mram_read: Any
    load: Signal
    vram_read: Any
    slot: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._blen = config.BLEN
        self._shapes = shapes = Shapes(config)
        self._slot = slot_layout(config)
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.matrix_issue)),
                "mram_read": Out(_request(shapes.mram_read)),
                "load": Out(config.BLEN),
                "vram_read": Out(_request(shapes.vram_read)),
                "slot": Out(self._slot),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        blen, slot = self._blen, self.slot

        # The queue: two can leave in a cycle, a product and the write-out behind it.
        queue = [Signal(self._shapes.matrix_issue, name=f"queue_{i}") for i in range(QUEUE_DEPTH)]
        waiting = Signal(range(QUEUE_DEPTH + 1))
        leave, stay = Signal(2), Signal(range(QUEUE_DEPTH + 1))
        m.d.comb += [self.issue.ready.eq(waiting != QUEUE_DEPTH), stay.eq(waiting - leave)]
        m.d.sync += waiting.eq(stay)
        for places in (1, 2):
            with m.If(leave == places):
                m.d.sync += [a.eq(b) for a, b in zip(queue, queue[places:], strict=False)]
        with m.If(self.issue.valid & self.issue.ready):
            m.d.sync += waiting.eq(stay + 1)
            with m.Switch(stay):
                for i, entry in enumerate(queue):
                    with m.Case(i):
                        m.d.sync += entry.eq(self.issue.payload)
        head, second = queue[:2]
        head_is_write_out, second_is_write_out = Signal(), Signal()
        head_is_product = Signal()
        m.d.comb += [
            head_is_write_out.eq((waiting != 0) & (head.op == M_MM_WO)),
            head_is_product.eq((waiting != 0) & (head.op != M_MM_WO)),
            second_is_write_out.eq((waiting > 1) & (second.op == M_MM_WO)),
        ]

        # Columns of the product at the head.
        column = Signal(exact_log2(blen))
        loaded = Signal()
        m.d.comb += [
            self.mram_read.en.eq(head_is_product),
            self.mram_read.tile.eq(head.tile),
            self.mram_read.index.eq(head.index | column),
            self.mram_read.transposed.eq(head.op == M_TMM),
            loaded.eq(head_is_product & (column == blen - 1)),
        ]
        m.d.sync += self.load.eq(Mux(head_is_product, 1 << column, 0))
        with m.If(head_is_product):
            m.d.sync += column.eq(column + 1)

        # Rows of the product before it. They end when the next one is loaded, or earlier.
        streaming = Signal()
        row = Signal(exact_log2(blen))
        address = Signal(self._shapes.row_bits)
        tag = Signal(Tag)
        with m.If(streaming):
            m.d.sync += [row.eq(row + 1), address.eq(address + 1)]
        with m.If(slot.last):
            m.d.sync += streaming.eq(0)
        with m.If(loaded):
            m.d.sync += [streaming.eq(1), address.eq(head.row), tag.eq(head.tag)]

        # The write-out that leaves next. It does so before the rows of a later product begin: those
        # need BLEN cycles to load, and the distance from the write-out before is over by then.
        pending: Any = Signal(self._slot["write_out"].shape)
        distance = Signal(range(blen))  # cycles that the next one must wait
        taken = Signal()
        m.d.comb += taken.eq(head_is_write_out & (~pending.valid | slot.write_out.valid))
        with m.If(slot.write_out.valid):
            m.d.sync += [pending.valid.eq(0), distance.eq(blen - 1)]
        with m.Elif(distance != 0):
            m.d.sync += distance.eq(distance - 1)
        for source, moves in ((head, taken), (second, loaded & second_is_write_out)):
            with m.If(moves):
                m.d.sync += [pending[name].eq(source[name]) for name in ("tag", "row", "lane")]
                m.d.sync += [pending.stride.eq(source.stride), pending.valid.eq(1)]

        with m.If(loaded):
            m.d.comb += leave.eq(Mux(second_is_write_out, 2, 1))
        with m.Else():
            m.d.comb += leave.eq(taken)
        m.d.comb += [
            self.vram_read.en.eq(streaming),
            self.vram_read.row.eq(address),
            slot.valid.eq(streaming),
            slot.row.eq(row),
            slot.last.eq(streaming & (row == blen - 1)),
            slot.tag.eq(tag),
            slot.write_out.eq(pending),
            slot.write_out.valid.eq(pending.valid & Mux(streaming, slot.last, distance == 0)),
        ]
        return m
