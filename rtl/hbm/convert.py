"""Conversion at the HBM port: rows of MX codes to BF16 lanes, and back, in the dialect of the
configuration.

Both precisions of the configuration are E4M3 under E8M0 scales (`isa.config.MX_FORMATS`). A second
format would be a second column of leaves in `RowDecoder` and `RowEncoder`, each with code registers
of its own, chosen by `precision`.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.hbm.plan import Plan, Transfer
from rtl.interfaces import BF16_BITS, Completion
from rtl.leaves import MxBlockScale, MxDecode, MxEncode


class RowDecoder(wiring.Component):
    """Decodes a row of codes and writes it to the SRAM that its instruction names.

    One row per cycle. Latency: 1; the write is on the port one cycle after `landed`, and `done`
    beside the last one. An answered store passes through likewise, without a write. A failed
    instruction ends with `error` instead of `done`.

    Members
    -------
    packed : In(Plan.packed)
    landed : In(valid, payload: Plan.landed)
    mram_write : Out(Shapes.mram_write)
    vram_write : Out(Shapes.vram_write), all lanes
    done, error : Out(Completion)
    """

    packed: Any
    landed: Any
    mram_write: Any
    vram_write: Any
    done: Any
    error: Any

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        super().__init__(
            {
                "packed": In(plan.packed),
                "landed": In(stream.Signature(plan.landed, always_ready=True)),
                "mram_write": Out(plan.shapes.mram_write),
                "vram_write": Out(plan.shapes.vram_write),
                "done": Out(Completion),
                "error": Out(Completion),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._plan.config
        codes, scales = self.packed.codes, self.packed.scales
        lanes = []
        for lane in range(config.MLEN):
            m.submodules[f"decode_{lane}"] = leaf = MxDecode(dialect=config.mx_dialect)
            leaf.bind(
                code=codes.word_select(lane, 8),
                scale=scales.word_select(lane // config.MX_BLOCK, 8),
            )
            lanes.append(leaf.o)

        landed = self.landed.payload
        matrix, vector = self.mram_write, self.vram_write
        m.d.comb += vector.lanes.eq(~0)
        m.d.sync += [
            matrix.en.eq(0),
            vector.en.eq(0),
            self.done.valid.eq(0),
            self.error.valid.eq(0),
        ]
        with m.If(self.landed.valid):
            with m.If(landed.write & (landed.transfer == Transfer.MATRIX)):
                m.d.sync += [
                    matrix.en.eq(1),
                    matrix.tile.eq(landed.row),
                    matrix.row.eq(landed.index),
                    matrix.data.eq(Cat(lanes)),
                    matrix.tag.eq(landed.tag),
                ]
            with m.If(landed.write & (landed.transfer == Transfer.VECTOR)):
                m.d.sync += [
                    vector.en.eq(1),
                    vector.row.eq(landed.row + landed.index),
                    vector.data.eq(Cat(lanes)),
                    vector.tag.eq(landed.tag),
                ]
            with m.If(landed.last):
                with m.If(landed.failed):
                    m.d.sync += [self.error.valid.eq(1), self.error.tag.eq(landed.tag)]
                with m.Else():
                    m.d.sync += [self.done.valid.eq(1), self.done.tag.eq(landed.tag)]
        return m


class RowEncoder(wiring.Component):
    """Reads the rows of stores from vector SRAM and converts them, ahead of the requests.

    One row per cycle while `packed` is taken. Latency: the first row shows three cycles after its
    store::

        cycle 0    read of vector SRAM
        cycle 1    block scales of the row read -> registers, with the row
        cycle 2    codes                        -> registers
        cycle 3    `packed`

    All stages wait while `packed` waits; the SRAM's data holds without a read.

    Members
    -------
    store : In(stream of a vector SRAM row), the first row of each store
    vram_read : Out(Shapes.vram_read)
    packed : Out(stream of Plan.packed), v_writeback rows for each store
    """

    store: Any
    vram_read: Any
    packed: Any

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        super().__init__(
            {
                "store": In(stream.Signature(plan.shapes.row_bits)),
                "vram_read": Out(plan.shapes.vram_read),
                "packed": Out(stream.Signature(plan.packed)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        plan, config = self._plan, self._plan.config
        read, packed = self.vram_read, self.packed
        block = config.MX_BLOCK

        advance = Signal()
        index = Signal(range(max(2, config.v_writeback)))
        last = index == config.v_writeback - 1
        m.d.comb += [
            advance.eq(~packed.valid | packed.ready),
            read.en.eq(self.store.valid & advance),
            read.row.eq(self.store.payload + index),
            self.store.ready.eq(advance & last),
        ]
        with m.If(read.en):
            m.d.sync += index.eq(0)
            with m.If(~last):
                m.d.sync += index.eq(index + 1)

        read_valid = Signal()  # the SRAM shows a row of ours
        row_valid = Signal()
        row = Signal(BF16_BITS * config.MLEN)
        with m.If(advance):
            m.d.sync += [
                read_valid.eq(self.store.valid),
                row_valid.eq(read_valid),
                packed.valid.eq(row_valid),
            ]
        scales = []
        for b in range(plan.scale_bytes):
            m.submodules[f"scale_{b}"] = leaf = MxBlockScale(block=block, dialect=config.mx_dialect)
            leaf.bind(**{f"i{i}": read.data[b * block + i] for i in range(block)})
            scales.append(leaf.o)
        row_scales = Signal(8 * plan.scale_bytes)
        with m.If(advance & read_valid):
            m.d.sync += [row.eq(read.data), row_scales.eq(Cat(scales))]

        codes = []
        for lane in range(config.MLEN):
            m.submodules[f"encode_{lane}"] = leaf = MxEncode(dialect=config.mx_dialect)
            leaf.bind(
                i=row.word_select(lane, BF16_BITS), scale=row_scales.word_select(lane // block, 8)
            )
            codes.append(leaf.code)
        with m.If(advance & row_valid):
            m.d.sync += [packed.payload.codes.eq(Cat(codes)), packed.payload.scales.eq(row_scales)]
        return m
