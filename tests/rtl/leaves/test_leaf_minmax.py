import numpy as np
import pytest

import testbench.leaf_proofs.definitions as golden
from rtl.leaves import BF16MinMax
from testbench.leaf_proofs.operands import pairs
from tests.rtl.leaves.leaf_harness import evaluate, expect


def test_pairs():
    a, b = pairs(golden.BF16, golden.BF16)
    is_max = np.arange(len(a), dtype=np.uint32) // 3 & 1
    got = evaluate(BF16MinMax, {"a": a, "b": b, "is_max": is_max})
    expect(got, golden.extremum(a, b, is_max), a=a, b=b, is_max=is_max)


@pytest.mark.parametrize(
    ("a", "b", "largest", "smallest"),
    [
        (0x8000, 0x0000, 0x0000, 0x8000),
        (0x7F80, 0xFF80, 0x7F80, 0xFF80),
        (0x7F80, 0x7F81, 0x7FC0, 0x7FC0),
        (0xFFC0, 0xFF80, 0x7FC0, 0x7FC0),
        (0xBF80, 0xC000, 0xBF80, 0xC000),
        (0x0001, 0x8001, 0x0001, 0x8001),
        (0x3F80, 0x3F80, 0x3F80, 0x3F80),
    ],
)
def test_cases(a, b, largest, smallest):
    operands = {
        "a": np.array([a, b, a, b]),
        "b": np.array([b, a, b, a]),
        "is_max": np.array([1, 1, 0, 0]),
    }
    assert evaluate(BF16MinMax, operands).tolist() == [largest, largest, smallest, smallest]
