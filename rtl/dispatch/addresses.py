"""Address resolution: operand registers to rows, tiles, words and HBM bytes, with the range and
alignment checks."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.opcodes import Unit
from isa.topk import EXPERTS_BITS, TOP_K_BITS
from rtl.dispatch.decode import Source, control_layout
from rtl.dispatch.scoreboard import footprint_layout
from rtl.interfaces import HBM_ADDRESS_BITS, Shapes


class AddressResolver(wiring.Component):
    """Resolves one instruction, combinationally; nothing wraps: a sum beyond its memory is out of
    range.

    Members (in): `control`; `rd`, `rs1`, `rs2` (register values), `imm` (18 bits), `base` (a
    register, 64 bits), `scale`, `stride` (state registers), `use_stride` (rstride),
    `has_stride_register`: the write-out has a stride register; `topk_rows`, `topk_words`: what a
    V_TOPK reads and writes.

    Members (out): `footprint` for the scoreboard; `lane` (write-out offset), `row_stride`,
    `tile_index` (first column or row), `word` (FP_MEM or INT_MEM address), `hbm_elements`,
    `hbm_scales`, `hbm_stride`; and a verdict per memory, `matrix_bad`, `vector_bad`, `fp_bad`,
    `int_bad`, `hbm_bad`, each with the offending address beside it (`matrix_address`, ...;
    `word_address` is FP_MEM's unless only INT_MEM's is bad).
    """

    control: Any
    rd: Any
    rs1: Any
    rs2: Any
    imm: Any
    base: Any
    scale: Any
    stride: Any
    use_stride: Any
    has_stride_register: Any
    topk_rows: Any
    topk_words: Any
    footprint: Any
    lane: Any
    row_stride: Any
    tile_index: Any
    word: Any
    hbm_elements: Any
    hbm_scales: Any
    hbm_stride: Any
    matrix_bad: Any
    matrix_address: Any
    vector_bad: Any
    vector_address: Any
    fp_bad: Any
    int_bad: Any
    word_address: Any
    hbm_bad: Any
    hbm_address: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._shapes = shapes = Shapes(config)
        super().__init__(
            {
                "control": In(control_layout(config)),
                "rd": In(32),
                "rs1": In(32),
                "rs2": In(32),
                "imm": In(18),
                "base": In(64),
                "scale": In(32),
                "stride": In(32),
                "use_stride": In(1),
                "has_stride_register": In(1),
                "topk_rows": In(EXPERTS_BITS + 1 - shapes.lane_bits),
                "topk_words": In(TOP_K_BITS),
                "footprint": Out(footprint_layout(config)),
                "lane": Out(shapes.lane_bits),
                "row_stride": Out(shapes.row_bits),
                "tile_index": Out(shapes.lane_bits),
                "word": Out(max(shapes.fp_mem_bits, shapes.int_mem_bits)),
                "hbm_elements": Out(HBM_ADDRESS_BITS),
                "hbm_scales": Out(HBM_ADDRESS_BITS),
                "hbm_stride": Out(32),
                "matrix_bad": Out(1),
                "matrix_address": Out(33),
                "vector_bad": Out(1),
                "vector_address": Out(33),
                "fp_bad": Out(1),
                "int_bad": Out(1),
                "word_address": Out(33),
                "hbm_bad": Out(1),
                "hbm_address": Out(64),
            }
        )

    def _select(self, source: Signal) -> Value:
        return Mux(source == Source.RS1, self.rs1, Mux(source == Source.RS2, self.rs2, self.rd))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.vector = self._vector()
        m.submodules.matrix = self._matrix()
        m.submodules.words = self._words()
        m.submodules.hbm = self._hbm()
        return m

    def _vector(self) -> Module:
        """Rows read and written in vector SRAM; an operand that is not whole rows is BLEN-aligned
        lanes."""
        m = Module()
        control, out, config = self.control, self.footprint, self._config
        lane_bits, rows = self._shapes.lane_bits, config.VRAM_ROWS
        blen_bits = config.BLEN.bit_length() - 1
        m.d.comb += out.unit.eq(control.unit)
        with m.If(control.a_valid):
            a = Signal(32)
            a_row = a[lane_bits:]
            a_rows = Mux(control.topk, self.topk_rows, control.a_rows)
            m.d.comb += [
                a.eq(self._select(control.a_source)),
                out.a_valid.eq(1),
                out.a_first.eq(a_row),
                out.a_end.eq(a_row + a_rows),
            ]
            with m.If((a[:lane_bits] != 0) | (a_row + a_rows > rows)):
                m.d.comb += [self.vector_bad.eq(1), self.vector_address.eq(a)]
        with m.If(control.b_valid):
            b_row = self.rs2[lane_bits:]
            m.d.comb += [out.b_valid.eq(1), out.b_row.eq(b_row)]
            with m.If((self.rs2[:lane_bits] != 0) | (b_row >= rows)):
                m.d.comb += [self.vector_bad.eq(1), self.vector_address.eq(self.rs2)]
        with m.If(control.w_valid):
            w = Signal(33)
            reach = Signal(range(config.BLEN * (1 << 32)))
            row_stride = Mux(self.has_stride_register, self.rs1, 1)
            w_row = w[lane_bits:]
            misaligned = Mux(control.w_lanes, w[:blen_bits] != 0, w[:lane_bits] != 0)
            m.d.comb += [
                w.eq(self.rd + Mux(control.w_imm, self.imm, 0)),
                reach.eq(
                    Mux(control.w_strided, row_stride * (config.BLEN - 1) + 1, control.w_rows)
                ),
                out.w_valid.eq(1),
                out.w_first.eq(w_row),
                out.w_end.eq(w_row + reach),
                self.lane.eq(w[:lane_bits]),
                self.row_stride.eq(row_stride),
            ]
            with m.If(misaligned | (w_row + reach > rows)):
                m.d.comb += [self.vector_bad.eq(1), self.vector_address.eq(w)]
        return m

    def _matrix(self) -> Module:
        """The tile, and the column or row group in it."""
        m = Module()
        control, out = self.control, self.footprint
        lane_bits = self._shapes.lane_bits
        with m.If(control.m_reads | control.m_writes):
            address = Signal(33)
            tile = address[2 * lane_bits :]
            m.d.comb += [
                address.eq(self._select(control.m_source) + Mux(control.m_plus_rd, self.rd, 0)),
                out.m_reads.eq(control.m_reads),
                out.m_writes.eq(control.m_writes),
                out.tile.eq(tile),
                # Row bits or column bits, whichever m_mask lets be other than zero.
                self.tile_index.eq(address[lane_bits : 2 * lane_bits] | address[:lane_bits]),
                self.matrix_address.eq(address),
                self.matrix_bad.eq(
                    ((address[: 2 * lane_bits] & control.m_mask) != 0)
                    | (tile >= self._config.MRAM_TILES)
                ),
            ]
        return m

    def _words(self) -> Module:
        """FP_MEM and INT_MEM words: one or a row of the scalar unit's, `topk_words` of V_TOPK's."""
        m = Module()
        control, out, config = self.control, self.footprint, self._config
        m.d.comb += [
            out.fp_reads.eq(control.fp_reads),
            out.fp_writes.eq(control.fp_writes),
            out.int_reads.eq(control.int_reads),
            out.int_writes.eq(control.int_writes),
        ]
        with m.If(control.unit == Unit.SCALAR):
            address = self.word_address
            m.d.comb += [address.eq(self.rs1 + self.imm), self.word.eq(address)]
            with m.If(control.fp_reads | control.fp_writes):
                m.d.comb += self.fp_bad.eq(
                    address + Mux(control.fp_row, config.MLEN, 1) > config.FP_MEM_WORDS
                )
            with m.If(control.int_reads | control.int_writes):
                m.d.comb += self.int_bad.eq(address >= config.INT_MEM_WORDS)
        with m.Elif(control.topk):
            # A signal of its own: fp_bad also depends on word_address, in the branch above.
            weights_bad = Signal()
            m.d.comb += [
                weights_bad.eq(self.rd + self.topk_words > config.FP_MEM_WORDS),
                self.fp_bad.eq(weights_bad),
                self.int_bad.eq(self.rs2 + self.topk_words > config.INT_MEM_WORDS),
                self.word_address.eq(Mux(weights_bad, self.rd, self.rs2)),
            ]
        return m

    def _hbm(self) -> Module:
        """Byte addresses of the first row's elements and scales, and the check that the last byte
        exists."""
        m = Module()
        control, config = self.control, self._config
        with m.If(control.hbm_reads | control.hbm_writes):
            last = max(config.m_prefetch, config.v_prefetch, config.v_writeback) - 1
            stride = self.hbm_stride
            elements = Signal(66)
            scales = Signal(66)
            rows = Signal(range(last + 1))
            reach = Signal(32 + rows.shape().width)
            block_bits = config.MX_BLOCK.bit_length() - 1
            with m.If(control.m_writes):
                m.d.comb += rows.eq(config.m_prefetch - 1)
            with m.Elif(control.hbm_writes):
                m.d.comb += rows.eq(config.v_writeback - 1)
            with m.Else():
                m.d.comb += rows.eq(config.v_prefetch - 1)
            m.d.comb += [
                stride.eq(Mux(self.use_stride, self.stride, config.MLEN)),
                reach.eq(rows * stride),
                elements.eq(self.base + self.rs1),
                scales.eq(self.base + self.scale + self.rs1[block_bits:]),
                self.hbm_elements.eq(elements),
                self.hbm_scales.eq(scales),
                self.hbm_address.eq(elements),
                self.hbm_bad.eq(
                    (self.rs1[:block_bits] != 0)
                    | (stride[:block_bits] != 0)
                    | (elements + reach + config.MLEN > config.HBM_BYTES)
                    | (
                        scales + reach[block_bits:] + config.MLEN // config.MX_BLOCK
                        > config.HBM_BYTES
                    )
                ),
            ]
        return m
