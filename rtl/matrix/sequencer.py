"""The order of events in the matrix unit: which column, row or write-out goes when."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import Shapes

from .slots import Acc, decode, group_bits, slot_layout, work_layout, write_out_layout

__all__ = ["Sequencer"]

QUEUE_DEPTH = 4  # a product with its write-out, twice


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
    per_head : Out(1), part : Out
        With ``load``: every head takes the same HLEN of the weights, their ``part``.
    vram_read : Out(shapes.vram_read, without ``data``)
    slot : Out(slot_layout)
        Of this cycle; its row is the one that ``vram_read`` asks for.

    Cycle 0 is the one with ``issue.valid`` and ``issue.ready``, and nothing is waiting::

        cycle        0       1         ...  BLEN          BLEN + 1   ...  2 * BLEN
        M_MM         queue   column 0       column        row 0           row BLEN - 1,
                                            BLEN - 1                      and its write-out
        next M_MM            (queue)                      column 0        column BLEN - 1
        M_MM_WO      queue   pending   bubble slot

    A product is one or more passes: BLEN columns are read, then rows. Of the columns of M_MM and
    M_MV there are BLEN, of those of the per-head forms MLEN, so MLEN / BLEN passes; and there are
    BLEN, 1, MLEN (M_BMM) or 1 (M_BMV) rows in each. The columns of a pass are read from the cycle
    on in which the rows of the pass before it begin, and its rows begin when both are over: BLEN
    cycles per M_MM or M_MV, MLEN * MLEN / BLEN per M_BMM, MLEN per M_BMV, without a bubble between.

    A product occupies the queue's head until its last pass begins. A write-out behind it that comes
    until then, or while those rows are read, takes no slot: it waits in ``pending`` and is attached
    to the last row. Otherwise it gets a slot without a row. After a write-out the next one keeps a
    distance, in which the accumulators drain, and so does a per-head product: its accumulators are
    memories with one read port.
    """

    issue: Any
    mram_read: Any
    load: Signal
    per_head: Signal
    part: Signal
    vram_read: Any
    slot: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._shapes = shapes = Shapes(config)
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.matrix_issue)),
                "mram_read": Out(_request(shapes.mram_read)),
                "load": Out(config.BLEN),
                "per_head": Out(1),
                "part": Out(max(1, exact_log2(config.heads))),
                "vram_read": Out(_request(shapes.vram_read)),
                "slot": Out(slot_layout(config)),
            }
        )

    @staticmethod
    def distance(config: PlenaConfig, acc: Acc) -> int:
        """Slots from a write-out of this accumulator to the next write-out, at least.

        For per-head products too, whose adders read two cycles behind level log2(HLEN), while the
        drain begins behind the last level.
        """
        if acc in (Acc.M_ACC, Acc.V_ACC):
            return config.BLEN
        rows = config.heads * (config.MLEN if acc is Acc.HM_ACC else 1)
        return rows + 3 + exact_log2(config.heads)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, slot = self._config, self.slot
        mlen, blen = config.MLEN, config.BLEN

        # The queue: two can leave in a cycle, a product and the write-out behind it.
        work = work_layout(config)
        incoming: Any = Signal(work)
        m.submodules.decode = decode(self.issue.payload, incoming)
        queue = [Signal(work, name=f"queue_{i}") for i in range(QUEUE_DEPTH)]
        waiting = Signal(range(QUEUE_DEPTH + 1))
        leave = Signal(2)
        stay = Signal(range(QUEUE_DEPTH + 1))
        m.d.comb += [self.issue.ready.eq(waiting != QUEUE_DEPTH), stay.eq(waiting - leave)]
        m.d.sync += waiting.eq(stay)
        for places in (1, 2):
            with m.If(leave == places):
                m.d.sync += [a.eq(b) for a, b in zip(queue, queue[places:], strict=False)]
        with m.If(self.issue.valid & self.issue.ready):
            m.d.sync += waiting.eq(stay + 1)
            with m.Switch(stay):
                for place, entry in enumerate(queue):
                    with m.Case(place):
                        m.d.sync += entry.eq(incoming)
        head, second = queue[:2]
        head_is_write_out = Signal()
        second_is_write_out = Signal()
        head_is_product = Signal()
        per_head = head.acc[1]
        m.d.comb += [
            head_is_write_out.eq((waiting != 0) & head.write_out),
            head_is_product.eq((waiting != 0) & ~head.write_out),
            second_is_write_out.eq((waiting > 1) & second.write_out),
        ]

        # Columns of a pass of the product at the head, and then its rows.
        column = Signal(exact_log2(blen))
        group = Signal(group_bits(config))
        loaded = Signal()  # all columns, but the rows cannot begin
        loading = Signal()
        complete = Signal()
        final = Signal()
        # rows of a pass are read; its last one is
        streaming = Signal()
        end = Signal()
        in_order = Signal()
        begin = Signal()
        finish = Signal()
        first = Mux(per_head, group << exact_log2(blen), head.index)
        m.d.comb += [
            loading.eq(head_is_product & ~loaded),
            complete.eq(head_is_product & (loaded | (column == blen - 1))),
            final.eq(~per_head | (group == mlen // blen - 1)),
            begin.eq(complete & (~streaming | end) & in_order),
            finish.eq(begin & final),
            self.mram_read.en.eq(loading),
            self.mram_read.tile.eq(head.tile),
            self.mram_read.index.eq(first | column),
            self.mram_read.transposed.eq(head.transposed),
        ]
        m.d.sync += [self.load.eq(Mux(loading, 1 << column, 0)), loaded.eq(complete & ~begin)]
        with m.If(loading):
            m.d.sync += [
                column.eq(column + 1),
                self.per_head.eq(per_head),
                self.part.eq(head.index >> exact_log2(config.HLEN)),
            ]

        row = Signal(exact_log2(mlen))
        last_row = Signal(exact_log2(mlen))
        address = Signal(self._shapes.row_bits)
        rows: Any = Signal(slot_layout(config))  # what the slots of this pass have in common
        m.d.comb += end.eq(streaming & (row == last_row))
        with m.If(streaming):
            m.d.sync += [row.eq(row + 1), address.eq(address + 1)]
        with m.If(end):
            m.d.sync += streaming.eq(0)
        with m.If(begin):
            m.d.sync += [
                streaming.eq(1),
                group.eq(Mux(final, 0, group + 1)),
                row.eq(0),
                last_row.eq(Mux(head.acc[0], 0, Mux(per_head, mlen - 1, blen - 1))),
                address.eq(head.row),
                rows.acc.eq(head.acc),
                rows.group.eq(group),
                rows.last.eq(final),
                rows.tag.eq(head.tag),
            ]

        # The write-out that leaves next. It does so before the rows of a later product begin.
        pending: Any = Signal(write_out_layout(config))
        distance = Signal(range(max(self.distance(config, acc) for acc in Acc)))
        taken = Signal()
        m.d.comb += [
            taken.eq(head_is_write_out & (~pending.valid | slot.write_out.valid)),
            in_order.eq(
                Mux(
                    per_head,
                    ~pending.valid & (distance == 0),
                    ~pending.valid | slot.write_out.valid,
                )
            ),
        ]
        with m.If(slot.write_out.valid):
            m.d.sync += pending.valid.eq(0)
            with m.Switch(pending.acc):
                for acc in Acc:
                    with m.Case(acc):
                        m.d.sync += distance.eq(self.distance(config, acc) - 1)
        with m.Elif(distance != 0):
            m.d.sync += distance.eq(distance - 1)
        for source, moves in ((head, taken), (second, finish & second_is_write_out)):
            with m.If(moves):
                names = ("acc", "tag", "row", "lane", "stride")
                m.d.sync += [pending[name].eq(source[name]) for name in names]
                m.d.sync += pending.valid.eq(1)

        with m.If(finish):
            m.d.comb += leave.eq(Mux(second_is_write_out, 2, 1))
        with m.Else():
            m.d.comb += leave.eq(taken)
        m.d.comb += [
            self.vram_read.en.eq(streaming),
            self.vram_read.row.eq(address),
            slot.eq(rows),
            slot.valid.eq(streaming),
            slot.row.eq(row),
            slot.last.eq(end & rows.last),
            slot.write_out.eq(pending),
            slot.write_out.valid.eq(
                pending.valid & (distance == 0) & (~streaming | (end & rows.last))
            ),
        ]
        return m
