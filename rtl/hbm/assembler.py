"""The response side: answers in order, beats to rows."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.hbm.plan import BEAT_BITS, Answer, Plan
from rtl.interfaces import HbmResponse


class ResponseBuffer(wiring.Component):
    """Takes a response in every cycle, and keeps what the assembler cannot take at once.

    It is needed where one beat holds several rows (MLEN below 64, or overlapping rows): beats may
    then arrive faster than rows leave. Otherwise every response passes through in its own cycle and
    the memory is never written. Kept responses show from two cycles after their arrival. There is
    room for `depth`; the sender counts.

    Members
    -------
    i : In(Shapes.hbm_response)
    o : Out(stream of HbmResponse)
    """

    i: Any
    o: Any

    def __init__(self, depth: int) -> None:
        self._depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(HbmResponse, always_ready=True)),
                "o": Out(stream.Signature(HbmResponse)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.storage = storage = Memory(shape=HbmResponse, depth=self._depth, init=[])
        write, read = storage.write_port(), storage.read_port()
        kept = Signal(range(self._depth + 1))
        produce = Signal(range(self._depth))
        consume = Signal(range(self._depth))
        shown = Signal()  # the read port's data is the oldest kept response
        empty = Signal()
        push = Signal()
        pop = Signal()

        def after(pointer: Signal) -> Value:
            return Mux(pointer == self._depth - 1, 0, pointer + 1)

        m.d.comb += [
            empty.eq(kept == 0),
            push.eq(self.i.valid & ~(empty & self.o.ready)),
            pop.eq(shown & self.o.ready),
            self.o.valid.eq(Mux(empty, self.i.valid, shown)),
            write.addr.eq(produce),
            write.data.eq(self.i.payload),
            write.en.eq(push),
            read.addr.eq(Mux(pop, after(consume), consume)),
            read.en.eq(~empty),
        ]
        with m.If(empty):
            m.d.comb += self.o.payload.eq(self.i.payload)
        with m.Else():
            m.d.comb += self.o.payload.eq(read.data)
        with m.If(push):
            m.d.sync += produce.eq(after(produce))
        with m.If(pop):
            m.d.sync += consume.eq(after(consume))
        with m.If(push != pop):
            m.d.sync += kept.eq(Mux(push, kept + 1, kept - 1))
        # What is written in this cycle cannot be read in it.
        m.d.sync += shown.eq(kept > pop)
        return m


class Assembler(wiring.Component):
    """Carries out the steps: takes the answers, and cuts rows out of a stream's last two beats.

    One step per cycle when its answer is there. Latency: a row shows at `packed` two cycles after
    the last answer it needs::

        cycle 0    answer taken        -> window of its stream (a beat and the last one's end)
        cycle 1    one shift by bytes  -> chunk and its scales
        cycle 2    row at `packed`, described by `landed`

    A chunk that straddles starts at byte `offset` of the pair of beats; one that lies in the newer
    beat starts 64 bytes later.

    From an answer with an error on, no row of its instruction lands; its end does, marked `failed`.

    Members
    -------
    response : In(stream of HbmResponse)
    step : In(stream of Plan.step)
    collect : In(stream of Plan.collect), the instructions; taken with the last step of each
    packed : Out(Plan.packed), chunks keep their value until they are replaced
    landed : Out(valid, payload: Plan.landed)
    consumed : Out(1), a response is taken in this cycle
    """

    response: Any
    step: Any
    collect: Any
    packed: Any
    landed: Any
    consumed: Signal

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        super().__init__(
            {
                "response": In(stream.Signature(HbmResponse)),
                "step": In(stream.Signature(plan.step)),
                "collect": In(stream.Signature(plan.collect)),
                "packed": Out(plan.packed),
                "landed": Out(stream.Signature(plan.landed, always_ready=True)),
                "consumed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        plan = self._plan
        step, collect, response = self.step.payload, self.collect.payload, self.response.payload

        takes = Signal()
        fire = Signal()
        m.d.comb += [
            takes.eq(self.step.valid & (step.answer != Answer.NOTHING)),
            self.response.ready.eq(takes),
            fire.eq(self.step.valid & (~takes | self.response.valid)),
            self.consumed.eq(takes & self.response.valid),
            self.step.ready.eq(fire),
            self.collect.ready.eq(fire & step.last),
        ]

        # Cycle 0: the answer goes into the window of its stream.
        elements = Signal(_window_bits(plan.chunk_bytes))
        scales = Signal(_window_bits(plan.scale_bytes))
        cut = Signal(plan.step)
        cut_valid = Signal()
        cut_for = Signal(plan.collect)
        cut_failed = Signal()
        failed = Signal()
        failing = failed | (takes & response.error)
        m.d.sync += cut_valid.eq(0)
        with m.If(fire):
            m.d.sync += [
                cut_valid.eq(1),
                cut.eq(step),
                cut_for.eq(collect),
                cut_failed.eq(failing),
                failed.eq(failing & ~step.last),
            ]
            with m.If(step.answer == Answer.SCALES):
                m.d.sync += scales.eq(Cat(scales[BEAT_BITS:], response.data))
            with m.If(step.answer == Answer.ELEMENTS):
                m.d.sync += elements.eq(Cat(elements[BEAT_BITS:], response.data))

        # Cycle 1: cut the chunk.
        index = Signal(plan.row_index_bits)
        landed = self.landed.payload
        write = cut.chunk & cut.row_last & ~cut_failed
        m.d.sync += self.landed.valid.eq(0)
        with m.If(cut_valid):
            with m.If(cut.chunk):
                chunk = _from_byte(elements, cut.element_shift, plan.chunk_bytes)
                row_scales = _from_byte(scales, cut.scale_shift, plan.scale_bytes)
                share = len(row_scales) // plan.chunks
                with m.Switch(cut.index):
                    for j in range(plan.chunks):
                        with m.Case(j):
                            m.d.sync += [
                                self.packed.codes.word_select(j, len(chunk)).eq(chunk),
                                self.packed.scales.word_select(j, share).eq(
                                    row_scales.word_select(j, share)
                                ),
                            ]
            with m.If(write | cut.last):
                m.d.sync += [
                    self.landed.valid.eq(1),
                    landed.tag.eq(cut_for.tag),
                    landed.transfer.eq(cut_for.transfer),
                    landed.precision.eq(cut_for.precision),
                    landed.row.eq(cut_for.row),
                    landed.index.eq(index),
                    landed.write.eq(write),
                    landed.last.eq(cut.last),
                    landed.failed.eq(cut_failed),
                ]
            with m.If(cut.last):
                m.d.sync += index.eq(0)
            with m.Elif(write):
                m.d.sync += index.eq(index + 1)
        return m


def _window_bits(count: int) -> int:
    """Of a window that pieces of `count` bytes are cut from: a beat, and as much of the one before
    as a piece in both can have there."""
    return 8 * (count - 1) + BEAT_BITS


def _from_byte(window: Signal, shift: Value, count: int) -> Value:
    """Return `count` bytes of the two beats that `window` is the end of, from byte `shift` on."""
    beats = Cat(Const(0, 2 * BEAT_BITS - len(window)), window)
    return (beats >> Cat(Const(0, 3), shift))[: 8 * count]
