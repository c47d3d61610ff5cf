import numpy as np
import pytest

import testbench.leaf_proofs.definitions as golden
from rtl.leaves import BF16Exp, BF16Reciprocal, BF16Sqrt, RoundToBF16
from tests.rtl.leaves.leaf_harness import evaluate, expect

ALL = np.arange(1 << 16, dtype=np.uint32)


def test_exp_of_everything():
    expect(evaluate(BF16Exp, {"i": ALL}), golden.exponentials(), i=ALL)


def test_reciprocal_of_everything():
    expect(evaluate(BF16Reciprocal, {"i": ALL}), golden.reciprocal(ALL), i=ALL)


def test_square_root_of_everything():
    expect(evaluate(BF16Sqrt, {"i": ALL}), golden.square_root(ALL), i=ALL)


@pytest.mark.parametrize("low", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_rounding_of_every_upper_half(low):
    words = ALL << np.uint32(16) | np.uint32(low)
    expect(
        evaluate(RoundToBF16, {"i": words}),
        golden.encode(golden.decode(words, golden.FP32), golden.BF16),
        i=words,
    )
