"""The architectural machine: element-wise operations, masks, reductions, shift."""

import numpy as np
import pytest

from isa.config import PlenaConfig
from isa.traps import Trap
from sim.machine import Machine
from tests.sim.machine_bench import SMALL, TINY, bits, canonical, make, numbers, row

A = [1.0, -2.0, 3.0, 0.5, -0.25, 100.0, 7.0, -8.0]
B = [4.0, 4.0, -1.0, 0.5, 8.0, 0.125, -7.0, 2.0]
F = 2.0
ROWS = "S_ADDI_INT gp1, gp0, 8\nS_ADDI_INT gp2, gp0, 16\nS_LD_FP f1, gp0, 0\n"


def run(
    instruction: str, a: object = None, b: object = None, f: float = F, config: PlenaConfig = TINY
) -> Machine:
    machine = make(ROWS + instruction, config)
    machine.memories.write_vector(0, row(*A) if a is None else np.asarray(a, np.uint16)[None])
    machine.memories.write_vector(1, row(*B) if b is None else np.asarray(b, np.uint16)[None])
    machine.memories.write_fp(0, bits([f]))
    assert machine.run().cause is Trap.DONE
    return machine


@pytest.mark.parametrize(
    ("instruction", "result"),
    [
        ("V_ADD_VV gp2, gp0, gp1, 0", np.add(A, B)),
        ("V_SUB_VV gp2, gp0, gp1, 0", np.subtract(A, B)),
        ("V_MUL_VV gp2, gp0, gp1, 0", np.multiply(A, B)),
        ("V_ADD_VF gp2, gp0, f1, 0", np.add(A, F)),
        ("V_SUB_VF gp2, gp0, f1, 0, 0", np.subtract(A, F)),
        ("V_SUB_VF gp2, gp0, f1, 0, 1", np.subtract(F, A)),
        ("V_MUL_VF gp2, gp0, f1, 0", np.multiply(A, F)),
        ("V_MAX_VF gp2, gp0, f1, 0", np.maximum(A, F)),
        ("V_MIN_VF gp2, gp0, f1, 0", np.minimum(A, F)),
        ("V_EXP_V gp2, gp0, 0", np.exp(np.clip(A, -88, 88))),
        ("V_RECI_V gp2, gp0, 0", 1 / np.array(A)),
    ],
)
def test_element_wise_operations(instruction: str, result: list[float]):
    memories = run(instruction).memories
    assert memories.read_vector(2, 1).tolist() == [bits(result).tolist()]
    assert memories.read_vector(0, 2).tolist() == [bits(A).tolist(), bits(B).tolist()]
    assert not memories.read_vector(3).any()


SPECIAL = [0x7F80, 0xFF80, 0x7FC1, 0x8000, 0x0000, 0x0001, 0x7F7F, 0x42B1]


@pytest.mark.parametrize(
    ("instruction", "f", "result"),
    [
        (
            "V_SUB_VF gp2, gp0, f1, 0, 0",
            np.inf,
            [0x7FC0, 0xFF80, 0x7FC0, 0xFF80, 0xFF80, 0xFF80, 0xFF80, 0xFF80],
        ),
        (
            "V_MAX_VF gp2, gp0, f1, 0",
            -0.0,
            [0x7F80, 0x8000, 0x7FC0, 0x8000, 0x0000, 0x0001, 0x7F7F, 0x42B1],
        ),
        (
            "V_MIN_VF gp2, gp0, f1, 0",
            0.0,
            [0x0000, 0xFF80, 0x7FC0, 0x8000, 0x0000, 0x0000, 0x0000, 0x0000],
        ),
        (
            "V_EXP_V gp2, gp0, 0",
            0.0,
            [0x7EF9, 0x0042, 0x7FC0, 0x3F80, 0x3F80, 0x3F80, 0x7EF9, 0x7EF9],
        ),
        (
            "V_RECI_V gp2, gp0, 0",
            0.0,
            [0x0000, 0x8000, 0x7FC0, 0xFF80, 0x7F80, 0x7F80, 0x0020, 0x3C39],
        ),
    ],
)
def test_special_values(instruction: str, f: float, result: list[int]):
    assert canonical(run(instruction, a=SPECIAL, f=f).memories.read_vector(2, 1)) == [result]


def test_an_operand_may_be_the_target():
    memories = run("V_ADD_VV gp0, gp0, gp0, 0").memories
    assert numbers(memories.read_vector(0, 1)).tolist() == [[2 * a for a in A]]


MASK = "S_ADDI_INT gp5, gp0, {}\nC_SET_V_MASK_REG gp5\nS_ADDI_INT gp6, gp0, 32\n"


def test_masked_off_lanes_keep_the_first_operand():
    # small: two heads of 8 lanes.
    a, b = np.arange(1.0, 17.0), np.full(16, 100.0)
    for mask, enabled in ((0, []), (1, range(8)), (2, range(8, 16)), (7, range(16))):
        text = MASK.format(mask) + "S_ADDI_INT gp1, gp0, 16\nV_ADD_VV gp6, gp0, gp1, 1\n"
        machine = make(text, SMALL)
        machine.memories.write_vector(0, bits([a, b]))
        machine.run()
        want = [v + 100 if lane in enabled else v for lane, v in enumerate(a)]
        assert numbers(machine.memories.read_vector(2, 1)).tolist() == [want]


@pytest.mark.parametrize("op", ["V_EXP_V gp6, gp0, 1", "V_MAX_VF gp6, gp0, f1, 1"])
def test_masked_off_special_values_pass_unchanged(op: str):
    machine = make(MASK.format(1) + op, SMALL)
    lanes = np.array([[0] * 8 + SPECIAL], np.uint16)
    machine.memories.write_vector(0, lanes)
    machine.run()
    assert machine.memories.read_vector(2, 1)[0, 8:].tolist() == SPECIAL


@pytest.mark.parametrize(
    ("op", "mask", "start", "want"),
    [
        ("V_RED_SUM f1, gp0, 0", 0, 0.5, 136.0),  # 136.5 ties to even
        ("V_RED_SUM f1, gp0, 1", 2, 0.0, 100.0),
        ("V_RED_SUM f1, gp0, 1", 0, 3.0, 3.0),
        ("V_RED_MAX f1, gp0, 0", 0, 99.0, 99.0),
        ("V_RED_MAX f1, gp0, 1", 1, -5.0, 8.0),
        ("V_RED_MAX f1, gp0, 1", 0, -5.0, -5.0),
    ],
)
def test_reductions(op: str, mask: int, start: float, want: float):
    machine = make("S_LD_FP f1, gp0, 0\n" + MASK.format(mask) + op, SMALL)
    machine.memories.write_fp(0, bits([start]))
    machine.memories.write_vector(0, bits([np.arange(1.0, 17.0)]))
    machine.run()
    assert numbers(machine.memories.read_f())[1] == want


def test_reductions_and_nan():
    lanes = bits([[1.0] * 7 + [np.nan]])
    for op in ("V_RED_MAX f1, gp0, 0", "V_RED_SUM f1, gp0, 0"):
        machine = make(op)
        machine.memories.write_vector(0, lanes)
        machine.run()
        assert canonical(machine.memories.read_f())[1] == 0x7FC0
    machine = make("V_RED_MAX f0, gp0, 0")
    machine.memories.write_vector(0, lanes)
    machine.run()
    assert machine.memories.read_f()[0] == 0


def test_the_sum_is_a_neighbours_first_tree_in_fp32():
    big = 2.0**24
    for lanes, want in (([big, -big, 1, 1], 2), ([big, 1, 1, -big], 1), ([1, big, 1, -big], 1)):
        machine = make("V_RED_SUM f1, gp0, 0")
        machine.memories.write_vector(0, row(*lanes))
        machine.run()
        assert numbers(machine.memories.read_f())[1] == want


@pytest.mark.parametrize("amount", [0, 1, 7, 8, 9, 262143])
def test_shift_moves_lanes_up(amount: int):
    memories = run(f"S_ADDI_INT gp3, gp0, {amount}\nV_SHFT_V gp2, gp0, gp3").memories
    want = [0.0] * min(amount, 8) + A[: max(0, 8 - amount)]
    assert numbers(memories.read_vector(2, 1)).tolist() == [want]
