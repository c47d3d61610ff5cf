"""Payloads and ports between the blocks of the machine; every boundary's layout is declared here.

Signatures are written from the initiator's side (the unit that asks); the memory or the dispatcher
flips them.
"""

from functools import cached_property

from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from isa.config import PlenaConfig
from isa.opcodes import Op
from isa.stages import Stage
from isa.topk import EXPERTS_BITS, TOP_K_BITS

PC_BITS = 21  # an instruction memory of at most 2**20 words, and the pc one past its end
SLOT_BITS = 6  # at most 64 unfinished instructions
HBM_ADDRESS_BITS = 48  # bytes
BF16_BITS = 16


class Tag(data.Struct):
    """What travels with an instruction from dispatch to completion and to every memory request."""

    pc: unsigned(PC_BITS)
    stage: Stage
    slot: unsigned(SLOT_BITS)


class Completion(data.Struct):
    """A unit finished the instruction `tag`: all its writes are in the memories after this cycle's
    clock edge."""

    valid: unsigned(1)
    tag: Tag


class FpWrite(data.Struct):
    """A unit writes f[index] at the end of this cycle."""

    valid: unsigned(1)
    index: unsigned(3)
    value: unsigned(BF16_BITS)


class GpWrite(data.Struct):
    """A unit writes gp[index] at the end of this cycle."""

    valid: unsigned(1)
    index: unsigned(4)
    value: unsigned(32)


class AddressWrite(data.Struct):
    """The dispatcher writes a[index] at the end of this cycle."""

    valid: unsigned(1)
    index: unsigned(3)
    value: unsigned(64)


class HbmRequest(data.Struct):
    """One beat of 64 bytes; `address` counts beats. A write changes the bytes whose strobe bit is
    set."""

    address: unsigned(HBM_ADDRESS_BITS - 6)
    write: unsigned(1)
    data: unsigned(512)
    strobe: unsigned(64)
    tag: Tag


class HbmResponse(data.Struct):
    """The answer to one request, in request order; writes are answered too (data is then
    meaningless)."""

    data: unsigned(512)
    error: unsigned(1)


class Shapes:
    """The layouts that depend on the configuration."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config = config
        self.lane_bits = ceil_log2(config.MLEN)
        self.row_bits = ceil_log2(config.VRAM_ROWS)
        self.tile_bits = max(1, ceil_log2(config.MRAM_TILES))
        self.fp_mem_bits = ceil_log2(config.FP_MEM_WORDS)
        self.int_mem_bits = ceil_log2(config.INT_MEM_WORDS)

    @cached_property
    def row(self) -> data.ArrayLayout:
        """A vector SRAM row, or a row or column of a matrix tile: MLEN BF16 lanes, lane 0 in the
        low bits."""
        return data.ArrayLayout(BF16_BITS, self.config.MLEN)

    @cached_property
    def matrix_issue(self) -> data.StructLayout:
        """M_*: operand addresses are resolved and checked."""
        return data.StructLayout(
            {
                "tag": Tag,
                "op": Op,
                "tile": self.tile_bits,
                "index": self.lane_bits,  # first column or row of the group, or of the heads' slice
                "row": self.row_bits,  # first vector SRAM row: read, or the write-out's target
                "lane": self.lane_bits,  # write-out: first lane
                "stride": self.row_bits,  # write-out: rows between rows
            }
        )

    @cached_property
    def vector_issue(self) -> data.StructLayout:
        """V_* but V_TOPK."""
        return data.StructLayout(
            {
                "tag": Tag,
                "op": Op,
                "a_row": self.row_bits,
                "b_row": self.row_bits,
                "d_row": self.row_bits,
                "scalar": BF16_BITS,  # value of the f operand; a reduction's starting value
                "f_index": 3,  # a reduction's destination
                "heads": self.config.heads,  # enabled heads; all ones without a mask
                "reverse": 1,  # V_SUB_VF with rorder 1
                "shift": self.lane_bits + 1,  # V_SHFT_V, already clamped to MLEN
            }
        )

    @cached_property
    def scalar_issue(self) -> data.StructLayout:
        """S_* that take more than the dispatch cycle."""
        return data.StructLayout(
            {
                "tag": Tag,
                "op": Op,
                "a": BF16_BITS,
                "b": BF16_BITS,
                "address": max(self.fp_mem_bits, self.int_mem_bits),
                "row": self.row_bits,  # S_MAP_V_FP's target
                "index": 4,  # destination register
                "value": 32,  # S_ST_INT
            }
        )

    @cached_property
    def topk_issue(self) -> data.StructLayout:
        """V_TOPK: the policy is resolved and checked."""
        return data.StructLayout(
            {
                "tag": Tag,
                "op": Op,
                "row": self.row_bits,  # first row of logits
                "num_experts": EXPERTS_BITS,
                "top_k": TOP_K_BITS,
                "index_address": self.int_mem_bits,  # first word of the results
                "weight_address": self.fp_mem_bits,
            }
        )

    @cached_property
    def hbm_issue(self) -> data.StructLayout:
        """H_*: byte addresses of row 0's elements and scales; later rows are `stride` (scales:
        stride/8) further."""
        return data.StructLayout(
            {
                "tag": Tag,
                "op": Op,
                "elements": HBM_ADDRESS_BITS,
                "scales": HBM_ADDRESS_BITS,
                "stride": 32,
                "row": max(self.row_bits, self.tile_bits),  # vector SRAM row, or matrix tile
                "precision": 1,
            }
        )

    @cached_property
    def vram_read(self) -> wiring.Signature:
        """A vector SRAM read port: `data` is the row asked for in the cycle before, and holds
        without `en`."""
        return wiring.Signature({"en": Out(1), "row": Out(self.row_bits), "data": In(self.row)})

    @cached_property
    def vram_write(self) -> wiring.Signature:
        """A vector SRAM write port; `lanes` has a bit per lane."""
        return wiring.Signature(
            {
                "en": Out(1),
                "row": Out(self.row_bits),
                "lanes": Out(self.config.MLEN),
                "data": Out(self.row),
                "tag": Out(Tag),
            }
        )

    @cached_property
    def fp_mem_write(self) -> data.StructLayout:
        """A write of one FP_MEM word."""
        return data.StructLayout({"valid": 1, "address": self.fp_mem_bits, "value": BF16_BITS})

    @cached_property
    def int_mem_write(self) -> data.StructLayout:
        """A write of one INT_MEM word."""
        return data.StructLayout({"valid": 1, "address": self.int_mem_bits, "value": 32})

    @cached_property
    def mram_read(self) -> wiring.Signature:
        """The matrix SRAM read port: column `index` of a tile, or row `index` when `transposed`; a
        cycle later."""
        return wiring.Signature(
            {
                "en": Out(1),
                "tile": Out(self.tile_bits),
                "index": Out(self.lane_bits),
                "transposed": Out(1),
                "data": In(self.row),
            }
        )

    @cached_property
    def mram_write(self) -> wiring.Signature:
        """The matrix SRAM write port: one row of a tile."""
        return wiring.Signature(
            {
                "en": Out(1),
                "tile": Out(self.tile_bits),
                "row": Out(self.lane_bits),
                "data": Out(self.row),
                "tag": Out(Tag),
            }
        )

    @cached_property
    def hbm_request(self) -> stream.Signature:
        """Beats to the memory."""
        return stream.Signature(HbmRequest)

    @cached_property
    def hbm_response(self) -> stream.Signature:
        """Answers from the memory (initiator: the memory); the port takes one in every cycle: ready
        is always high."""
        return stream.Signature(HbmResponse)
