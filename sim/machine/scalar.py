"""S_*: integer and BF16 scalars, FP_MEM, INT_MEM."""

from collections.abc import Callable

from isa.instruction import Instruction
from isa.traps import Trap
from sim.machine.addresses import vector_rows, words
from sim.machine.registry import Step, executes
from sim.machine.state import MachineState
from sim.numerics import bf16
from sim.numerics.bf16 import Bf16Array

_FP: dict[str, Callable[..., Bf16Array]] = {
    "S_ADD_FP": bf16.add,
    "S_SUB_FP": bf16.sub,
    "S_MAX_FP": bf16.maximum,
    "S_MUL_FP": bf16.mul,
    "S_EXP_FP": bf16.exp,
    "S_RECI_FP": bf16.reciprocal,
    "S_SQRT_FP": bf16.sqrt,
}
_INT: dict[str, Callable[[int, int], int]] = {
    "S_ADD_INT": lambda a, b: a + b,
    "S_SUB_INT": lambda a, b: a - b,
    "S_MUL_INT": lambda a, b: a * b,
}


@executes(*_FP)
def fp_arithmetic(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """f[rd] = function of the f sources."""
    function = _FP[instruction.opcode.mnemonic]
    rd, *sources = instruction.values

    def step() -> None:
        result = function(*[state.f_value(s) for s in sources])
        state.set_f(rd, int(bf16.to_bits(result)))

    return step


@executes(*_INT)
def int_arithmetic(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """gp[rd] = function of the gp sources."""
    function, gp = _INT[instruction.opcode.mnemonic], state.gp
    rd, rs1, rs2 = instruction.values

    def step() -> None:
        state.set_gp(rd, function(gp[rs1], gp[rs2]))

    return step


@executes("S_ADDI_INT")
def add_immediate(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """gp[rd] = gp[rs1] + imm."""
    rd, rs1, imm = instruction.values
    gp = state.gp

    def step() -> None:
        state.set_gp(rd, gp[rs1] + imm)

    return step


@executes("S_LUI_INT")
def load_upper(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """gp[rd] = imm << 12."""
    rd, imm = instruction.values

    def step() -> None:
        state.set_gp(rd, imm << 12)

    return step


@executes("S_LD_FP")
def load_fp(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """f[rd] = FP_MEM[gp[rs1] + imm]."""
    rd, rs1, imm = instruction.values
    word = words(state, rs1, imm, 1, Trap.FP_MEM_ADDRESS)

    def step() -> None:
        state.set_f(rd, int(state.fp_mem[word()]))

    return step


@executes("S_ST_FP")
def store_fp(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """FP_MEM[gp[rs1] + imm] = f[rd]."""
    rd, rs1, imm = instruction.values
    word = words(state, rs1, imm, 1, Trap.FP_MEM_ADDRESS)

    def step() -> None:
        state.set_fp_words(word(), [state.f[rd]])

    return step


@executes("S_MAP_V_FP")
def map_row(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """V[gp[rd]] = FP_MEM[gp[rs1] + imm : + VLEN]."""
    rd, rs1, imm = instruction.values
    mlen = state.config.MLEN
    target = vector_rows(state, rd)
    word = words(state, rs1, imm, mlen, Trap.FP_MEM_ADDRESS)

    def step() -> None:
        row, first = target(), word()
        values = state.fp_mem[first : first + mlen].copy()
        state.set_rows(row, values.view(bf16.BF16)[None])

    return step


@executes("S_LD_INT")
def load_int(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """gp[rd] = INT_MEM[gp[rs1] + imm]."""
    rd, rs1, imm = instruction.values
    word = words(state, rs1, imm, 1, Trap.INT_MEM_ADDRESS)

    def step() -> None:
        state.set_gp(rd, int(state.int_mem[word()]))

    return step


@executes("S_ST_INT")
def store_int(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """INT_MEM[gp[rs1] + imm] = gp[rd]."""
    rd, rs1, imm = instruction.values
    word = words(state, rs1, imm, 1, Trap.INT_MEM_ADDRESS)

    def step() -> None:
        state.set_int_words(word(), [state.gp[rd]])

    return step
