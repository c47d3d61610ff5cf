"""C_*: loops, state registers, address registers, breakpoint."""

from isa.instruction import Instruction
from isa.traps import Trap
from sim.machine.addresses import Stop
from sim.machine.registry import Step, executes
from sim.machine.state import MachineState


@executes("C_LOOP_START")
def loop_start(state: MachineState, instruction: Instruction, pc: int) -> Step:
    """gp[rd] = imm, push; a count of 0 and a full stack trap."""
    rd, count = instruction.value("rd"), instruction.value("imm")

    def step() -> None:
        if count == 0:
            raise Stop(Trap.LOOP_COUNT_ZERO)
        if len(state.loops) == state.config.LOOP_DEPTH:
            raise Stop(Trap.LOOP_OVERFLOW, len(state.loops))
        state.loops.append((pc, rd))
        state.set_gp(rd, count)

    return step


@executes("C_LOOP_END")
def loop_end(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """While gp[rd] > 1, decrement and go to the start + 1; else gp[rd] = 0, pop."""
    rd = instruction.value("rd")

    def step() -> int | None:
        if not state.loops or state.loops[-1][1] != rd:
            raise Stop(Trap.LOOP_MISMATCH, rd)
        if state.gp[rd] > 1:
            state.set_gp(rd, state.gp[rd] - 1)
            return state.loops[-1][0] + 1
        state.set_gp(rd, 0)
        state.loops.pop()
        return None

    return step


@executes("C_SET_ADDR_REG")
def set_address(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """a[rd] = {gp[rs1] high 32, gp[rs2] low 32}."""
    rd, rs1, rs2 = instruction.values

    def step() -> None:
        state.set_a(rd, state.gp[rs1] << 32 | state.gp[rs2])

    return step


@executes("C_SET_SCALE_REG")
def set_scale(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """SCALE = gp[rd]."""
    rd = instruction.value("rd")

    def step() -> None:
        state.scale = state.gp[rd]
        state.set_state("SCALE", state.scale)

    return step


@executes("C_SET_STRIDE_REG")
def set_stride(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """STRIDE = gp[rd]."""
    rd = instruction.value("rd")

    def step() -> None:
        state.stride = state.gp[rd]
        state.set_state("STRIDE", state.stride)

    return step


@executes("C_SET_V_MASK_REG")
def set_mask(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """V_MASK = gp[rd]."""
    rd = instruction.value("rd")

    def step() -> None:
        state.v_mask = state.gp[rd]
        state.set_state("V_MASK", state.v_mask)

    return step


@executes("C_SET_TOPK_REG")
def set_topk(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """TOPK = gp[rd], valid."""
    rd = instruction.value("rd")

    def step() -> None:
        state.topk = state.gp[rd]
        state.set_state("TOPK", state.topk)

    return step


@executes("C_BREAK")
def breakpoint_(_state: MachineState, _instruction: Instruction, _pc: int) -> Step:
    """Halt with cause BREAK."""

    def step() -> None:
        raise Stop(Trap.BREAK)

    return step
