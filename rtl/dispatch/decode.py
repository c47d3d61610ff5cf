"""Instruction decode: the control bits of every opcode, derived from the ISA table."""

from typing import Any

from amaranth.hdl import Module, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from isa.config import PlenaConfig
from isa.opcodes import OPCODES, Access, Extent, Op, Opcode, State, Unit
from isa.operands import FIELDS, REGISTER_COUNT, Kind


class Source(enum.Enum, shape=2):
    """The register whose value an address starts from."""

    RD = 0
    RS1 = 1
    RS2 = 2


_SOURCE = {"rd": Source.RD, "rs1": Source.RS1, "rs2": Source.RS2}


def completes_at_dispatch(op: Opcode) -> bool:
    """Whether the instruction is over in its dispatch cycle: control, and integer arithmetic on
    registers."""
    return op.unit is Unit.CONTROL or (
        op.unit is Unit.SCALAR
        and not op.accesses
        and any(o.writes and o.kind is Kind.GP for o in op.operands)
    )


def rows_of(extent: Extent, config: PlenaConfig) -> int:
    """Vector SRAM rows of an access; 1 where they depend on a register: a strided write, V_TOPK."""
    return {
        Extent.ROW: 1,
        Extent.BLEN_LANES: 1,
        Extent.STRIDED_ROWS: 1,
        Extent.TOPK_ROWS: 1,
        Extent.BLEN_ROWS: config.BLEN,
        Extent.MLEN_ROWS: config.MLEN,
        Extent.PREFETCH_ROWS: config.v_prefetch,
        Extent.WRITEBACK_ROWS: config.v_writeback,
        Extent.HEAD_ROWS: config.heads,
        Extent.HEAD_TILES: config.heads * config.MLEN,
    }[extent]


def row_alignment(extent: Extent, config: PlenaConfig) -> int:
    """What a vector SRAM element address must be a multiple of."""
    return config.BLEN if extent in (Extent.STRIDED_ROWS, Extent.BLEN_LANES) else config.MLEN


def tile_offset_mask(extent: Extent, config: PlenaConfig) -> int:
    """The bits of a matrix SRAM address that must be zero."""
    tile = config.tile_elements - 1
    return {
        Extent.TILE: tile,
        Extent.COLUMN_GROUP: config.BLEN * config.MLEN - 1,
        Extent.HEAD_SLICE_ROWS: config.HLEN * config.MLEN - 1,
        Extent.HEAD_SLICE_COLUMNS: (config.HLEN - 1) | (tile & ~(config.MLEN - 1)),
    }[extent]


def control_layout(config: PlenaConfig) -> data.StructLayout:
    """The control bits of one instruction."""
    rows = ceil_log2(config.heads * config.MLEN + 1)
    return data.StructLayout(
        {
            "unit": Unit,
            "immediate": 1,  # over in its dispatch cycle
            "gp_reads": data.StructLayout({"rd": 1, "rs1": 1, "rs2": 1}),
            "f_reads": data.StructLayout({"rd": 1, "rs1": 1, "rs2": 1}),
            "gp_writes": 1,
            "f_writes": 1,
            "a_reads": 1,
            "a_writes": 1,
            # Vector SRAM: a first read (rows), a second read (one row), a write (rows, maybe
            # strided).
            "a_valid": 1,
            "a_source": Source,
            "a_rows": rows,
            "b_valid": 1,
            "w_valid": 1,
            "w_imm": 1,
            "w_rows": rows,
            "w_lanes": 1,  # BLEN-aligned lanes of each row instead of whole rows
            "w_strided": 1,
            # Matrix SRAM: one tile, read or written.
            "m_reads": 1,
            "m_writes": 1,
            "m_source": Source,
            "m_plus_rd": 1,
            "m_mask": unsigned(2 * ceil_log2(config.MLEN)),
            # Word memories.
            "fp_reads": 1,
            "fp_writes": 1,
            "fp_row": 1,  # VLEN words instead of one
            "int_reads": 1,
            "int_writes": 1,
            "topk": 1,
            "hbm_reads": 1,
            "hbm_writes": 1,
            "masked": 1,  # has an rmask field that selects V_MASK
        }
    )


def _first(op: Opcode, state: State, *, writes: bool) -> Access | None:
    found = op.access(state, writes=writes)
    return found[0] if found else None


def control_of(op: Opcode, config: PlenaConfig) -> dict[str, Any]:
    """The control bits of `op`, as an initialiser of `control_layout`."""
    reads: dict[Kind, dict[str, int]] = {kind: {} for kind in REGISTER_COUNT}
    writes = dict.fromkeys(REGISTER_COUNT, 0)
    for operand in op.operands:
        if operand.is_register and operand.reads:
            reads[operand.kind][operand.field.name] = 1
        if operand.is_register and operand.writes:
            writes[operand.kind] = 1
    bits: dict[str, Any] = {
        "unit": op.unit,
        "immediate": int(completes_at_dispatch(op)),
        "gp_reads": reads[Kind.GP],
        "f_reads": reads[Kind.F],
        "gp_writes": writes[Kind.GP],
        "f_writes": writes[Kind.F],
        "a_reads": int(bool(reads[Kind.A])),
        "a_writes": writes[Kind.A],
        "topk": int(op.unit is Unit.TOPK),
        "masked": int(bool(op.access(State.V_MASK, writes=False))),
        "hbm_reads": int(bool(op.access(State.HBM_MEMORY, writes=False))),
        "hbm_writes": int(bool(op.access(State.HBM_MEMORY, writes=True))),
    }
    vector = op.access(State.VECTOR_SRAM, writes=False)
    if vector:
        bits |= {
            "a_valid": 1,
            "a_source": _SOURCE[vector[0].base[0]],
            "a_rows": rows_of(vector[0].extent, config),
        }
    if len(vector) > 1:
        assert vector[1].base == ("rs2",), f"{op.mnemonic}: the second vector operand is rs2"
        bits["b_valid"] = 1
    if (target := _first(op, State.VECTOR_SRAM, writes=True)) is not None:
        assert target.base == ("rd",), f"{op.mnemonic}: vector SRAM is written at gp[rd]"
        bits |= {
            "w_valid": 1,
            "w_imm": int(target.imm),
            "w_rows": rows_of(target.extent, config),
            "w_lanes": int(row_alignment(target.extent, config) != config.MLEN),
            "w_strided": int(target.extent is Extent.STRIDED_ROWS),
        }
    for tile, name in (
        (_first(op, State.MATRIX_SRAM, writes=False), "m_reads"),
        (_first(op, State.MATRIX_SRAM, writes=True), "m_writes"),
    ):
        if tile is not None:
            bits |= {
                name: 1,
                "m_source": _SOURCE[tile.base[0]],
                "m_plus_rd": int(len(tile.base) > 1),
                "m_mask": tile_offset_mask(tile.extent, config),
            }
    for state, prefix in ((State.FP_MEM, "fp"), (State.INT_MEM, "int")):
        for writes_, suffix in ((False, "reads"), (True, "writes")):
            if (word := _first(op, state, writes=writes_)) is not None:
                bits[f"{prefix}_{suffix}"] = 1
                if word.extent is Extent.ROW_WORDS:
                    bits["fp_row"] = 1
    return bits


class Decoder(wiring.Component):
    """Decodes one word, combinationally.

    Members: `word` in; `op`, `control` (of a defined opcode, else zeros), `legal_opcode`,
    `legal_encoding`, `legal_registers` out. The three verdicts are independent; the dispatcher
    reports the first that fails.
    """

    word: Any
    op: Any
    control: Any
    legal_opcode: Any
    legal_encoding: Any
    legal_registers: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self.control_layout = control_layout(config)
        super().__init__(
            {
                "word": In(32),
                "op": Out(Op),
                "control": Out(self.control_layout),
                "legal_opcode": Out(1),
                "legal_encoding": Out(1),
                "legal_registers": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def field(name: str):
            f = FIELDS[name]
            return self.word[f.base : f.base + f.width]

        m.d.comb += self.op.eq(field("opcode"))
        with m.Switch(field("opcode")):
            for op in OPCODES.values():
                with m.Case(op.code):
                    control: Any = control_of(op, self._config)
                    flags_legal = [
                        sum((field(o.field.name) == value for value in o.allowed), start=0)
                        for o in op.operands
                        if o.allowed
                    ]
                    indices = [
                        field(o.field.name) < REGISTER_COUNT[o.kind]
                        for o in op.operands
                        if o.is_register and REGISTER_COUNT[o.kind] <= o.field.limit
                    ]
                    encoding = (self.word & (0xFFFFFFFF ^ op.used_mask)) == 0
                    for legal in flags_legal:
                        encoding = encoding & (legal != 0)
                    registers = 1
                    for legal in indices:
                        registers = registers & legal
                    m.d.comb += [
                        self.control.eq(self.control_layout.const(control)),
                        self.legal_opcode.eq(1),
                        self.legal_encoding.eq(encoding),
                        self.legal_registers.eq(registers),
                    ]
        return m
