"""Selection and weights of V_TOPK on both machines, and in the stepwise reference."""

import numpy as np
import pytest

from compiler.errors import CompileError
from compiler.topk import topk_encoding
from isa.traps import Trap
from sim.numerics.bf16 import round_to_bf16, to_bits
from sim.numerics.topk import topk
from tests.cases.sides import CONFIG, LANES, Side
from tests.cases.table import TOPK

ROW, INDICES, WEIGHTS = 2, 5, 9


def program(experts: int, top_k: int) -> str:
    policy = experts << 8 | top_k
    return (
        f"S_LUI_INT gp1, {policy >> 12}\nS_ADDI_INT gp1, gp1, {policy & 0xFFF}\n"
        f"C_SET_TOPK_REG gp1\nS_ADDI_INT gp2, gp0, {ROW * LANES}\n"
        f"S_ADDI_INT gp3, gp0, {INDICES}\nS_ADDI_INT gp4, gp0, {WEIGHTS}\n"
        "V_TOPK gp4, gp2, gp3, 15\n"
    )


def logits_bits(logits: list[float]) -> np.ndarray:
    return to_bits(round_to_bf16(np.array(logits, np.float64)))


@pytest.mark.parametrize("name", TOPK)
def test_selections(side: Side, name):
    logits, top_k, indices, weights = TOPK[name]
    # What follows the last expert in its row would win, if it counted.
    padded = [*logits, *[1000.0] * (-len(logits) % LANES)]
    rows = logits_bits(padded).reshape(-1, LANES)
    end = side(program(len(logits), top_k), lambda m, _: m.write_vector(ROW, rows))
    assert end.cause is Trap.DONE
    assert end.memories.read_int()[INDICES : INDICES + top_k].tolist() == indices
    found = end.memories.read_fp()[WEIGHTS : WEIGHTS + top_k]
    assert weights is None or [f"{w:04X}" for w in found] == [f"{w:04X}" for w in weights]
    reference = topk(logits_bits(logits), len(logits), top_k)
    assert (reference[0].tolist(), reference[1].tolist()) == (indices, found.tolist())


@pytest.mark.parametrize(("experts", "top_k"), [(6, 7), (1, 2), (16, 17)])
def test_more_than_there_are_is_out_of_range(side: Side, experts, top_k):
    end = side(program(experts, top_k))
    assert (end.cause, end.operand) == (Trap.TOPK_POLICY_RANGE, experts << 8 | top_k)
    assert end.pc == 6
    with pytest.raises(CompileError, match=f"top_k = {top_k}: must be 1 to experts = {experts}"):
        topk_encoding(CONFIG, experts, top_k)
