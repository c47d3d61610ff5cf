"""V_*: element-wise operations, reductions, shift. V_TOPK is in `topk`."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from isa.instruction import Instruction
from isa.operands import Kind
from sim.machine.addresses import vector_rows
from sim.machine.registry import Step, executes
from sim.machine.state import MachineState
from sim.numerics import bf16, reduce
from sim.numerics.bf16 import BF16, Bf16Array

_BINARY: dict[str, Callable[[Bf16Array, Bf16Array], Bf16Array]] = {
    "V_ADD_VV": bf16.add,
    "V_ADD_VF": bf16.add,
    "V_SUB_VV": bf16.sub,
    "V_SUB_VF": bf16.sub,
    "V_MUL_VV": bf16.mul,
    "V_MUL_VF": bf16.mul,
    "V_MAX_VF": bf16.maximum,
    "V_MIN_VF": bf16.minimum,
}
_UNARY: dict[str, Callable[[Bf16Array], Bf16Array]] = {
    "V_EXP_V": bf16.exp,
    "V_RECI_V": bf16.reciprocal,
}
_REDUCTION = {"V_RED_SUM": reduce.red_sum, "V_RED_MAX": reduce.red_max}

Enabled = Callable[[], npt.NDArray[np.bool_] | None]


def _enabled(state: MachineState, instruction: Instruction) -> Enabled:
    """The lanes that take part, None for all, by the rmask field and V_MASK."""
    if not instruction.value("rmask"):
        return lambda: None
    vlen, hlen = state.config.VLEN, state.config.HLEN
    return lambda: reduce.enabled_lanes(state.v_mask, vlen, hlen)


@executes(*_BINARY)
def binary(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """V[rd] = V[rs1] with V[rs2] or f[rs2], in the other order with rorder 1."""
    opcode = instruction.opcode
    function = _BINARY[opcode.mnemonic]
    second = opcode.operand("rs2")
    assert second is not None
    vectors = second.kind is Kind.GP
    swapped = opcode.operand("funct1") is not None and instruction.value("rorder") == 1
    enabled = _enabled(state, instruction)
    target = vector_rows(state, instruction.value("rd"))
    left = vector_rows(state, instruction.value("rs1"))
    rs2 = instruction.value("rs2")
    right = vector_rows(state, rs2)

    def step() -> None:
        to = target()
        other = state.row(right()) if vectors else state.f_value(rs2)
        source = state.row(left())
        result = function(other, source) if swapped else function(source, other)
        lanes = enabled()
        if lanes is not None:
            result = np.where(lanes, result, source)
        state.set_rows(to, result[None])

    return step


@executes(*_UNARY)
def unary(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """V[rd] = function of V[rs1]."""
    function = _UNARY[instruction.opcode.mnemonic]
    enabled = _enabled(state, instruction)
    target = vector_rows(state, instruction.value("rd"))
    operand = vector_rows(state, instruction.value("rs1"))

    def step() -> None:
        to, source = target(), state.row(operand())
        result = function(source)
        lanes = enabled()
        if lanes is not None:
            result = np.where(lanes, result, source)
        state.set_rows(to, result[None])

    return step


@executes(*_REDUCTION)
def reduction(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """f[rd] = f[rd] with the enabled lanes of V[rs1]."""
    function = _REDUCTION[instruction.opcode.mnemonic]
    enabled = _enabled(state, instruction)
    rd = instruction.value("rd")
    operand = vector_rows(state, instruction.value("rs1"))

    def step() -> None:
        result = function(state.f_value(rd), state.row(operand()), enabled())
        state.set_f(rd, int(bf16.to_bits(result)))

    return step


@executes("V_SHFT_V")
def shift(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """V[rd] = V[rs1] with lanes moved up by gp[rs2]; zeros enter at lane 0."""
    rd, rs1, rs2 = instruction.values
    target, operand, mlen = vector_rows(state, rd), vector_rows(state, rs1), state.config.MLEN

    def step() -> None:
        to, source = target(), state.row(operand())
        amount = min(state.gp[rs2], mlen)
        result = np.zeros(mlen, BF16)
        result[amount:] = source[: mlen - amount]
        state.set_rows(to, result[None])

    return step
