"""BF16 rounding and binary operations against exact fractions; cases.md is in `tests/cases`."""

import operator
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from sim.numerics import bf16, exact
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16, to_bits

ALL = np.arange(1 << 16, dtype=np.uint32)
EVERY = from_bits(ALL)
FINITE = [int(b) for b in ALL if b & 0x7FFF < 0x7F80]


def one(bits: int) -> bf16.Bf16Array:
    return from_bits([bits])


def hex_of(x: bf16.Bf16Array) -> str:
    return f"{int(canonical_bits(x)[0]):04X}"


def interesting_patterns() -> npt.NDArray[np.int64]:
    """Both signs, spread exponents, edge significands: TestFloat's recipe cut down."""
    exponents = (0, 1, 2, 60, 111, 118, 119, 120, 125, 126, 127, 128, 134, 135, 136, 200, 253, 254)
    significands = (0x00, 0x01, 0x13, 0x1A, 0x40, 0x55, 0x7E, 0x7F)
    return np.array([s << 15 | e << 7 | m for s in (0, 1) for e in exponents for m in significands])


# --- rounding ------------------------------------------------------------------------------------


def test_float64_rounding_against_fractions():
    rng = np.random.default_rng(2)
    values = rng.standard_normal(4000) * 2.0 ** rng.integers(-150, 128, 4000)
    # Close neighbours of ties in every binade, where a second rounding shows.
    ties = (2 * rng.integers(128, 256, 2000) + 1) * 2.0 ** rng.integers(-150, 119, 2000)
    values = np.concatenate(
        [values, ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf), -ties]
    )
    values = np.concatenate([values, [2.0**-1074, -(2.0**-1074), 1.7e308, -1.7e308]])
    got = to_bits(round_to_bf16(values))
    for value, bits in zip(values, got, strict=True):
        assert bits == exact.bits_of(Fraction(float(value)), exact.BF16), float(value).hex()


def test_float32_rounding_against_fractions():
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32)
    raw[::2] = (raw[::2] & 0xFFFF0000) | rng.choice([0x7FFF, 0x8000, 0x8001], 2000).astype(
        np.uint32
    )
    values = raw.view(np.float32)
    finite = np.isfinite(values)
    got = to_bits(round_to_bf16(values[finite]))
    for bits, result in zip(raw[finite], got, strict=True):
        assert result == exact.convert_bits(int(bits), exact.FP32, exact.BF16), hex(bits)


def test_bf16_values_survive_and_nan_becomes_one():
    expected = np.where(np.isnan(EVERY), 0x7FC0, ALL)
    assert np.array_equal(to_bits(round_to_bf16(EVERY)), expected)
    assert np.array_equal(canonical_bits(EVERY), expected)
    assert np.array_equal(to_bits(EVERY), ALL)
    assert np.array_equal(to_bits(round_to_bf16(EVERY.astype(np.float32))), expected)


def test_canonical_bits_of_fp32_and_refusal_of_others():
    nans = np.array([0x7F800001, 0xFFC00000, 0x80000000], np.uint32).view(np.float32)
    assert canonical_bits(nans).tolist() == [0x7FC00000, 0x7FC00000, 0x80000000]
    with pytest.raises(TypeError, match="float64"):
        canonical_bits(np.zeros(1))


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.longdouble])
def test_other_host_types_are_refused_by_name(dtype: type):
    with pytest.raises(TypeError, match=np.dtype(dtype).name):
        round_to_bf16(np.zeros(2, dtype))


def test_operations_refuse_what_is_not_bf16():
    for operation in (bf16.add, bf16.sub, bf16.mul, bf16.maximum, bf16.minimum):
        with pytest.raises(TypeError, match="bfloat16, got float16"):
            operation(one(0), np.zeros(1, np.float16))
    for operation in (bf16.exp, bf16.reciprocal, bf16.sqrt):
        with pytest.raises(TypeError, match="bfloat16, got float32"):
            operation(np.zeros(1, np.float32))


def test_patterns_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"0\.\.0xFFFF"):
        from_bits([0x10000])


# --- add, sub, mul, max, min ---------------------------------------------------------------------


def test_add_sub_mul_against_fractions():
    rng = np.random.default_rng(4)
    edges = interesting_patterns()
    a = np.concatenate([rng.choice(FINITE, 4000), rng.choice(edges, 4000)])
    b = np.concatenate([rng.choice(FINITE, 4000), rng.choice(edges, 4000)])
    near = (a[:2000] + rng.integers(-0x480, 0x480, 2000)) & 0x7FFF  # similar exponents: real sums
    b[:2000] = np.where(near < 0x7F80, near, 0x3F80)
    sums = to_bits(bf16.add(from_bits(a), from_bits(b)))
    differences = to_bits(bf16.sub(from_bits(a), from_bits(b)))
    products = to_bits(bf16.mul(from_bits(a), from_bits(b)))
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        where = f"{x:04X} {y:04X}"
        assert sums[i] == exact.add_bits(x, y, exact.BF16), where
        assert differences[i] == exact.add_bits(x, y ^ 0x8000, exact.BF16), where
        assert products[i] == exact.mul_bits(x, y, exact.BF16, exact.BF16), where


@pytest.mark.parametrize(
    ("operation", "python_choice", "zero"),
    [(bf16.maximum, max, 0x0000), (bf16.minimum, min, 0x8000)],
)
def test_maximum_and_minimum(
    operation: Callable[[bf16.Bf16Array, bf16.Bf16Array], bf16.Bf16Array],
    python_choice: Callable[[float, float], float],
    zero: int,
):
    patterns = np.concatenate([interesting_patterns(), [0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81]])
    got = operation(from_bits(patterns)[:, None], from_bits(patterns)[None, :])
    for i, a in enumerate(patterns.tolist()):
        for j, b in enumerate(patterns.tolist()):
            bits = int(to_bits(got)[i, j])
            if a & 0x7FFF > 0x7F80 or b & 0x7FFF > 0x7F80:
                assert bits == 0x7FC0
            elif (a | b) & 0x7FFF == 0 and a != b:
                assert bits == zero
            else:
                x, y = float(from_bits(a)), float(from_bits(b))
                assert bits == (a if python_choice(x, y) == x else b)


def test_shapes_and_dtype_are_kept():
    x = round_to_bf16(np.ones((2, 3, 4)))
    for result in (bf16.exp(x), bf16.reciprocal(x), bf16.add(x, x[0]), bf16.maximum(x, x[:, :1])):
        assert result.shape == (2, 3, 4)
        assert result.dtype == ml_dtypes.bfloat16
    assert round_to_bf16(1.5).shape == ()
    assert operator.index(int(to_bits(round_to_bf16(1.5)))) == 0x3FC0


@pytest.mark.filterwarnings("error")
def test_no_numpy_warning_escapes():
    with np.errstate(all="raise"):
        for unary in (bf16.exp, bf16.reciprocal, bf16.sqrt, round_to_bf16, canonical_bits):
            unary(EVERY)
        for binary in (bf16.add, bf16.sub, bf16.mul, bf16.maximum, bf16.minimum):
            binary(EVERY, EVERY[::-1])
        round_to_bf16(np.array([1e308, 1e-308, np.nan, np.inf]))
