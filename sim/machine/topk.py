"""V_TOPK: selection of the largest logits, and their softmax."""

import numpy as np
import numpy.typing as npt

from isa.instruction import Instruction
from isa.topk import FIXED_SHAPES, FROM_REGISTER, POLICY_BITS, TOP_K_BITS, pack_policy
from isa.traps import Trap
from sim.machine.addresses import Stop, vector_rows, words
from sim.machine.registry import Step, executes
from sim.machine.state import MachineState
from sim.numerics.bf16 import BF16
from sim.numerics.topk import rank, topk_weights


def shape_of(policy: int, topk_max: int) -> tuple[int, int]:
    """(num_experts, top_k) of a policy of 22 bits; Stop unless 1 <= top_k <= both limits."""
    experts, count = policy >> TOP_K_BITS, policy & ((1 << TOP_K_BITS) - 1)
    if policy >> POLICY_BITS or not 1 <= count <= min(experts, topk_max):
        raise Stop(Trap.TOPK_POLICY_RANGE, policy)
    return experts, count


@executes("V_TOPK")
def topk(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """INT_MEM[gp[rs2] + i] = expert, FP_MEM[gp[rd] + i] = weight, i = 0 the largest."""
    rd, rs1, rs2, rmask = instruction.values
    config = state.config
    experts, count = FIXED_SHAPES.get(rmask, (0, 0))
    fixed = None if rmask == FROM_REGISTER else pack_policy(experts, count)

    def step() -> None:
        policy = state.topk if fixed is None else fixed
        if policy is None:
            raise Stop(Trap.TOPK_POLICY_UNSET)
        experts, count = shape_of(policy, config.TOPK_MAX)
        rows = -(-experts // config.VLEN)
        row = vector_rows(state, rs1, rows)()
        weights_at = words(state, rd, 0, count, Trap.FP_MEM_ADDRESS)()
        indices_at = words(state, rs2, 0, count, Trap.INT_MEM_ADDRESS)()
        logits: npt.NDArray[np.uint16] = state.vram[row : row + rows].reshape(-1)[:experts]
        values = logits.view(BF16)
        chosen = rank(values, count)
        weights = topk_weights(values[chosen])
        state.set_int_words(indices_at, chosen.tolist())
        state.set_fp_words(weights_at, weights.view(np.uint16).tolist())

    return step
