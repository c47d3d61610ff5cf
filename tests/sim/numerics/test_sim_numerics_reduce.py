"""The FP32 tree, V_RED_SUM and V_RED_MAX."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sim.numerics import exact
from sim.numerics.bf16 import Bf16Array, canonical_bits, from_bits, round_to_bf16, to_bits
from sim.numerics.reduce import enabled_lanes, red_max, red_sum, tree_sum

BIG = 2.0**24


def sequential(terms: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for term in terms:
        total = np.float32(total + term)
    return total


def stride_halving(terms: npt.NDArray[np.float32]) -> np.float32:
    while terms.size > 1:
        half = terms.size // 2
        terms = terms[:half] + terms[half:]
    return terms[0]


def bf(value: float) -> Bf16Array:
    return round_to_bf16(value)


@pytest.mark.parametrize(
    ("terms", "neighbours", "in_sequence", "halving"),
    [
        ([BIG, -BIG, 1, 1], 2, 2, 1),
        ([BIG, 1, 1, -BIG], 1, 0, 1),
        ([BIG, 1, -BIG, 1], 1, 1, 2),
        ([BIG, 1, 3, -BIG], 3, 4, 5),
    ],
)
def test_the_tree_adds_neighbours_first(
    terms: list[float], neighbours: float, in_sequence: float, halving: float
):
    values = np.array(terms, np.float32)
    assert (sequential(values), stride_halving(values)) == (in_sequence, halving)  # the wrong trees
    assert tree_sum(values) == neighbours


@pytest.mark.parametrize("lanes", [1, 2, 4, 16, 64])
def test_the_tree_against_exact_arithmetic(lanes: int):
    rng = np.random.default_rng(lanes)
    terms = (rng.standard_normal((20, lanes)) * 2.0 ** rng.integers(-30, 30, (20, lanes))).astype(
        np.float32
    )
    got = canonical_bits(tree_sum(terms))
    for row, bits in zip(terms, got, strict=True):
        assert bits == exact.tree_sum_bits(row.view(np.uint32).tolist(), exact.FP32)


def test_random_terms_tell_the_three_orders_apart():
    rng = np.random.default_rng(5)
    terms = (rng.standard_normal((50, 64)) * 2.0 ** rng.integers(-12, 12, (50, 64))).astype(
        np.float32
    )
    tree = tree_sum(terms)
    assert np.mean([sequential(row) != s for row, s in zip(terms, tree, strict=True)]) > 0.3
    assert np.mean([stride_halving(row) != s for row, s in zip(terms, tree, strict=True)]) > 0.3


def test_tree_axis_and_subnormal_terms():
    terms = np.array([[1, 2], [3, 4]], np.float32)
    assert tree_sum(terms, axis=0).tolist() == [4, 6]
    assert tree_sum(terms, axis=1).tolist() == [3, 7]
    tiny = np.array([1, 2, 3, 4], np.uint32).view(np.float32)
    assert tree_sum(tiny).view(np.uint32) == 10  # nothing flushes to zero


def test_tree_refuses_other_lengths_and_types():
    double: Any = np.zeros(8)
    with pytest.raises(ValueError, match="12 terms"):
        tree_sum(np.zeros(12, np.float32))
    with pytest.raises(ValueError, match="0 terms"):
        tree_sum(np.zeros(0, np.float32))
    with pytest.raises(TypeError, match="float64"):
        tree_sum(double)


def test_red_sum_against_exact_arithmetic():
    rng = np.random.default_rng(6)
    rows = round_to_bf16(rng.standard_normal((200, 16)) * 2.0 ** rng.integers(-9, 9, (200, 16)))
    starts = round_to_bf16(rng.standard_normal(200) * 16)
    enabled = rng.integers(0, 2, 16).astype(bool)
    for lanes in (None, enabled):
        got = to_bits(red_sum(starts, rows, lanes))
        for i in range(200):
            terms = [
                exact.convert_bits(int(b), exact.BF16, exact.FP32)
                if lanes is None or lanes[j]
                else 0
                for j, b in enumerate(to_bits(rows[i]))
            ]
            start = exact.convert_bits(int(to_bits(starts)[i]), exact.BF16, exact.FP32)
            total = exact.add_bits(start, exact.tree_sum_bits(terms, exact.FP32), exact.FP32)
            assert got[i] == exact.convert_bits(total, exact.FP32, exact.BF16)


def test_red_sum_rounds_to_fp32_before_bf16():
    # 1 + 2^-8 is a tie of BF16; the 2^-30 that would break it is lost in the FP32 addition.
    row = round_to_bf16(np.array([2.0**-8, 0.0]))
    assert to_bits(red_sum(bf(1.0), row)) == 0x3F80
    row = round_to_bf16(np.array([2.0**-8, 2.0**-30]))
    assert to_bits(red_sum(bf(1.0), row)) == 0x3F80
    row = round_to_bf16(np.array([2.0**-8, 2.0**-20]))
    assert to_bits(red_sum(bf(1.0), row)) == 0x3F81


def test_masked_lanes_hide_nan_and_infinity():
    row = from_bits([0x7FC0, 0x3F80, 0xFF80, 0x4000])
    lanes = np.array([False, True, False, True])
    assert to_bits(red_sum(bf(1.0), row, lanes)) == 0x4080
    assert to_bits(red_max(bf(-5.0), row, lanes)) == 0x4000
    negative = from_bits([0x7FC0, 0xC000, 0x3F80, 0xC040])  # masked-off lanes are not zeros either
    assert to_bits(red_max(bf(-5.0), negative, lanes)) == 0xC000
    assert to_bits(red_sum(bf(1.0), row)) == 0x7FC0
    assert to_bits(red_max(bf(1.0), row)) == 0x7FC0


def test_masked_lanes_add_positive_zero():
    row = from_bits([0x8000] * 4)
    assert to_bits(red_sum(from_bits(0x8000), row)) == 0x8000
    assert to_bits(red_sum(from_bits(0x8000), row, np.array([True, True, True, False]))) == 0x0000


def test_red_max_rules():
    minus_zeros = from_bits([0x8000] * 4)
    assert to_bits(red_max(from_bits(0x8000), minus_zeros)) == 0x8000
    assert to_bits(red_max(from_bits(0x0000), minus_zeros)) == 0x0000
    assert to_bits(red_max(from_bits(0xFF80), from_bits([0x8000, 0x0000, 0xBF80, 0x8000]))) == 0
    assert to_bits(red_max(from_bits(0xFF80), from_bits([0xC000, 0xBF80]))) == 0xBF80
    assert to_bits(red_max(from_bits(0xFF80), from_bits([0xFF80, 0xFF80]))) == 0xFF80
    assert to_bits(red_max(from_bits(0x7F81), from_bits([0x4000, 0x3F80]))) == 0x7FC0
    assert to_bits(red_max(bf(3.0), from_bits([0x7FC0]), np.array([False]))) == 0x4040


def test_red_max_over_random_rows():
    rng = np.random.default_rng(7)
    rows = round_to_bf16(rng.standard_normal((50, 16)))
    starts = round_to_bf16(rng.standard_normal(50))
    expected = np.maximum(rows.astype(np.float32).max(axis=-1), starts.astype(np.float32))
    assert np.array_equal(red_max(starts, rows).astype(np.float32), expected)


def test_mask_bits_enable_groups_of_lanes():
    assert enabled_lanes(0b10, vlen=8, hlen=4).tolist() == [False] * 4 + [True] * 4
    assert enabled_lanes(0b0101, vlen=8, hlen=2).tolist() == [True, True, False, False] * 2


@pytest.mark.filterwarnings("error")
def test_no_numpy_warning_escapes():
    every = from_bits(np.arange(1 << 16)).reshape(-1, 64)
    with np.errstate(all="raise"):
        red_sum(every[:, 0], every)
        red_max(every[:, 0], every)
