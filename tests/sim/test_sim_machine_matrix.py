"""The architectural machine: every product form and write-out, against plain matrix arithmetic.

Operands are small integers, so that every sum is exact and the order is tested elsewhere
(tests/sim/numerics), but for one case.
"""

import numpy as np
import pytest

from isa.config import PRESETS, ConfigError
from isa.traps import Trap
from sim.machine import Machine
from tests.sim.machine_bench import SMALL, bits, make, numbers

MLEN, BLEN, HLEN, HEADS = 16, 4, 8, 2
RNG = np.random.default_rng(7)
TILES = RNG.integers(-3, 4, (2, MLEN, MLEN)).astype(float)
V = RNG.integers(-3, 4, (MLEN + 4, MLEN)).astype(float)
OUT = 32 * MLEN
SCALE = 0.25  # HLEN 8: 2^-ceil(3/2)


def run(text: str, **replaced: object) -> Machine:
    config = SMALL.replace(**replaced) if replaced else SMALL
    machine = make(text, config)
    machine.memories.write_vector(0, bits(V))
    for tile, values in enumerate(TILES):
        machine.memories.write_matrix(tile, bits(values))
    assert machine.run().cause is Trap.DONE
    return machine


def result(machine: Machine, rows: int) -> np.ndarray:
    return numbers(machine.memories.read_vector(32, rows))


def address(register: int, value: int) -> str:
    return f"S_ADDI_INT gp{register}, gp0, {value}\n"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("group", [0, 1, 3])
def test_tile_products_accumulate_and_write_out_clears(transposed: bool, group: int):
    column, row = group * BLEN, 2
    op = "M_TMM 0, gp2, gp1" if transposed else "M_MM 0, gp1, gp2"
    machine = run(
        address(1, MLEN * MLEN + column * MLEN)
        + address(2, row * MLEN)
        + address(3, OUT)
        + f"{op}\n{op}\n"
        + f"M_MM_WO gp3, gp0, {8}\nM_MM_WO gp3, gp0, {4 * MLEN}\n"
    )
    matrix = TILES[1].T if transposed else TILES[1]
    want = np.zeros((8, MLEN))
    want[:4, 8:12] = 2 * V[row : row + BLEN] @ matrix[:, column : column + BLEN]
    assert np.array_equal(result(machine, 8), want)


@pytest.mark.parametrize("stride", [0, 1, 3])
def test_the_write_out_stride_and_untouched_lanes(stride: int):
    text = "M_MM 0, gp0, gp0\n" + address(3, OUT) + address(4, stride)
    machine = make(text + "M_MM_WO gp3, gp4, 4\n", SMALL)
    machine.memories.write_matrix(0, bits(TILES[0]))
    machine.memories.write_vector(0, bits(V))
    machine.memories.write_vector(32, bits(np.full((16, MLEN), 9.0)))
    machine.run()
    product = V[:BLEN] @ TILES[0][:, :BLEN]
    want = np.full((16, MLEN), 9.0)
    for i in range(BLEN):
        want[i * stride, 4:8] = product[i]
    assert np.array_equal(result(machine, 16), want)


@pytest.mark.parametrize("transposed", [False, True])
def test_row_products(transposed: bool):
    op = "M_TMV" if transposed else "M_MV"
    text = address(1, 8 * MLEN) + address(2, 5 * MLEN) + address(3, OUT)
    machine = run(text + f"{op} 0, gp1, gp2\n" * 2 + "M_MV_WO gp3, 12\nM_MV_WO gp3, 16\n")
    matrix = TILES[0].T if transposed else TILES[0]
    want = np.zeros((2, MLEN))
    want[0, 12:] = 2 * V[5] @ matrix[:, 8:12]
    assert np.array_equal(result(machine, 2), want)


@pytest.mark.parametrize("one_row", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("start", [0, 8])
def test_per_head_products(one_row: bool, transposed: bool, start: int):
    kind = "MV" if one_row else "MM"
    op = f"M_BT{kind}" if transposed else f"M_B{kind}"
    offset = start if transposed else start * MLEN
    text = address(1, MLEN * MLEN) + address(4, offset) + address(2, 4 * MLEN) + address(3, OUT)
    body = f"{op} gp4, gp1, gp2\n" * 2
    rows = 1 if one_row else MLEN
    machine = run(text + body + f"M_B{kind}_WO gp3, 0\nM_B{kind}_WO gp3, {HEADS * rows * MLEN}\n")
    part = TILES[1][:, start : start + HLEN].T if transposed else TILES[1][start : start + HLEN]
    heads = [V[4 : 4 + rows, h * HLEN : (h + 1) * HLEN] @ part for h in range(HEADS)]
    want = np.concatenate([2 * SCALE * np.concatenate(heads), np.zeros((HEADS * rows, MLEN))])
    assert np.array_equal(result(machine, 2 * HEADS * rows), bits_round(want))


def bits_round(values: np.ndarray) -> np.ndarray:
    return numbers(bits(values))


def test_the_head_factor_is_a_field_of_the_configuration():
    text = address(3, OUT) + "M_BMV gp0, gp0, gp0\nM_BMV_WO gp3, 0\n"
    plain = result(run(text), 2)
    assert np.array_equal(result(run(text, BMM_SCALE_LOG2=0), 2), plain * 4)
    assert np.array_equal(result(run(text, BMM_SCALE_LOG2=3), 2), plain * 32)


def test_the_default_head_factor_follows_hlen():
    factors = {2: 0.5, 4: 0.5, 8: 0.25, 16: 0.25, 32: 0.125, 64: 0.125}
    for hlen, factor in factors.items():
        assert PRESETS["default"].replace(HLEN=hlen).bmm_scale == factor
    for bad, message in ((65, "must be -64 to 64"), (-65, "must be"), (0.5, "an integer")):
        with pytest.raises(ConfigError, match=f"BMM_SCALE_LOG2 = {bad}.*{message}"):
            SMALL.replace(BMM_SCALE_LOG2=bad)


def test_accumulators_are_independent_and_in_fp32():
    # 256 + 1 + 1: accumulated in BF16 it would stay 256.
    machine = make(
        "S_ADDI_INT gp1, gp0, 16\nS_ADDI_INT gp2, gp0, 32\nS_ADDI_INT gp3, gp0, 512\n"
        "M_MV 0, gp0, gp0\nM_MM 0, gp0, gp1\nM_MV 0, gp0, gp1\nM_MV 0, gp0, gp1\nM_MV_WO gp3, 0\n"
        "M_MM_WO gp3, gp0, 4\n",
        SMALL,
    )
    machine.memories.write_matrix(0, bits(np.eye(MLEN)))
    vectors = np.zeros((8, MLEN))
    vectors[0, 0], vectors[1, 0] = 256.0, 1.0
    machine.memories.write_vector(0, bits(vectors))
    machine.run()
    out = result(machine, 1)[0]
    assert out[0] == 258.0
    assert out[4] == 1.0


def test_write_out_rounds_once_to_nearest_even():
    # 257 and 259 lie between BF16 neighbours: ties to even.
    machine = make("M_MV 0, gp0, gp0\nS_ADDI_INT gp3, gp0, 512\nM_MV_WO gp3, 0\n", SMALL)
    matrix = np.zeros((MLEN, MLEN))
    matrix[0, :3], matrix[1, :3] = 256.0, (1.0, 3.0, 2.0)
    machine.memories.write_matrix(0, bits(matrix))
    machine.memories.write_vector(0, bits([[1.0, 1.0, *[0.0] * 14]]))
    machine.run()
    assert result(machine, 1)[0, :3].tolist() == [256.0, 260.0, 258.0]


def test_the_sum_over_lanes_is_the_neighbours_first_tree():
    big = 2.0**24
    machine = make("M_MV 0, gp0, gp0\nS_ADDI_INT gp3, gp0, 512\nM_MV_WO gp3, 0\n", SMALL)
    matrix = np.zeros((MLEN, MLEN))
    matrix[:4, 0], matrix[:4, 1] = (big, -big, 1, 1), (big, 1, 1, -big)
    machine.memories.write_matrix(0, bits(matrix))
    machine.memories.write_vector(0, bits(np.ones((1, MLEN))))
    machine.run()
    assert result(machine, 1)[0, :2].tolist() == [2.0, 1.0]
