"""Exponential, reciprocal and square root: cases.md, and every input against exact arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from sim.numerics import bf16, exact
from sim.numerics.bf16 import canonical_bits, from_bits, to_bits

EVERY = from_bits(np.arange(1 << 16))


def hex_of(x: bf16.Bf16Array) -> str:
    return f"{int(canonical_bits(x)[0]):04X}"


def mp_fraction(value: mpmath.mpf) -> Fraction:
    return int(value.man) * Fraction(2) ** int(value.exp)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0x42B0, "7EF9"),
        (0x42B1, "7EF9"),
        (0x7F80, "7EF9"),
        (0xC2AE, "00B3"),
        (0xC2AF, "006D"),
        (0xC2B0, "0042"),
        (0xC2B1, "0042"),
        (0xFF80, "0042"),
        (0x0000, "3F80"),
        (0x8000, "3F80"),
        (0x3B00, "3F80"),
        (0x3B80, "3F81"),
        (0x7FC0, "7FC0"),
        (0xFF81, "7FC0"),
        (0x40DB, "446B"),
    ],
)
def test_exp_cases(x: int, expected: str):
    assert hex_of(bf16.exp(from_bits([x]))) == expected


def test_exp_is_correctly_rounded_for_every_input():
    got = to_bits(bf16.exp(EVERY))
    cached: dict[float, int] = {}
    with mpmath.workprec(80):
        for bits in range(1 << 16):
            value = float(EVERY[bits])
            if value != value:
                assert got[bits] == 0x7FC0
                continue
            clamped = min(max(value, -88.0), 88.0)
            if abs(clamped) < 2.0**-40:  # exp is 1 + x to within 2^-80: far inside the ties of 1
                assert got[bits] == 0x3F80, hex(bits)
                continue
            if clamped not in cached:
                cached[clamped] = exact.bits_of(mp_fraction(mpmath.exp(clamped)), exact.BF16)
            assert got[bits] == cached[clamped], hex(bits)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0x0000, "7F80"),
        (0x8000, "FF80"),
        (0x7F80, "0000"),
        (0xFF80, "8000"),
        (0x0020, "7F80"),
        (0x0021, "7F78"),
        (0x0040, "7F00"),
        (0x0080, "7E80"),
        (0x7E80, "0080"),
        (0x7E81, "007F"),
        (0x7F7F, "0020"),
        (0x4040, "3EAB"),
        (0x3F81, "3F7E"),
        (0xFFC1, "7FC0"),
    ],
)
def test_reciprocal_cases(x: int, expected: str):
    assert hex_of(bf16.reciprocal(from_bits([x]))) == expected


def test_reciprocal_is_correctly_rounded_for_every_finite_input():
    got = to_bits(bf16.reciprocal(EVERY))
    for bits in range(1 << 16):
        if 0 < bits & 0x7FFF < 0x7F80:
            expected = exact.bits_of(1 / exact.value_of(bits, exact.BF16), exact.BF16)
            assert got[bits] == expected, hex(bits)


def test_sqrt_is_correctly_rounded_for_every_input():
    got = to_bits(bf16.sqrt(EVERY))
    assert got[0x8000] == 0x8000
    assert got[0x7F80] == 0x7F80
    assert (got[0x8001:] == 0x7FC0).all()
    assert (got[0x7F81:0x8000] == 0x7FC0).all()
    # A result r is the nearest when x lies between the squares of the midpoints around it.
    for bits in range(1, 0x7F80):
        x, root = exact.value_of(bits, exact.BF16), int(got[bits])
        below, here, above = (exact.value_of(root + d, exact.BF16) for d in (-1, 0, 1))
        assert ((below + here) / 2) ** 2 < x < ((here + above) / 2) ** 2, hex(bits)
