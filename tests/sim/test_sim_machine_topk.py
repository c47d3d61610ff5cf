"""The architectural machine: V_TOPK and its policy."""

import numpy as np
import pytest

from isa.traps import Trap
from sim.machine import Halt, Machine
from sim.numerics.bf16 import order_key, round_to_bf16
from sim.numerics.topk import falling_exp, rank, topk_weights
from tests.sim.machine_bench import TINY, bits, make

NAN, INF = float("nan"), float("inf")


def run(logits: list[float], policy: int | None, rmask: int = 15, **replaced: object) -> Machine:
    """V_TOPK of logits in row 2 on, indices to INT_MEM[5], weights to FP_MEM[9]."""
    register = "" if policy is None else f"S_LUI_INT gp1, {policy >> 12}\n"
    if policy is not None:
        register += f"S_ADDI_INT gp1, gp1, {policy & 0xFFF}\nC_SET_TOPK_REG gp1\n"
    config = TINY.replace(**replaced) if replaced else TINY
    machine = make(
        register + "S_ADDI_INT gp2, gp0, 16\nS_ADDI_INT gp3, gp0, 5\nS_ADDI_INT gp4, gp0, 9\n"
        f"V_TOPK gp4, gp2, gp3, {rmask}\n",
        config,
    )
    whole = [*logits, *[1000.0] * (-len(logits) % 8)]  # lanes behind the experts never count
    machine.memories.write_vector(2, bits(whole).reshape(-1, 8))
    machine.memories.write_fp(0, np.full(64, 0xDEAD, np.uint16))
    machine.run()
    return machine


def selected(machine: Machine, count: int) -> tuple[list[int], list[int]]:
    assert machine.halt is not None
    assert machine.halt.cause is Trap.DONE
    fp = machine.memories.read_fp()
    assert fp[8] == fp[9 + count] == 0xDEAD
    return machine.memories.read_int()[5 : 5 + count].tolist(), fp[9 : 9 + count].tolist()


@pytest.mark.parametrize(
    ("logits", "count", "indices", "weights"),
    [
        ([1.0, 0.5, NAN, 0.25], 2, [0, 1], [0x3F1F, 0x3EC1]),
        ([-INF] * 6, 2, [0, 1], [0] * 2),
        ([0.0, INF, 1.0, INF], 4, [1, 3, 2, 0], [0x3F00, 0x3F00, 0, 0]),
        ([-0.0, 0.0, -1.0], 2, [0, 1], [0x3F00, 0x3F00]),
        ([5.0, -INF], 2, [0, 1], [0x3F80, 0]),
        ([7.0], 1, [0], [0x3F80]),
    ],
)
def test_small_selections(logits: list[float], count: int, indices: object, weights: object):
    assert selected(run(logits, len(logits) << 8 | count), count) == (indices, weights)


@pytest.mark.parametrize(("rmask", "experts", "count"), [(0, 32, 4), (1, 128, 8)])
def test_fixed_shapes_do_not_need_the_register(rmask: int, experts: int, count: int):
    logits = [float(i % 13) for i in range(experts)]
    indices, _ = selected(run(logits, None, rmask), count)
    assert indices == rank(round_to_bf16(np.array(logits)), count).tolist()


def halt_of(policy: int | None, rmask: int = 15, **replaced: object) -> Halt:
    halt = run([0.0] * 8, policy, rmask, **replaced).halt
    assert halt is not None
    return halt


@pytest.mark.parametrize(
    "policy", [0, 8 << 8, 8 << 8 | 9, 255 << 8 | 17, 1 << 8 | 2, 1 << 22 | 8 << 8 | 2]
)
def test_a_policy_out_of_range_traps(policy: int):
    halt = halt_of(policy)
    assert (halt.cause, halt.operand) == (Trap.TOPK_POLICY_RANGE, policy)


def test_the_policy_must_be_set_and_fit_the_unit():
    assert halt_of(None).cause is Trap.TOPK_POLICY_UNSET
    assert halt_of(None, 1, TOPK_MAX=7).cause is Trap.TOPK_POLICY_RANGE
    assert halt_of(None, 0, TOPK_MAX=7).cause is Trap.DONE
    assert halt_of(16383 << 8 | 1).cause is Trap.VECTOR_ADDRESS


def test_weights_are_within_one_ulp_of_the_softmax_and_ties_are_equal():
    rng = np.random.default_rng(5)
    for _ in range(300):
        spread = rng.choice((0.1, 1.0, 5.0, 40.0))
        logits = round_to_bf16(-np.sort(-rng.standard_normal(rng.integers(1, 17)) * spread))
        exact = np.exp(logits.astype(np.float64) - float(logits[0]))
        want = order_key(round_to_bf16(exact / exact.sum()))
        got = order_key(topk_weights(logits))
        assert np.abs(got - want).max() <= 1
        same = np.asarray(logits[1:] == logits[:-1])
        assert (got[1:] == got[:-1])[same].all()


def test_the_falling_exponential():
    assert falling_exp(0.0) == 1.0
    assert falling_exp(float("inf")) == falling_exp(128.0) == 0.0
    arguments = np.random.default_rng(6).uniform(0, 85, 500).astype(np.float32).astype(float)
    errors = [abs(falling_exp(a) / np.exp(-a) - 1) for a in arguments.tolist()]
    assert max(errors) < 2**-15.5
