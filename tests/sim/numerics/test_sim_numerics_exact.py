"""The scalar oracle itself, against the host's own IEEE arithmetic."""

import random
import struct
from fractions import Fraction

import pytest

from sim.numerics.exact import (
    BF16,
    FP32,
    add_bits,
    bits_of,
    convert_bits,
    floor_log2,
    mul_bits,
    tree_sum_bits,
    value_of,
)


def host_float32_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def test_fp32_rounding_agrees_with_the_host_conversion():
    rng = random.Random(1)
    for _ in range(3000):
        value = rng.choice((-1, 1)) * rng.random() * 2.0 ** rng.randint(-160, 127)
        assert bits_of(value, FP32) == host_float32_bits(value), value.hex()


def test_decoding_inverts_encoding_for_every_finite_bf16():
    for bits in range(1 << 16):
        if bits & 0x7FFF < BF16.infinity:
            zero_sign = int(bits == 0x8000)
            assert bits_of(value_of(bits, BF16), BF16, zero_sign=zero_sign) == bits


def test_non_finite_patterns_are_refused():
    for bits in (0x7F80, 0xFF80, 0x7FC0):
        with pytest.raises(ValueError, match="not a finite BF16"):
            value_of(bits, BF16)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(257, 2), 0x4300),
        (Fraction(259, 2), 0x4302),
        (Fraction(2) ** -134, 0x0000),
        (3 * Fraction(2) ** -134, 0x0002),
        (-(Fraction(2) ** -134), 0x8000),
        (Fraction(2) ** 128 - 2**119, 0x7F80),
        (Fraction(2) ** 128 - 2**119 - 1, 0x7F7F),
        (Fraction(2) ** 400, 0x7F80),
    ],
)
def test_bf16_ties_and_ends(value: Fraction, expected: int):
    assert bits_of(value, BF16) == expected


def test_floor_log2_is_exact_beside_powers_of_two():
    for power in (-140, -1, 0, 1, 60):
        assert floor_log2(Fraction(2) ** power) == power
        assert floor_log2(Fraction(2) ** power * Fraction(10**9 - 1, 10**9)) == power - 1
    with pytest.raises(ValueError, match="positive"):
        floor_log2(Fraction(0))


def test_signed_zeros():
    assert add_bits(0x8000, 0x8000, BF16) == 0x8000
    assert add_bits(0x3F80, 0xBF80, BF16) == 0x0000
    assert mul_bits(0x8000, 0x3F80, BF16, FP32) == 0x8000_0000
    assert convert_bits(0x8000_0000, FP32, BF16) == 0x8000


def test_tree_sum_pairs_neighbours():
    one, big, minus_big = (host_float32_bits(v) for v in (1.0, 2.0**24, -(2.0**24)))
    assert tree_sum_bits([big, minus_big, one, one], FP32) == host_float32_bits(2.0)
    assert tree_sum_bits([big, one, minus_big, one], FP32) == host_float32_bits(1.0)
