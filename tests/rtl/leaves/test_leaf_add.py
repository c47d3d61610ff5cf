import numpy as np
import pytest

import testbench.leaf_proofs.definitions as golden
from rtl.leaves import BF16, FP32, FloatAdd
from testbench.leaf_proofs.operands import pairs
from tests.rtl.leaves.leaf_harness import evaluate, expect

FORMATS = {"BF16": (BF16, golden.BF16), "FP32": (FP32, golden.FP32)}

PLUS_INF, MINUS_INF, NAN = 0x7F80, 0xFF80, 0x7FC0


@pytest.mark.parametrize("name", FORMATS)
def test_sums(name):
    fmt, exact = FORMATS[name]
    a, b = pairs(exact, exact)
    assert len(a) >= 100_000
    expect(evaluate(lambda: FloatAdd(fmt), {"a": a, "b": b}), golden.add(a, b, exact), a=a, b=b)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (PLUS_INF, MINUS_INF, NAN),
        (PLUS_INF, PLUS_INF, PLUS_INF),
        (MINUS_INF, 0x7F7F, MINUS_INF),
        (PLUS_INF, 0xFF81, NAN),
        (NAN, 0x3F80, NAN),
        (0x7F81, 0xFF81, NAN),
        (0x7F7F, 0x7AFF, 0x7F7F),
        (0x7F7F, 0x7B00, 0x7F80),
        (0xC01A, 0xC013, 0xC096),
        (0x3F80, 0xBF80, 0x0000),
        (0x7F7F, 0xFF7F, 0x0000),
        (0x8000, 0x8000, 0x8000),
        (0x8000, 0x0000, 0x0000),
        (0x0000, 0x8000, 0x0000),
        (0x0001, 0x8001, 0x0000),
        (0x0001, 0x007F, 0x0080),
        (0x0080, 0x8001, 0x007F),
    ],
)
def test_cases(a, b, wanted):
    operands = {"a": np.array([a]), "b": np.array([b])}
    assert f"{evaluate(lambda: FloatAdd(BF16), operands)[0]:X}" == f"{wanted:X}"
    if (a, b) not in {(0x7F7F, 0x7AFF), (0x7F7F, 0x7B00), (0xC01A, 0xC013)}:  # exact in FP32
        operands = {"a": np.array([a << 16]), "b": np.array([b << 16])}
        assert f"{evaluate(lambda: FloatAdd(FP32), operands)[0]:X}" == f"{wanted << 16:X}"


def test_ones_stop_at_256():
    # 256 + 1 is half-way and 256 is even; 255 + 1 is exact.
    operands = {"a": np.array([0x437F, 0x4380]), "b": np.array([0x3F80, 0x3F80])}
    assert evaluate(lambda: FloatAdd(BF16), operands).tolist() == [0x4380, 0x4380]
