"""M_*: products into the FP32 accumulators, and their write-outs."""

from dataclasses import dataclass

import numpy as np

from isa.instruction import Instruction
from isa.opcodes import Extent, State
from sim.machine.addresses import matrix_slice, vector_lanes, vector_rows
from sim.machine.registry import Step, executes
from sim.machine.state import MachineState, widen
from sim.numerics.bf16 import F32Array, round_to_bf16
from sim.numerics.matrix import tree_matmul


@dataclass(frozen=True)
class _Product:
    """One product form: the field of the matrix address, and whether the tile is transposed."""

    matrix: str
    transposed: bool

    def of(self, tile: F32Array) -> F32Array:
        """The tile as the product sees it."""
        return tile.T if self.transposed else tile


_PLAIN = {
    "M_MM": _Product("rs1", False),
    "M_TMM": _Product("rs2", True),
    "M_MV": _Product("rs1", False),
    "M_TMV": _Product("rs1", True),
}
_PER_HEAD = {
    "M_BMM": _Product("rs1", False),
    "M_BTMM": _Product("rs1", True),
    "M_BMV": _Product("rs1", False),
    "M_BTMV": _Product("rs1", True),
}


@executes(*_PLAIN)
def plain_product(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """m_acc or v_acc += V[v : rows] @ BLEN columns of the tile (of its transpose)."""
    opcode, config = instruction.opcode, state.config
    form = _PLAIN[opcode.mnemonic]
    one_row = bool(opcode.access(State.V_ACC, writes=True))
    accumulator = state.v_acc if one_row else state.m_acc
    rows = 1 if one_row else config.BLEN
    vector = "rs2" if form.matrix == "rs1" else "rs1"
    place = matrix_slice(state, (instruction.value(form.matrix),), Extent.COLUMN_GROUP)
    operand = vector_rows(state, instruction.value(vector), rows)
    blen = config.BLEN

    def step() -> None:
        tile, first = place()
        row = operand()
        columns = form.of(state.tile(tile))[:, first : first + blen]
        sums = tree_matmul(widen(state.vram[row : row + rows]), columns)
        np.add(accumulator, sums, out=accumulator)

    return step


@executes(*_PER_HEAD)
def head_product(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """Per head: hm_acc or hv_acc += bmm_scale * (V rows, lanes of the head, @ slice)."""
    opcode, config = instruction.opcode, state.config
    form = _PER_HEAD[opcode.mnemonic]
    one_row = bool(opcode.access(State.HV_ACC, writes=True))
    accumulator = state.hv_acc if one_row else state.hm_acc
    rows = 1 if one_row else config.MLEN
    hlen, scale = config.HLEN, np.float32(config.bmm_scale)
    registers = (instruction.value("rs1"), instruction.value("rd"))
    extent = Extent.HEAD_SLICE_COLUMNS if form.transposed else Extent.HEAD_SLICE_ROWS
    place = matrix_slice(state, registers, extent)
    operand = vector_rows(state, instruction.value("rs2"), rows)

    def step() -> None:
        tile, first = place()
        row = operand()
        part = form.of(state.tile(tile))[first : first + hlen]
        vectors = widen(state.vram[row : row + rows])
        for head in range(config.heads):
            sums = tree_matmul(vectors[:, head * hlen : (head + 1) * hlen], part)
            accumulator[head] += sums * scale

    return step


@executes("M_MM_WO")
def write_tile(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """BLEN lanes of BLEN rows, gp[rs1] (or 1) rows apart, = RNE(m_acc); cleared."""
    rd, stride, imm = instruction.values
    last = state.config.BLEN - 1

    def rows_apart() -> int:
        return state.gp[stride] if stride else 1

    place = vector_lanes(state, rd, imm, lambda: rows_apart() * last + 1)

    def step() -> None:
        row, lane = place()
        state.set_lanes(row, lane, round_to_bf16(state.m_acc), rows_apart())
        state.m_acc[:] = 0.0

    return step


@executes("M_MV_WO")
def write_lanes(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """BLEN lanes of one row = RNE(v_acc); cleared."""
    rd, imm = instruction.values
    place = vector_lanes(state, rd, imm, lambda: 1)

    def step() -> None:
        row, lane = place()
        state.set_lanes(row, lane, round_to_bf16(state.v_acc))
        state.v_acc[:] = 0.0

    return step


@executes("M_BMM_WO", "M_BMV_WO")
def write_heads(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """Rows in the order [head][row] = RNE(hm_acc or hv_acc); cleared."""
    rd, imm = instruction.values
    config = state.config
    one_row = bool(instruction.opcode.access(State.HV_ACC, writes=True))
    accumulator = state.hv_acc if one_row else state.hm_acc
    place = vector_rows(state, rd, config.heads * (1 if one_row else config.MLEN), imm)

    def step() -> None:
        row = place()
        state.set_rows(row, round_to_bf16(accumulator).reshape(-1, config.MLEN))
        accumulator[:] = 0.0

    return step
