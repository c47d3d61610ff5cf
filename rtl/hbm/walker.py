"""The request side: instructions to rows, rows to beats."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.hbm.plan import BEAT_BYTES, OFFSET_BITS, Answer, Plan, Transfer
from rtl.interfaces import HBM_ADDRESS_BITS


class RowWalker(wiring.Component):
    """Turns instructions into rows, one per cycle, also from one instruction to the next.

    Latency: a row shows one cycle after its instruction (or the row before) does.

    Row r's elements start at `elements + r * stride`, its scales at `scales + r * stride /
    MX_BLOCK`, both modulo 2**48. The beat comparison needs only the row before: the last beat that
    a row uses is the last one that was requested for its stream, whether the row requested it or
    found it there.

    Members
    -------
    i : In(stream of Plan.walk), an instruction
    o : Out(stream of Plan.row)
    """

    i: Any
    o: Any

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        super().__init__(
            {"i": In(stream.Signature(plan.walk)), "o": Out(stream.Signature(plan.row))}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        plan, config = self._plan, self._plan.config
        walk, row = self.i.payload, self.o.payload

        index = Signal(plan.row_index_bits)
        next_elements = Signal(HBM_ADDRESS_BITS)
        next_scales = Signal(HBM_ADDRESS_BITS)
        first = Signal(init=1)
        advance = Signal()
        last = Signal()
        with m.Switch(walk.transfer):
            with m.Case(Transfer.MATRIX):
                m.d.comb += last.eq(index == config.m_prefetch - 1)
            with m.Case(Transfer.VECTOR):
                m.d.comb += last.eq(index == config.v_prefetch - 1)
            with m.Case(Transfer.STORE):
                m.d.comb += last.eq(index == config.v_writeback - 1)
        m.d.comb += [
            advance.eq(self.i.valid & (~self.o.valid | self.o.ready)),
            self.i.ready.eq(advance & last),
        ]

        elements = Signal(HBM_ADDRESS_BITS)
        scales = Signal(HBM_ADDRESS_BITS)
        m.d.comb += [
            elements.eq(Mux(first, walk.elements, next_elements)),
            scales.eq(Mux(first, walk.scales, next_scales)),
        ]
        write = walk.transfer == Transfer.STORE

        def describe(into: Any, address: Signal, unit: int, units: int) -> None:
            """Fill one stream of the row: `units` pieces of `unit` bytes from `address` on."""
            name = address.name
            beat, offset = address[OFFSET_BITS:], address[:OFFSET_BITS]
            straddle = offset > BEAT_BYTES - unit
            end = Signal(len(beat), name=f"{name}_end")  # the last beat of the row before
            m.d.sync += [
                into.beat.eq(beat),
                into.offset.eq(offset),
                into.straddle.eq(straddle),
                into.reuse.eq(~first & ~write & (beat == end)),
                end.eq(beat + (units - 1) + straddle),
            ]

        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(advance):
            m.d.sync += [
                self.o.valid.eq(1),
                row.write.eq(write),
                row.tag.eq(walk.tag),
                row.last.eq(last),
                first.eq(last),
                index.eq(Mux(last, 0, index + 1)),
                next_elements.eq(elements + walk.stride),
                next_scales.eq(scales + (walk.stride >> plan.block_bits)),
            ]
            describe(row.elements, elements, plan.chunk_bytes, plan.chunks)
            describe(row.scales, scales, plan.scale_bytes, 1)
        return m


class BeatWalker(wiring.Component):
    """Turns rows into requests, and tells the response side what to do with each answer.

    One step per cycle: a scale beat (at most two per row), then the element beats. A row that finds
    all its beats held takes one step without a request. Requests leave from registers, one cycle
    after the row shows; they stop while HBM_OUTSTANDING answers are awaited or not yet `returned`
    by the response buffer.

    A write takes its bytes from `packed`, which is released with the row's last beat. Each beat is
    one shift by bytes of the neighbouring pair of chunks, and its strobe the same shift of ones::

        chunk k-1 | chunk k      for beat k, taken from byte 64 - offset on
             `----- beat -----'

    Members
    -------
    row : In(stream of Plan.row)
    packed : In(stream of Plan.packed), the converted rows of the stores, in order
    request : Out(Shapes.hbm_request)
    step : Out(stream of Plan.step), in the cycle in which its request is put in the register
    returned : In(1), a response has been consumed
    """

    row: Any
    packed: Any
    request: Any
    step: Any
    returned: Signal

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        super().__init__(
            {
                "row": In(stream.Signature(plan.row)),
                "packed": In(stream.Signature(plan.packed)),
                "request": Out(plan.shapes.hbm_request),
                "step": Out(stream.Signature(plan.step)),
                "returned": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        plan = self._plan
        outstanding = plan.config.HBM_OUTSTANDING
        row, step, request = self.row.payload, self.step.payload, self.request

        # Where in the row: the scale beats come first, unless the row before has brought them all.
        scales_done = Signal()
        position = Signal(range(plan.chunks + 1))
        in_scales = Signal()
        k = Signal.like(position)
        stream_end = Signal()  # this is the stream's last beat of the row
        m.d.comb += in_scales.eq(~scales_done & (~row.scales.reuse | row.scales.straddle))
        with m.If(in_scales):
            m.d.comb += [
                k.eq(position[0] | row.scales.reuse),
                stream_end.eq(k[0] == row.scales.straddle),
            ]
        with m.Else():
            # A held first beat of a straddling chunk is passed over: it completes nothing.
            held_head = row.elements.reuse & row.elements.straddle & (position == 0)
            m.d.comb += [
                k.eq(position | held_head),
                stream_end.eq(k == plan.chunks - 1 + row.elements.straddle),
            ]

        take = Signal()
        m.d.comb += take.eq(in_scales | ~row.elements.reuse | (k != 0))
        credit = Signal(range(outstanding + 1), init=outstanding)
        may_request = (credit != 0) & (~request.valid | request.ready)
        allowed = (~take | may_request) & (~row.write | self.packed.valid)
        fire = Signal()
        row_end = Signal()
        m.d.comb += [
            self.step.valid.eq(self.row.valid & allowed),
            fire.eq(self.step.valid & self.step.ready),
            row_end.eq(~in_scales & stream_end),
            self.row.ready.eq(fire & row_end),
            self.packed.ready.eq(fire & row_end & row.write),
        ]
        with m.If(fire):
            m.d.sync += position.eq(Mux(stream_end, 0, k + 1))
            with m.If(stream_end):
                m.d.sync += scales_done.eq(in_scales)
        with m.If((fire & take) != self.returned):
            m.d.sync += credit.eq(Mux(self.returned, credit + 1, credit - 1))

        m.d.comb += [
            step.chunk.eq(~in_scales & ~row.write & ((k != 0) | ~row.elements.straddle)),
            step.index.eq(k - row.elements.straddle),
            step.element_shift.eq(Cat(row.elements.offset, ~row.elements.straddle)),
            step.scale_shift.eq(Cat(row.scales.offset, ~row.scales.straddle)),
            step.row_last.eq(row_end),
            step.last.eq(row_end & row.last),
        ]
        with m.If(row.write):
            m.d.comb += step.answer.eq(Answer.WRITTEN)
        with m.Elif(in_scales):
            m.d.comb += step.answer.eq(Answer.SCALES)
        with m.Elif(take):
            m.d.comb += step.answer.eq(Answer.ELEMENTS)

        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(fire & take):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.address.eq(Mux(in_scales, row.scales.beat, row.elements.beat) + k),
                request.payload.write.eq(row.write),
                request.payload.tag.eq(row.tag),
            ]
            with m.If(row.write):
                packed = self.packed.payload
                with m.If(in_scales):
                    beat, strobe = _write_beat(
                        packed.scales, plan.scale_bytes, k, row.scales.offset
                    )
                    m.d.sync += [request.payload.data.eq(beat), request.payload.strobe.eq(strobe)]
                with m.Else():
                    beat, strobe = _write_beat(
                        packed.codes, plan.config.MLEN, k, row.elements.offset
                    )
                    m.d.sync += [request.payload.data.eq(beat), request.payload.strobe.eq(strobe)]
        return m


def _write_beat(bytes_of_row: Value, count: int, k: Value, offset: Value) -> tuple[Value, Value]:
    """Return beat `k`, and its strobe, of a row of `count` bytes from `offset` in beat 0 on."""
    after = -count % BEAT_BYTES + BEAT_BYTES  # the last beat holds no byte beyond the row

    def shifted(row: Value, unit: int) -> Value:
        width = BEAT_BYTES * unit
        padded = Cat(Const(0, width), row, Const(0, after * unit))  # chunk -1, the chunks, nothing
        low, high = padded.word_select(k, width), padded[width:].word_select(k, width)
        back = (BEAT_BYTES - offset)[: OFFSET_BITS + 1]
        scale = unit.bit_length() - 1
        return (Cat(low, high) >> Cat(Const(0, scale), back))[:width]

    return shifted(bytes_of_row, 8), shifted(Const((1 << count) - 1, count), 1)
