import numpy as np
import pytest

import testbench.leaf_proofs.definitions as golden
from rtl.leaves import BF16, FP32, FloatFormat, FloatMul
from testbench.leaf_proofs.operands import pairs, random_pairs
from tests.rtl.leaves.leaf_harness import evaluate, expect

FORMATS = {"BF16": (BF16, golden.BF16), "FP32": (FP32, golden.FP32)}


@pytest.mark.parametrize("out", FORMATS)
def test_products(out):
    fmt, exact = FORMATS[out]
    a, b = pairs(golden.BF16, golden.BF16, products=True)
    assert len(a) >= 100_000
    wanted = golden.mul(a, b, golden.BF16, golden.BF16, exact)
    expect(evaluate(lambda: FloatMul(BF16, fmt), {"a": a, "b": b}), wanted, a=a, b=b)


@pytest.mark.parametrize("b_name", FORMATS)
def test_products_of_fp32(b_name):
    b_fmt, b_exact = FORMATS[b_name]
    a, b = random_pairs(golden.FP32, b_exact, scale=4, products=True)
    wanted = golden.mul(a, b, golden.FP32, b_exact, golden.FP32)
    leaf = evaluate(lambda: FloatMul(FP32, FP32, b_fmt=b_fmt), {"a": a, "b": b})
    expect(leaf, wanted, a=a, b=b)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (0x7F80, 0x0000, 0x7FC0),
        (0x8000, 0xFF80, 0x7FC0),
        (0xFF80, 0x0000, 0x7FC0),
        (0x7F80, 0x0001, 0x7F80),
        (0xFF80, 0x0001, 0xFF80),
        (0x7F81, 0x0000, 0x7FC0),
        (0xFFC0, 0x7F80, 0x7FC0),
        (0x8000, 0x3F80, 0x8000),
        (0x7F7F, 0x7F7F, 0x7F80),
        (0x0001, 0x8001, 0x8000),
        (0x0001, 0x3F80, 0x0001),
    ],
)
def test_cases(a, b, wanted):
    operands = {"a": np.array([a]), "b": np.array([b])}
    assert f"{evaluate(lambda: FloatMul(BF16, BF16), operands)[0]:X}" == f"{wanted:X}"
    assert f"{evaluate(lambda: FloatMul(BF16, FP32), operands)[0]:X}" == f"{wanted << 16:X}"


def test_exact_in_fp32_unless_out_of_range():
    a, b = random_pairs(golden.BF16, golden.BF16, scale=8)
    exact = golden.decode(a, golden.BF16) * golden.decode(b, golden.BF16)
    inside = (np.abs(exact) >= 2.0**-126) & (np.abs(exact) < 2.0**127)
    got = evaluate(lambda: FloatMul(BF16, FP32), {"a": a[inside], "b": b[inside]})
    assert (golden.decode(got, golden.FP32) == exact[inside]).all()


@pytest.mark.usefixtures("leaves_unused")
def test_exponent_ranges_must_agree():
    with pytest.raises(ValueError, match="FloatMul needs one exponent range: BF16, BF16, FP16"):
        FloatMul(BF16, FloatFormat("FP16", exp=5, man=10))
