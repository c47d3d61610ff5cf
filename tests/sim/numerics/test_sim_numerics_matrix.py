"""Products and tiles against exact scalar arithmetic."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sim.numerics import exact, matrix
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16
from sim.numerics.exact import BF16, FP32


def test_products_against_fractions():
    rng = np.random.default_rng(10)
    a = rng.integers(0, 0x7F80, 3000) | rng.integers(0, 2, 3000) << 15
    b = rng.integers(0, 0x7F80, 3000) | rng.integers(0, 2, 3000) << 15
    tiny = rng.integers(0, 0x1C00, (2, 1500))  # products among the FP32 subnormals and below
    a[:1500], b[:1500] = tiny[0], (0x2000 - tiny[0] + tiny[1] % 0x800) & 0x3FFF
    got = matrix.product_fp32(from_bits(a), from_bits(b)).view(np.uint32)
    inexact = 0
    for x, y, bits in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        assert bits == exact.mul_bits(x, y, BF16, FP32), f"{x:04X} {y:04X}"
        true = exact.value_of(x, BF16) * exact.value_of(y, BF16)
        inexact += bits & 0x7FFFFFFF < 0x7F800000 and exact.value_of(bits, FP32) != true
    assert inexact > 100  # underflow was really reached


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (0x7F7F, 0x4000, 0x7F800000),
        (0x0001, 0x3380, 0x00000000),  # 2^-157
        (0x0001, 0x3780, 0x00000001),  # 2^-133 * 2^-16 = 2^-149
        (0x0001, 0x3700, 0x00000000),  # 2^-150, a tie
        (0x0001, 0x3740, 0x00000001),  # 1.5 * 2^-150
        (0x8001, 0x3700, 0x80000000),
        (0x7F80, 0x0000, 0x7FC00000),
    ],
)
def test_products_that_underflow_or_overflow(a: int, b: int, expected: int):
    assert canonical_bits(matrix.product_fp32(from_bits([a]), from_bits([b])))[0] == expected


def test_mm_tile_accumulates_and_starts_from_positive_zero():
    minus_zero = from_bits([[0x8000] * 4])
    identity = round_to_bf16(np.ones((4, 1)))
    start = np.zeros((1, 1), np.float32)
    assert matrix.mm_tile(start, minus_zero, identity).view(np.uint32)[0, 0] == 0
    start = np.full((1, 1), BIG := 2.0**24, np.float32)
    ones = round_to_bf16(np.ones((1, 4)))
    assert matrix.mm_tile(start, ones, identity)[0, 0] == BIG + 4  # term by term it would stay BIG


def test_mm_tile_scale_multiplies_before_accumulating():
    start = np.full((1, 1), 8.0, np.float32)
    ones, column = round_to_bf16(np.ones((1, 4))), round_to_bf16(np.ones((4, 1)))
    assert matrix.mm_tile(start, ones, column, scale=0.25)[0, 0] == 9.0
    tiny = from_bits([[0x0001, 0, 0, 0]])
    small = from_bits([[0x3780], [0], [0], [0]])  # product 2^-149, scaled below: rounds to zero
    zero = np.zeros((1, 1), np.float32)
    assert matrix.mm_tile(zero, tiny, small)[0, 0] == Fraction(2) ** -149
    assert matrix.mm_tile(zero, tiny, small, scale=0.25)[0, 0] == 0


def test_errors_name_what_does_not_fit():
    act, weight = round_to_bf16(np.ones((2, 8))), round_to_bf16(np.ones((8, 8)))
    double: Any = np.zeros((2, 8))
    with pytest.raises(TypeError, match="accumulator is float32, got float64"):
        matrix.mm_tile(double, act, weight)
    with pytest.raises(ValueError, match="mm_tile"):
        matrix.mm_tile(np.zeros((2, 7), np.float32), act, weight)
