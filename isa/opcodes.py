"""The instruction set, declared once as data: encoder, decoder, disassembler, RTL decode and the
architectural machine are loops over `OPCODES` (isa.md, "Opcodes").
"""

import enum as python_enum
from dataclasses import dataclass
from typing import Any

from amaranth.lib import enum

from isa.operands import (
    FIELDS,
    IMM18,
    IMM22,
    IMM_UPPER,
    PRECISION,
    RMASK,
    RMASK_TOPK,
    RORDER,
    RSTRIDE,
    ZERO_RD,
    Kind,
    Operand,
    address,
    address_out,
    fp,
    fp_out,
    gp,
    gp_out,
)


class Unit(enum.IntEnum, shape=3):
    """The unit that executes an instruction."""

    CONTROL = 0
    SCALAR = 1
    VECTOR = 2
    MATRIX = 3
    HBM = 4
    TOPK = 5


class State(python_enum.Enum):
    """Architectural state beyond the register files, as instructions read and write it."""

    MATRIX_SRAM = "matrix SRAM"
    VECTOR_SRAM = "vector SRAM"
    FP_MEM = "FP_MEM"
    INT_MEM = "INT_MEM"
    HBM_MEMORY = "HBM"
    M_ACC = "m_acc"
    V_ACC = "v_acc"
    HM_ACC = "hm_acc"
    HV_ACC = "hv_acc"
    SCALE = "SCALE"
    STRIDE = "STRIDE"
    V_MASK = "V_MASK"
    TOPK_POLICY = "TOPK"
    LOOP_STACK = "loop stack"


class Extent(python_enum.Enum):
    """How far an access reaches from its address, and what the address must be a multiple of."""

    WHOLE = "the whole state"
    ROW = "one row of VLEN, row-aligned"
    BLEN_ROWS = "BLEN rows of VLEN, row-aligned"
    MLEN_ROWS = "MLEN rows of VLEN, row-aligned"
    PREFETCH_ROWS = "HBM_V_PREFETCH rows of VLEN, row-aligned"
    WRITEBACK_ROWS = "HBM_V_WRITEBACK rows of VLEN, row-aligned"
    TOPK_ROWS = "ceil(num_experts / VLEN) rows, row-aligned"
    STRIDED_ROWS = "BLEN lanes (BLEN-aligned) of BLEN rows, gp[rs1] (or 1) rows apart"
    BLEN_LANES = "BLEN lanes (BLEN-aligned) of one row"
    HEAD_ROWS = "MLEN/HLEN rows, row-aligned"
    HEAD_TILES = "MLEN/HLEN tiles of MLEN rows, row-aligned"
    TILE = "one tile, tile-aligned"
    COLUMN_GROUP = "BLEN columns of a tile; the offset in it a multiple of BLEN*MLEN"
    HEAD_SLICE_ROWS = "HLEN rows of a tile; the offset in it a multiple of HLEN*MLEN"
    HEAD_SLICE_COLUMNS = "HLEN columns of a tile; the offset in it a multiple of HLEN below MLEN"
    WORD = "one word"
    ROW_WORDS = "VLEN consecutive words"
    TOPK_WORDS = "top_k consecutive words"
    HBM_ROWS = "rows of elements and their scales"


@dataclass(frozen=True)
class Access:
    """A read or write of `state` at the sum of the registers named by `base` (and the immediate,
    when `imm`)."""

    state: State
    writes: bool
    base: tuple[str, ...] = ()
    extent: Extent = Extent.WHOLE
    imm: bool = False


def _read(state: State, *base: str, extent: Extent = Extent.WHOLE, imm: bool = False) -> Access:
    return Access(state, False, base, extent, imm)


def _write(state: State, *base: str, extent: Extent = Extent.WHOLE, imm: bool = False) -> Access:
    return Access(state, True, base, extent, imm)


@dataclass(frozen=True)
class Opcode:
    """One row of the instruction set."""

    code: int
    mnemonic: str
    unit: Unit
    operands: tuple[Operand, ...]
    accesses: tuple[Access, ...]
    meaning: str

    @property
    def used_mask(self) -> int:
        """The bits that this form uses; any other bit set is ILLEGAL_ENCODING."""
        mask = FIELDS["opcode"].mask
        for operand in self.operands:
            if operand.kind is not Kind.ZERO:
                mask |= operand.field.mask
        return mask

    def operand(self, field: str) -> Operand | None:
        """The operand in `field`, if this form has one there."""
        return next(
            (o for o in self.operands if o.field.name == field and o.kind is not Kind.ZERO), None
        )

    def access(self, state: State, *, writes: bool) -> tuple[Access, ...]:
        """The reads or the writes of `state`, in declaration order."""
        return tuple(a for a in self.accesses if a.state is state and a.writes is writes)


_V, _M = State.VECTOR_SRAM, State.MATRIX_SRAM
_ROW = Extent.ROW


def _vector(
    code: int, name: str, *sources: Operand, extra: tuple[Operand, ...], meaning: str
) -> Opcode:
    rows = tuple(_read(_V, s.field.name, extent=_ROW) for s in sources if s.kind is Kind.GP)
    mask = (_read(State.V_MASK),) if RMASK in extra else ()
    return Opcode(
        code,
        name,
        Unit.VECTOR,
        (gp("rd"), *sources, *extra),
        (*rows, *mask, _write(_V, "rd", extent=_ROW)),
        meaning,
    )


def _reduction(code: int, name: str, meaning: str) -> Opcode:
    accesses = (_read(_V, "rs1", extent=_ROW), _read(State.V_MASK))
    return Opcode(
        code, name, Unit.VECTOR, (fp_out(reads=True), gp("rs1"), RMASK), accesses, meaning
    )


def _product(
    code: int,
    name: str,
    matrix: str,
    acc: State,
    rows: Extent,
    meaning: str,
    slice_: Extent | None = None,
) -> Opcode:
    vector = "rs2" if matrix == "rs1" else "rs1"
    head = slice_ is not None
    tile = _read(_M, matrix, *(("rd",) if head else ()), extent=slice_ or Extent.COLUMN_GROUP)
    return Opcode(
        code,
        name,
        Unit.MATRIX,
        (gp("rd") if head else ZERO_RD, gp("rs1"), gp("rs2")),
        (tile, _read(_V, vector, extent=rows), _read(acc), _write(acc)),
        meaning,
    )


def _write_out(code: int, name: str, acc: State, extent: Extent, meaning: str) -> Opcode:
    return Opcode(
        code,
        name,
        Unit.MATRIX,
        (gp("rd"), IMM18),
        (_read(acc), _write(acc), _write(_V, "rd", extent=extent, imm=True)),
        meaning,
    )


def _scalar_fp(code: int, name: str, sources: tuple[str, ...], meaning: str) -> Opcode:
    return Opcode(code, name, Unit.SCALAR, (fp_out(), *(fp(s) for s in sources)), (), meaning)


def _int_op(code: int, name: str, *sources: Operand, meaning: str) -> Opcode:
    return Opcode(code, name, Unit.SCALAR, (gp_out(), *sources), (), meaning)


def _set_state(code: int, name: str, state: State, meaning: str) -> Opcode:
    return Opcode(code, name, Unit.CONTROL, (gp("rd"),), (_write(state),), meaning)


_HBM_FORM = (gp("rd"), gp("rs1"), address("rs2"), RSTRIDE, PRECISION)
_HBM_ROWS = (
    _read(State.SCALE),
    _read(State.STRIDE),
    _read(State.HBM_MEMORY, "rs2", "rs1", extent=Extent.HBM_ROWS),
)
_WORD, _LANES = Extent.WORD, Extent.ROW_WORDS

_ROWS: tuple[Opcode, ...] = (
    _product(
        0x01,
        "M_MM",
        "rs1",
        State.M_ACC,
        Extent.BLEN_ROWS,
        "m_acc += V[v : BLEN rows] @ M[tile][:, c : c+BLEN]",
    ),
    _product(0x02, "M_TMM", "rs2", State.M_ACC, Extent.BLEN_ROWS, "M_MM with the tile transposed"),
    _product(
        0x03,
        "M_BMM",
        "rs1",
        State.HM_ACC,
        Extent.MLEN_ROWS,
        "per head: hm_acc[h] += s * (V rows, lanes of h, @ M slice [HLEN, MLEN])",
        Extent.HEAD_SLICE_ROWS,
    ),
    _product(
        0x04,
        "M_BTMM",
        "rs1",
        State.HM_ACC,
        Extent.MLEN_ROWS,
        "M_BMM with the slice [MLEN, HLEN] transposed",
        Extent.HEAD_SLICE_COLUMNS,
    ),
    _write_out(
        0x05,
        "M_BMM_WO",
        State.HM_ACC,
        Extent.HEAD_TILES,
        "V rows at gp[rd]+imm = RNE(hm_acc); cleared",
    ),
    Opcode(
        0x06,
        "M_MM_WO",
        Unit.MATRIX,
        (gp("rd"), gp("rs1"), IMM18),
        (
            _read(State.M_ACC),
            _write(State.M_ACC),
            _write(_V, "rd", extent=Extent.STRIDED_ROWS, imm=True),
        ),
        "V[base + i*MLEN*stride][o : o+BLEN] = RNE(m_acc[i]); m_acc cleared",
    ),
    _product(0x07, "M_MV", "rs1", State.V_ACC, _ROW, "v_acc += V[v] @ M[tile][:, c : c+BLEN]"),
    _product(0x08, "M_TMV", "rs1", State.V_ACC, _ROW, "M_MV with the tile transposed"),
    _product(0x09, "M_BMV", "rs1", State.HV_ACC, _ROW, "M_BMM for one row", Extent.HEAD_SLICE_ROWS),
    _product(
        0x0A, "M_BTMV", "rs1", State.HV_ACC, _ROW, "M_BTMM for one row", Extent.HEAD_SLICE_COLUMNS
    ),
    _write_out(
        0x0B, "M_MV_WO", State.V_ACC, Extent.BLEN_LANES, "V[base][o : o+BLEN] = RNE(v_acc); cleared"
    ),
    _write_out(
        0x0C,
        "M_BMV_WO",
        State.HV_ACC,
        Extent.HEAD_ROWS,
        "heads rows at gp[rd]+imm = RNE(hv_acc); cleared",
    ),
    _vector(
        0x0D, "V_ADD_VV", gp("rs1"), gp("rs2"), extra=(RMASK,), meaning="V[rd] = V[rs1] + V[rs2]"
    ),
    _vector(0x0E, "V_ADD_VF", gp("rs1"), fp("rs2"), extra=(RMASK,), meaning="V[rd] = V[rs1] + f"),
    _vector(
        0x0F, "V_SUB_VV", gp("rs1"), gp("rs2"), extra=(RMASK,), meaning="V[rd] = V[rs1] - V[rs2]"
    ),
    _vector(
        0x10,
        "V_SUB_VF",
        gp("rs1"),
        fp("rs2"),
        extra=(RMASK, RORDER),
        meaning="V[rd] = V[rs1] - f, or f - V[rs1] when rorder is 1",
    ),
    _vector(
        0x11, "V_MUL_VV", gp("rs1"), gp("rs2"), extra=(RMASK,), meaning="V[rd] = V[rs1] * V[rs2]"
    ),
    _vector(0x12, "V_MUL_VF", gp("rs1"), fp("rs2"), extra=(RMASK,), meaning="V[rd] = V[rs1] * f"),
    _vector(
        0x13, "V_EXP_V", gp("rs1"), extra=(RMASK,), meaning="V[rd] = exp(clamp(V[rs1], -88, 88))"
    ),
    _vector(0x14, "V_RECI_V", gp("rs1"), extra=(RMASK,), meaning="V[rd] = 1 / V[rs1]"),
    _reduction(0x15, "V_RED_SUM", "f = BF16(f + sum(V[rs1])), the sum in FP32"),
    _reduction(0x16, "V_RED_MAX", "f = max(f, max(V[rs1]))"),
    _scalar_fp(0x17, "S_ADD_FP", ("rs1", "rs2"), "f[rd] = f[rs1] + f[rs2]"),
    _scalar_fp(0x18, "S_SUB_FP", ("rs1", "rs2"), "f[rd] = f[rs1] - f[rs2]"),
    _scalar_fp(0x19, "S_MAX_FP", ("rs1", "rs2"), "f[rd] = max(f[rs1], f[rs2])"),
    _scalar_fp(0x1A, "S_MUL_FP", ("rs1", "rs2"), "f[rd] = f[rs1] * f[rs2]"),
    _scalar_fp(0x1B, "S_EXP_FP", ("rs1",), "f[rd] = exp(clamp(f[rs1], -88, 88))"),
    _scalar_fp(0x1C, "S_RECI_FP", ("rs1",), "f[rd] = 1 / f[rs1]"),
    _scalar_fp(0x1D, "S_SQRT_FP", ("rs1",), "f[rd] = sqrt(f[rs1])"),
    Opcode(
        0x1E,
        "S_LD_FP",
        Unit.SCALAR,
        (fp_out(), gp("rs1"), IMM18),
        (_read(State.FP_MEM, "rs1", extent=_WORD, imm=True),),
        "f[rd] = FP_MEM[gp[rs1]+imm]",
    ),
    Opcode(
        0x1F,
        "S_ST_FP",
        Unit.SCALAR,
        (fp("rd"), gp("rs1"), IMM18),
        (_write(State.FP_MEM, "rs1", extent=_WORD, imm=True),),
        "FP_MEM[gp[rs1]+imm] = f[rd]",
    ),
    Opcode(
        0x20,
        "S_MAP_V_FP",
        Unit.SCALAR,
        (gp("rd"), gp("rs1"), IMM18),
        (
            _read(State.FP_MEM, "rs1", extent=_LANES, imm=True),
            _write(_V, "rd", extent=_ROW),
        ),
        "V[gp[rd]] = FP_MEM[gp[rs1]+imm : +VLEN]",
    ),
    _int_op(0x21, "S_ADD_INT", gp("rs1"), gp("rs2"), meaning="gp[rd] = gp[rs1] + gp[rs2]"),
    _int_op(0x22, "S_ADDI_INT", gp("rs1"), IMM18, meaning="gp[rd] = gp[rs1] + imm"),
    _int_op(0x23, "S_SUB_INT", gp("rs1"), gp("rs2"), meaning="gp[rd] = gp[rs1] - gp[rs2]"),
    _int_op(0x24, "S_MUL_INT", gp("rs1"), gp("rs2"), meaning="gp[rd] = gp[rs1] * gp[rs2]"),
    _int_op(0x25, "S_LUI_INT", IMM_UPPER, meaning="gp[rd] = imm << 12"),
    Opcode(
        0x26,
        "S_LD_INT",
        Unit.SCALAR,
        (gp_out(), gp("rs1"), IMM18),
        (_read(State.INT_MEM, "rs1", extent=_WORD, imm=True),),
        "gp[rd] = INT_MEM[gp[rs1]+imm]",
    ),
    Opcode(
        0x27,
        "S_ST_INT",
        Unit.SCALAR,
        (gp("rd"), gp("rs1"), IMM18),
        (_write(State.INT_MEM, "rs1", extent=_WORD, imm=True),),
        "INT_MEM[gp[rs1]+imm] = gp[rd]",
    ),
    Opcode(
        0x28,
        "H_PREFETCH_M",
        Unit.HBM,
        _HBM_FORM,
        (*_HBM_ROWS, _write(_M, "rd", extent=Extent.TILE)),
        "HBM_M_PREFETCH rows of MLEN elements into the tile at gp[rd]",
    ),
    Opcode(
        0x29,
        "H_PREFETCH_V",
        Unit.HBM,
        _HBM_FORM,
        (*_HBM_ROWS, _write(_V, "rd", extent=Extent.PREFETCH_ROWS)),
        "HBM_V_PREFETCH rows of VLEN elements into vector SRAM at gp[rd]",
    ),
    Opcode(
        0x2A,
        "H_STORE_V",
        Unit.HBM,
        _HBM_FORM,
        (
            _read(State.SCALE),
            _read(State.STRIDE),
            _read(_V, "rd", extent=Extent.WRITEBACK_ROWS),
            _write(State.HBM_MEMORY, "rs2", "rs1", extent=Extent.HBM_ROWS),
        ),
        "HBM_V_WRITEBACK rows of VLEN elements from vector SRAM gp[rd]",
    ),
    Opcode(
        0x2B,
        "C_SET_ADDR_REG",
        Unit.CONTROL,
        (address_out(), gp("rs1"), gp("rs2")),
        (),
        "a[rd] = {gp[rs1] high 32, gp[rs2] low 32}",
    ),
    _set_state(0x2C, "C_SET_SCALE_REG", State.SCALE, "SCALE = gp[rd]"),
    _set_state(0x2D, "C_SET_STRIDE_REG", State.STRIDE, "STRIDE = gp[rd]"),
    _set_state(0x2E, "C_SET_V_MASK_REG", State.V_MASK, "V_MASK = gp[rd]"),
    Opcode(
        0x2F,
        "C_LOOP_START",
        Unit.CONTROL,
        (gp_out(), IMM22),
        (_write(State.LOOP_STACK),),
        "gp[rd] = imm; push; imm 0 traps",
    ),
    Opcode(
        0x30,
        "C_LOOP_END",
        Unit.CONTROL,
        (gp_out(reads=True),),
        (_read(State.LOOP_STACK), _write(State.LOOP_STACK)),
        "if gp[rd] > 1: decrement, jump to start+1; else gp[rd] = 0, pop",
    ),
    Opcode(
        0x32,
        "V_SHFT_V",
        Unit.VECTOR,
        (gp("rd"), gp("rs1"), gp("rs2")),
        (_read(_V, "rs1", extent=_ROW), _write(_V, "rd", extent=_ROW)),
        "V[rd] = V[rs1], lanes moved up by gp[rs2], zeros enter at lane 0",
    ),
    Opcode(0x34, "C_BREAK", Unit.CONTROL, (), (), "drain every unit, then halt with cause BREAK"),
    _vector(
        0x35, "V_MAX_VF", gp("rs1"), fp("rs2"), extra=(RMASK,), meaning="V[rd] = max(V[rs1], f)"
    ),
    _vector(
        0x36, "V_MIN_VF", gp("rs1"), fp("rs2"), extra=(RMASK,), meaning="V[rd] = min(V[rs1], f)"
    ),
    Opcode(
        0x37,
        "V_TOPK",
        Unit.TOPK,
        (gp("rd"), gp("rs1"), gp("rs2"), RMASK_TOPK),
        (
            _read(State.TOPK_POLICY),
            _read(_V, "rs1", extent=Extent.TOPK_ROWS),
            _write(State.INT_MEM, "rs2", extent=Extent.TOPK_WORDS),
            _write(State.FP_MEM, "rd", extent=Extent.TOPK_WORDS),
        ),
        "INT_MEM[gp[rs2]+i] = expert index, FP_MEM[gp[rd]+i] = weight, i = 0 the largest",
    ),
    _set_state(0x38, "C_SET_TOPK_REG", State.TOPK_POLICY, "TOPK = gp[rd], valid"),
)

#: By code and by mnemonic, in the order of isa.md.
OPCODES: dict[int, Opcode] = {row.code: row for row in _ROWS}
BY_MNEMONIC: dict[str, Opcode] = {row.mnemonic: row for row in _ROWS}

#: The opcode field as an enumeration, for ports and waveforms: members are the mnemonics.
Op: Any = enum.IntEnum("Op", {row.mnemonic: row.code for row in _ROWS})
