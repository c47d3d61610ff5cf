"""The goldens against exact fractions, NumPy and ml_dtypes, so that they can be trusted."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import testbench.leaf_proofs.definitions as golden
from testbench.leaf_proofs import mx_definitions
from testbench.leaf_proofs.operands import pairs
from tests.rtl.leaves.leaf_harness import expect

FINITE_BF16 = st.integers(0, 0xFFFF).filter(lambda word: word & 0x7F80 != 0x7F80)
FINITE_FP32 = st.integers(0, 0xFFFFFFFF).filter(lambda word: word & 0x7F800000 != 0x7F800000)


def fraction(word: int, fmt: golden.Format) -> Fraction:
    return Fraction(float(golden.decode(np.array([word]), fmt)[0]))


@given(FINITE_FP32, FINITE_FP32)
@settings(max_examples=200, derandomize=True)
def test_add_is_the_exact_sum_rounded_once(a, b):
    exact = fraction(a, golden.FP32) + fraction(b, golden.FP32)
    got = int(golden.add(np.array([a]), np.array([b]), golden.FP32)[0])
    wanted = golden.encode_fraction(exact, golden.FP32)
    assert got == wanted or (exact == 0 and got in (0, 0x80000000))


@given(FINITE_BF16, FINITE_BF16)
@settings(max_examples=200, derandomize=True)
def test_mul_is_the_exact_product_rounded_once(a, b):
    exact = fraction(a, golden.BF16) * fraction(b, golden.BF16)
    for fmt in (golden.BF16, golden.FP32):
        got = int(golden.mul(np.array([a]), np.array([b]), golden.BF16, golden.BF16, fmt)[0])
        magnitude = (1 << (fmt.width - 1)) - 1
        assert got & magnitude == golden.encode_fraction(exact, fmt) & magnitude
        assert bool(got >> (fmt.width - 1)) == bool((a ^ b) >> 15)


def test_fp32_arithmetic_is_numpy_s():
    a, b = pairs(golden.FP32, golden.FP32)
    x, y = a.view(np.float32), b.view(np.float32)
    with np.errstate(all="ignore"):
        total, product = x + y, x * y
    for result, ours in (
        (total, golden.add(a, b, golden.FP32)),
        (product, golden.mul(a, b, *[golden.FP32] * 3)),
    ):
        wanted = np.where(np.isnan(result), np.uint32(golden.FP32.nan), result.view(np.uint32))
        expect(ours, wanted, a=a, b=b)


def test_bf16_encoding_is_ml_dtypes_for_float32():
    words = np.random.default_rng(0).integers(0, 1 << 32, 100_000).astype(np.uint32)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        result = words.view(np.float32).astype(ml_dtypes.bfloat16)
    wanted = np.where(np.isnan(result), golden.BF16.nan, result.view(np.uint16))
    expect(golden.encode(golden.decode(words, golden.FP32), golden.BF16), wanted, i=words)


def test_host_values_are_rounded_once():
    for number in (1.003906251, 1 + 2.0**-8 + 2.0**-40):
        assert golden.encode(np.array(number), golden.BF16)[0] == 0x3F81


@pytest.mark.parametrize("codes", [np.arange(256, dtype=np.uint32)])
def test_mx_decode_is_ml_dtypes_at_scale_one(codes):
    wanted = codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(ml_dtypes.bfloat16)
    wanted = np.where(np.isnan(wanted), golden.BF16.nan, wanted.view(np.uint16))
    expect(mx_definitions.mx_decode(codes, np.full(256, 127)), wanted, code=codes)


def test_exponentials_are_those_of_float64():
    words = np.arange(1 << 16, dtype=np.uint32)
    numbers = np.exp(np.clip(golden.decode(words, golden.BF16), -88.0, 88.0))
    expect(golden.exponentials(), golden.encode(numbers, golden.BF16), i=words)


def test_the_plena_quantiser_s_published_examples():
    # Of the PLENA emulator: cut off to two more bits, 1.0859375 and 1.328125 become ties.
    numbers = [1.0625, 1.0859375, 1.1875, 1.328125, -1.0625, -1.1875, 1.875, 0.0]
    codes = [0x38, 0x38, 0x3A, 0x3A, 0xB8, 0xBA, 0x3F, 0]
    words = golden.encode(np.array(numbers), golden.BF16)
    scales = np.full(8, 127, np.uint32)
    assert mx_definitions.mx_encode(words, scales, "plena").tolist() == codes
    subnormal = mx_definitions.mx_decode(np.array([7, 0x87, 1, 4]), scales[:4], "plena")
    wanted = [0.0068359375, -0.0068359375, 0.0009765625, 0.00390625]
    assert golden.decode(subnormal, golden.BF16).tolist() == wanted
