"""The HBM port: H_* instructions to beats of memory, and memory's answers to SRAM rows."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.opcodes import Op
from rtl.hbm.assembler import Assembler, ResponseBuffer
from rtl.hbm.convert import RowDecoder, RowEncoder
from rtl.hbm.plan import Plan, Transfer
from rtl.hbm.queue import Queue, share
from rtl.hbm.walker import BeatWalker, RowWalker
from rtl.interfaces import Completion


class HbmPort(wiring.Component):
    """Executes H_PREFETCH_M, H_PREFETCH_V and H_STORE_V in program order.

    Every instruction is `m_prefetch`, `v_prefetch` or `v_writeback` rows of MLEN elements; row r's
    elements start at byte `elements + r * stride`, its block scales at byte `scales + r * stride /
    MX_BLOCK`, at any alignment. The answers come in request order, so instructions complete in
    order. Requests carry their instruction's tag::

        issue -+- walk queue --- RowWalker ---- BeatWalker ---------------- request
               |                                |   |
               +- store queue -- RowEncoder ----+   +- step queue -+
               |                 `- vram_read                      |
               +- collect queue ------------------------------- Assembler
                                                                |  |
                                      response - ResponseBuffer +  +- RowDecoder
                                                                      +- mram_write, vram_write
                                                                      +- done, error

    Beats. A row reads its scale beats, then its element beats; a beat that is the last one that the
    instruction has requested for the same stream is not requested again. So a contiguous, aligned
    64 x 64 tile is 64 + 8 beats. A store writes for every row its scale bytes (1 or 2 beats) and
    then its element bytes, with byte strobes, and never reads.

    Throughput. One beat per cycle, one row per cycle, across instructions too (a row whose beats
    are all held takes a cycle). The stream of requests stops only when memory is not ready,
    HBM_OUTSTANDING answers are awaited, or the queue is empty. HBM_QUEUE instructions may be
    waiting or requesting, `config.INFLIGHT` unfinished. A response is taken in every cycle.

    Latency, in cycles (cycle 0: `issue` is transferred):

    ===============================  =====================================================
    first read request               3
    first write request              5; 3 when its rows were read while the store was queued
    response of a row's last beat    + 3: the row is on the SRAM write port
    `done`, `error`                  with the last row's write; a store's last answer + 3
    prefetch, B beats, in all        3 + (B - 1) + memory latency + 3
    ===============================  =====================================================

    Errors. An instruction that memory has answered with an error ends with `error` in place of
    `done`, at the same point of the order; its rows are not written from the bad beat on. Its other
    requests, and later instructions, go on as usual, so the port always drains and needs no reset.

    Within the port, a store has read its vector SRAM rows before a later prefetch requests its
    first beat.

    Members
    -------
    issue : In(stream of Shapes.hbm_issue)
    request : Out(Shapes.hbm_request)
    response : In(Shapes.hbm_response)
    mram_write, vram_write : Out, SRAM write ports
    vram_read : Out(Shapes.vram_read)
    done : Out(Completion)
    error : Out(Completion), in place of `done`

    Raises
    ------
    ValueError
        The configuration's MX_BLOCK does not fit (see `Plan`).
    """

    issue: Any
    request: Any
    response: Any
    mram_write: Any
    vram_write: Any
    vram_read: Any
    done: Any
    error: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._plan = plan = Plan(config)
        shapes = plan.shapes
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.hbm_issue)),
                "request": Out(shapes.hbm_request),
                "response": In(shapes.hbm_response),
                "mram_write": Out(shapes.mram_write),
                "vram_write": Out(shapes.vram_write),
                "vram_read": Out(shapes.vram_read),
                "done": Out(Completion),
                "error": Out(Completion),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        plan, config = self._plan, self._plan.config

        m.submodules.rows = rows = RowWalker(plan)
        m.submodules.beats = beats = BeatWalker(plan)
        m.submodules.encoder = encoder = RowEncoder(plan)
        m.submodules.responses = responses = ResponseBuffer(config.HBM_OUTSTANDING)
        m.submodules.assembler = assembler = Assembler(plan)
        m.submodules.decoder = decoder = RowDecoder(plan)
        m.submodules.walk_queue = walks = Queue(plan.walk, config.HBM_QUEUE)
        m.submodules.store_queue = stores = Queue(plan.shapes.row_bits, config.HBM_QUEUE)
        m.submodules.collect_queue = collects = Queue(plan.collect, config.INFLIGHT)
        m.submodules.step_queue = steps = Queue(plan.step, max(4, config.HBM_OUTSTANDING))

        share(rows, i=walks.o)
        share(beats, row=rows.o, packed=encoder.packed, step=steps.i, request=self.request)
        share(beats, returned=assembler.consumed)
        share(encoder, store=stores.o, vram_read=self.vram_read)
        share(responses, i=self.response)
        share(assembler, response=responses.o, step=steps.o, collect=collects.o)
        share(decoder, packed=assembler.packed, landed=assembler.landed)
        share(decoder, done=self.done, error=self.error)
        share(decoder, mram_write=self.mram_write, vram_write=self.vram_write)

        # A store leaves its own queue before it leaves the walk queue, so that never fills first.
        issue, walk, collect = self.issue.payload, walks.i.payload, collects.i.payload
        accept = self.issue.ready & self.issue.valid
        m.d.comb += [
            self.response.ready.eq(1),
            self.issue.ready.eq(walks.i.ready & collects.i.ready),
            walks.i.valid.eq(accept),
            collects.i.valid.eq(accept),
            stores.i.valid.eq(accept & (issue.op == Op.H_STORE_V)),
            stores.i.payload.eq(issue.row),
            walk.elements.eq(issue.elements),
            walk.scales.eq(issue.scales),
            walk.stride.eq(issue.stride),
            walk.tag.eq(issue.tag),
            collect.tag.eq(issue.tag),
            collect.row.eq(issue.row),
            collect.precision.eq(issue.precision),
        ]
        with m.Switch(issue.op):
            for op, transfer in (
                (Op.H_PREFETCH_M, Transfer.MATRIX),
                (Op.H_PREFETCH_V, Transfer.VECTOR),
                (Op.H_STORE_V, Transfer.STORE),
            ):
                with m.Case(op):
                    m.d.comb += [walk.transfer.eq(transfer), collect.transfer.eq(transfer)]
        return m
