"""The top-k unit: V_TOPK."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.topk import EXPERTS_BITS, TOP_K_BITS
from rtl.interfaces import BF16_BITS, Completion, Shapes

from .ranking import RankedList, key_of
from .softmax import SelectedSoftmax

__all__ = ["TopkUnit"]


class TopkUnit(wiring.Component):
    """Execute V_TOPK, one at a time: select the largest logits, and weigh them by their softmax.

    Larger logits come first, equal ones by smaller index; -0.0 equals +0.0, NaN ranks as -inf.
    Lanes of the last row beyond the experts never count. The arithmetic of the weights, to the
    bit: `SelectedSoftmax`, `FallingExp`.

    Members
    -------
    issue : In(stream of shapes.topk_issue)
        ``num_experts`` at least ``top_k``, which is 1 to TOPK_MAX; everything in range.
    vram_read : Out(shapes.vram_read)
    fp_write : Out(shapes.fp_mem_write)
    int_write : Out(shapes.int_mem_write)
    done : Out(Completion)
        In the cycle of the last ``fp_write``.

    A logit per cycle, without a pause between rows. Cycle 0 is the one with ``issue.valid`` and
    ``issue.ready``; E experts, of which k are selected::

        cycle  0          1 .. E   E+1     E+2 .. E+1+k     E+2 .. E+25+k   E+25+k .. E+24+2k
               address    logits,  last    indices written, differences,    weights written;
               of row 0   ranked   placed  logits to the    exponentials,   done in the last cycle
                                           softmax          sum, division

    ``ready`` is high again in the cycle after ``done``: an instruction takes E + 2k + 25 cycles. ::

        issue --vram_read--> lane --key--> RankedList --> index --> int_write
                                               \\--> SelectedSoftmax --> weight --> fp_write
    """

    issue: stream.Interface
    vram_read: Any
    fp_write: data.View
    int_write: data.View
    done: data.View

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._shapes = shapes = Shapes(config)
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.topk_issue)),
                "vram_read": Out(shapes.vram_read),
                "fp_write": Out(shapes.fp_mem_write),
                "int_write": Out(shapes.int_mem_write),
                "done": Out(Completion),
            }
        )
        self._softmax = SelectedSoftmax(config.TOPK_MAX)

    def latency(self, num_experts: int, top_k: int) -> int:
        """Cycles from issue to completion."""
        return num_experts + 1 + top_k + self._softmax.latency + top_k - 1

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.ranked = ranked = RankedList(self._config.TOPK_MAX)
        m.submodules.softmax = softmax = self._softmax
        issue, read = self.issue.payload, self.vram_read
        job: Any = Signal(self._shapes.topk_issue)
        expert = Signal(EXPERTS_BITS)
        rank = Signal(TOP_K_BITS)
        final_expert = Signal()
        final_rank = Signal()
        picking = Signal()

        # The logit of `expert`, which is in the row on the read port.
        m.submodules.pick = pick = Module()
        lane = expert[: self._shapes.lane_bits]
        with pick.If(picking):
            logit = read.data.as_value().word_select(lane, BF16_BITS)
            pick.d.comb += [
                ranked.insert.eq(1),
                ranked.key.eq(key_of(logit)),
                ranked.index.eq(expert),
            ]
        m.d.comb += [
            final_expert.eq(expert + 1 == job.num_experts),
            final_rank.eq(rank + 1 == job.top_k),
        ]

        with m.FSM():
            with m.State("Idle"):
                m.d.comb += [
                    self.issue.ready.eq(1),
                    ranked.clear.eq(self.issue.valid),
                    read.en.eq(self.issue.valid),
                    read.row.eq(issue.row),
                ]
                with m.If(self.issue.valid):
                    m.d.sync += [job.eq(issue), expert.eq(0), rank.eq(0)]
                    m.next = "Rank logits"
            with m.State("Rank logits"):
                m.d.comb += picking.eq(1)
                m.d.sync += expert.eq(expert + 1)
                with m.If(final_expert):
                    m.next = "Place the last"
                with m.Elif(lane.all()):
                    m.d.comb += [read.en.eq(1), read.row.eq(job.row + 1)]
                    m.d.sync += job.row.eq(job.row + 1)
            with m.State("Place the last"):
                m.next = "Weigh"
            with m.State("Weigh"):
                m.d.comb += [
                    ranked.shift.eq(1),
                    softmax.load.eq(1),
                    softmax.first.eq(rank == 0),
                    softmax.last.eq(final_rank),
                    self.int_write.valid.eq(1),
                ]
                m.d.sync += [rank.eq(rank + 1), job.index_address.eq(job.index_address + 1)]
                with m.If(final_rank):
                    m.next = "Await weights"
            with m.State("Await weights"):
                with m.If(softmax.weight_valid):
                    m.d.sync += job.weight_address.eq(job.weight_address + 1)
                with m.If(softmax.weight_last):
                    m.d.comb += self.done.valid.eq(1)
                    m.next = "Idle"

        m.submodules.results = results = Module()
        results.d.comb += [
            softmax.key.eq(ranked.first.key),
            self.int_write.address.eq(job.index_address),
            self.int_write.value.eq(ranked.first.index),
            self.fp_write.valid.eq(softmax.weight_valid),
            self.fp_write.address.eq(job.weight_address),
            self.fp_write.value.eq(softmax.weight),
            self.done.tag.eq(job.tag),
        ]
        return m
