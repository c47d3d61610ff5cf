"""Exponential, reciprocal and square root: every input against exact arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np

from sim.numerics import bf16, exact
from sim.numerics.bf16 import from_bits, to_bits

EVERY = from_bits(np.arange(1 << 16))


def mp_fraction(value: mpmath.mpf) -> Fraction:
    return int(value.man) * Fraction(2) ** int(value.exp)


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
