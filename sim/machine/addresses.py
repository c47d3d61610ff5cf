"""Operand addresses, with their range and alignment checks; nothing wraps.

Every function makes a resolver of one operand: called when the instruction executes, it returns
where the operand is, or raises `Stop` with the trap. The order in which an instruction calls its
resolvers is the priority of its traps: matrix SRAM, vector SRAM (target, then rs2, then rs1),
FP_MEM, INT_MEM, HBM.
"""

from collections.abc import Callable

from isa.instruction import Instruction
from isa.opcodes import Extent
from isa.traps import Trap
from sim.machine.state import MachineState

Resolver = Callable[[], int]
Placed = Callable[[], tuple[int, int]]

_OPERAND_MASK = (1 << 64) - 1


class Stop(Exception):
    """The instruction ends the run: its cause and the operand of the halt record."""

    def __init__(self, cause: Trap, operand: int = 0) -> None:
        super().__init__(cause.name)
        self.cause = cause
        self.operand = operand & _OPERAND_MASK


def vector_rows(state: MachineState, register: int, count: int = 1, imm: int = 0) -> Resolver:
    """The first of `count` whole rows at gp[register] + imm."""
    gp, mlen, limit = state.gp, state.config.MLEN, state.config.VRAM_ROWS - count

    def resolve() -> int:
        address = gp[register] + imm
        row, lane = divmod(address, mlen)
        if lane or row > limit:
            raise Stop(Trap.VECTOR_ADDRESS, address)
        return row

    return resolve


def vector_lanes(state: MachineState, register: int, imm: int, reach: Callable[[], int]) -> Placed:
    """Row and lane of BLEN-aligned lanes at gp[register] + imm; `reach` rows must exist."""
    gp, mlen, blen = state.gp, state.config.MLEN, state.config.BLEN
    rows = state.config.VRAM_ROWS

    def resolve() -> tuple[int, int]:
        address = gp[register] + imm
        row, lane = divmod(address, mlen)
        if lane % blen or row + reach() > rows:
            raise Stop(Trap.VECTOR_ADDRESS, address)
        return row, lane

    return resolve


def matrix_slice(state: MachineState, registers: tuple[int, ...], extent: Extent) -> Placed:
    """Tile, and first row or column in it, at the sum of `registers`."""
    gp, config = state.gp, state.config
    mlen, blen, hlen = config.MLEN, config.BLEN, config.HLEN
    unit, rule = {
        Extent.TILE: (1, lambda offset: offset == 0),
        Extent.COLUMN_GROUP: (mlen, lambda offset: offset % (blen * mlen) == 0),
        Extent.HEAD_SLICE_ROWS: (mlen, lambda offset: offset % (hlen * mlen) == 0),
        Extent.HEAD_SLICE_COLUMNS: (1, lambda offset: offset % hlen == 0 and offset < mlen),
    }[extent]

    def resolve() -> tuple[int, int]:
        address = sum([gp[r] for r in registers])
        tile, offset = divmod(address, mlen * mlen)
        if tile >= config.MRAM_TILES or not rule(offset):
            raise Stop(Trap.MATRIX_ADDRESS, address)
        return tile, offset // unit

    return resolve


def words(state: MachineState, register: int, imm: int, count: int, cause: Trap) -> Resolver:
    """The first of `count` words of FP_MEM or INT_MEM, by `cause`, at gp[register] + imm."""
    gp = state.gp
    fp = cause is Trap.FP_MEM_ADDRESS
    limit = (state.config.FP_MEM_WORDS if fp else state.config.INT_MEM_WORDS) - count

    def resolve() -> int:
        address = gp[register] + imm
        if address > limit:
            raise Stop(cause, address)
        return address

    return resolve


def hbm_rows(
    state: MachineState, instruction: Instruction, count: int
) -> Callable[[], tuple[int, int, int]]:
    """Byte addresses of row 0's elements and scales, and the stride, of `count` rows.

    Offset and stride are multiples of the MX block, and the last byte exists; Stop otherwise.
    """
    gp, a, config = state.gp, state.a, state.config
    offset_register, base_register = instruction.value("rs1"), instruction.value("rs2")
    strided = instruction.value("rstride")
    block, mlen, size = config.MX_BLOCK, config.MLEN, config.HBM_BYTES

    def resolve() -> tuple[int, int, int]:
        offset = gp[offset_register]
        stride = state.stride if strided else mlen
        reach = (count - 1) * stride
        elements = a[base_register] + offset
        scales = a[base_register] + state.scale + offset // block
        if (
            offset % block
            or stride % block
            or elements + reach + mlen > size
            or scales + (reach + mlen) // block > size
        ):
            raise Stop(Trap.HBM_ADDRESS, elements)
        return elements, scales, stride

    return resolve
