"""Projections against exact scalar arithmetic, and their order."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from sim.numerics import exact, mx
from sim.numerics import matrix as tiles
from sim.numerics.bf16 import Bf16Array, canonical_bits, from_bits, round_to_bf16, to_bits
from sim.numerics.exact import BF16, FP32
from sim.numerics.reduce import tree_sum
from testbench.reference import data, matrix


def project_naively(
    act: list[list[int]], weight: list[list[int]], mlen: int, chunk_tiles: int
) -> list[list[int]]:
    """Project with scalar loops over patterns: tree, FP32 accumulator, BF16 chunk adds."""
    depth, cols = len(weight), len(weight[0])
    out: list[list[int]] = []
    for row in act:
        results: list[int] = []
        for n in range(cols):
            total: int | None = None
            for chunk in range(0, depth, chunk_tiles * mlen):
                acc = 0
                for k0 in range(chunk, min(depth, chunk + chunk_tiles * mlen), mlen):
                    products = [
                        exact.mul_bits(row[k], weight[k][n], BF16, FP32)
                        for k in range(k0, k0 + mlen)
                    ]
                    acc = exact.add_bits(acc, exact.tree_sum_bits(products, FP32), FP32)
                part = exact.convert_bits(acc, FP32, BF16)
                total = part if total is None else exact.add_bits(total, part, BF16)
            assert total is not None
            results.append(total)
        out.append(results)
    return out


@pytest.mark.parametrize(("mlen", "chunk_tiles"), [(4, 1), (4, 2), (4, 4), (8, 1), (16, 1), (2, 3)])
def test_projection_against_scalar_loops(mlen: int, chunk_tiles: int):
    act, weight = data.order_sensitive(3, 16, 8, seed=11, pairs=3)
    rng = np.random.default_rng(12)
    noise = round_to_bf16(rng.standard_normal((3, 16)) * 2.0 ** rng.integers(-20, 5, (3, 16)))
    for left in (act, noise):
        got = to_bits(matrix.linear_projection(left, weight, mlen, chunk_tiles))
        expected = project_naively(
            to_bits(left).tolist(), to_bits(weight).tolist(), mlen, chunk_tiles
        )
        assert got.tolist() == expected


def test_the_compiler_case_of_three_tiles():
    weight = round_to_bf16(np.repeat([1.0, 2.0, 3.0], 16)[:, None] * np.ones(16))
    out = matrix.linear_projection(round_to_bf16(np.ones((5, 48))), weight, 16)
    assert (to_bits(out) == 0x42C0).all()
    first_row = np.zeros((48, 16))
    first_row[0] = np.arange(1, 17)
    unit = np.zeros((1, 48))
    unit[0, 0] = 1.0
    out = matrix.linear_projection(round_to_bf16(unit), round_to_bf16(first_row), 16)
    assert out.astype(np.float64).tolist() == [list(range(1, 17))]


# --- order ---------------------------------------------------------------------------------------


def sequential(terms: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    total = np.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total


def stride_halving(terms: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    while terms.shape[0] > 1:
        half = terms.shape[0] // 2
        terms = terms[:half] + terms[half:]
    return terms[0]


def project_with(
    act: Bf16Array,
    weight: Bf16Array,
    mlen: int,
    lane_sum: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]],
    *,
    reverse_blocks: bool = False,
) -> Bf16Array:
    products = tiles.product_fp32(act.T[:, :, None], weight[:, None, :])
    starts = range(0, act.shape[1], mlen)
    total = np.zeros(products.shape[1:], np.float32)
    for k in reversed(starts) if reverse_blocks else starts:
        total = total + lane_sum(products[k : k + mlen])
    return round_to_bf16(total)


def test_order_sensitive_data_tells_wrong_orders_from_the_right_one():
    act, weight = data.order_sensitive(6, 64, 32, seed=13)
    right = to_bits(matrix.linear_projection(act, weight, 16))
    neighbours = project_with(act, weight, 16, lambda t: tree_sum(t, axis=0))
    assert np.array_equal(right, to_bits(neighbours))
    wrong = {
        "sequential": project_with(act, weight, 16, sequential),
        "stride halving": project_with(act, weight, 16, stride_halving),
        "blocks reversed": project_with(
            act, weight, 16, lambda t: tree_sum(t, axis=0), reverse_blocks=True
        ),
        "one tree over K": matrix.linear_projection(act, weight, 64),
        "K chunks of one tile": matrix.linear_projection(act, weight, 16, 1),
        "float64": round_to_bf16(act.astype(np.float64) @ weight.astype(np.float64)),
    }
    for name, result in wrong.items():
        assert np.mean(right != to_bits(result)) > 0.2, name


def test_order_sensitive_data_survives_mx():
    for tensor in data.order_sensitive(8, 128, 64, seed=14):
        assert data.obeys_mx_identity_rule(tensor).all()
        assert np.array_equal(to_bits(mx.round_trip(tensor)), to_bits(tensor))
    with pytest.raises(ValueError, match="no room"):
        data.order_sensitive(2, 8, 8, seed=0, pairs=5)


def test_chunk_results_are_rounded_and_added_in_chunk_order():
    # Chunks 256, 1, 1 by turns: BF16 loses each 1 after 256, FP32 keeps them, another order too.
    act = round_to_bf16(np.ones((1, 12)))
    weight = np.zeros((12, 4))
    weight[[0, 4, 8], :] = [[256.0], [1.0], [1.0]]
    w = round_to_bf16(weight)
    assert (to_bits(matrix.linear_projection(act, w, 4)) == 0x4381).all()  # 258
    assert (to_bits(matrix.linear_projection(act, w, 4, 1)) == 0x4380).all()  # 256
    backwards = round_to_bf16(weight[::-1].copy())
    assert (to_bits(matrix.linear_projection(act, backwards, 4, 1)) == 0x4381).all()


def test_a_bound_that_is_not_exceeded_changes_nothing():
    act, weight = data.order_sensitive(4, 64, 16, seed=15)
    unbounded = to_bits(matrix.linear_projection(act, weight, 16))
    for cap in (4, 5, 100):
        assert np.array_equal(unbounded, to_bits(matrix.linear_projection(act, weight, 16, cap)))


# --- slabs, errors ------------------------------------------------------------------------


def test_a_projection_of_minus_zeros_is_plus_zero():
    minus_zero, ones = from_bits([[0x8000] * 4]), round_to_bf16(np.ones((4, 1)))
    assert to_bits(matrix.linear_projection(minus_zero, ones, 4))[0, 0] == 0


def test_slabs_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch):
    act, weight = data.order_sensitive(7, 32, 24, seed=16)
    expected = to_bits(matrix.linear_projection(act, weight, 16))
    for slab in (1, 16 * 5, 16 * 24 * 2 + 1):
        monkeypatch.setattr(tiles, "SLAB_ELEMENTS", slab)
        assert np.array_equal(expected, to_bits(matrix.linear_projection(act, weight, 16)))


def test_nan_stays_in_its_row_and_infinity_meets_zero():
    act = round_to_bf16(np.ones((3, 8)))
    act[1, 3] = np.nan
    weight = round_to_bf16(np.ones((8, 4)))
    out = canonical_bits(matrix.linear_projection(act, weight, 8))
    assert out.tolist() == [[0x4100] * 4, [0x7FC0] * 4, [0x4100] * 4]
    act[1, 3] = np.inf
    weight[3, 0] = 0.0
    out = canonical_bits(matrix.linear_projection(act, weight, 8))
    assert out[1].tolist() == [0x7FC0, 0x7F80, 0x7F80, 0x7F80]


def test_errors_name_what_does_not_fit():
    act, weight = round_to_bf16(np.ones((2, 24))), round_to_bf16(np.ones((24, 8)))
    with pytest.raises(ValueError, match="K = 24 is not a positive multiple of MLEN 16"):
        matrix.linear_projection(act, weight, 16)
    with pytest.raises(ValueError, match=r"act \(2, 24\) @ weight \(16, 8\)"):
        matrix.linear_projection(act, weight[:16], 8)
    with pytest.raises(ValueError, match="k_chunk_tiles 0"):
        matrix.linear_projection(act, weight, 8, 0)
    with pytest.raises(TypeError, match="weight must be bfloat16, got float16"):
        matrix.linear_projection(act, np.ones((24, 8), np.float16), 8)


@pytest.mark.filterwarnings("error")
def test_no_numpy_warning_escapes():
    every = from_bits(np.arange(1 << 16))
    with np.errstate(all="raise"):
        matrix.linear_projection(every.reshape(512, 128), every.reshape(128, 512)[:, :32], 64, 1)
