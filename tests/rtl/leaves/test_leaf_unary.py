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


CASES = {
    BF16Exp: {
        0x42B0: 0x7EF9,
        0x42B1: 0x7EF9,
        0x7F7F: 0x7EF9,
        0x7F80: 0x7EF9,
        0xC2AE: 0x00B3,
        0xC2AF: 0x006D,
        0xC2B0: 0x0042,
        0xC2B1: 0x0042,
        0xFF7F: 0x0042,
        0xFF80: 0x0042,
        0x0000: 0x3F80,
        0x8000: 0x3F80,
        0x3B00: 0x3F80,
        0x3B80: 0x3F81,
        0x40DB: 0x446B,
        0x7F81: 0x7FC0,
        0xFFC0: 0x7FC0,
    },
    BF16Reciprocal: {
        0x0000: 0x7F80,
        0x8000: 0xFF80,
        0x7F80: 0x0000,
        0xFF80: 0x8000,
        0x0020: 0x7F80,
        0x0021: 0x7F78,
        0x0040: 0x7F00,
        0x0080: 0x7E80,
        0x7E80: 0x0080,
        0x7E81: 0x007F,
        0x7F7F: 0x0020,
        0x4040: 0x3EAB,
        0x3F81: 0x3F7E,
        0xFF81: 0x7FC0,
    },
    BF16Sqrt: {
        0x0000: 0x0000,
        0x8000: 0x8000,
        0x4080: 0x4000,
        0x7F80: 0x7F80,
        0xFF80: 0x7FC0,
        0xBF80: 0x7FC0,
        0x8001: 0x7FC0,
        0x7F81: 0x7FC0,
    },
    RoundToBF16: {
        0x43008000: 0x4300,
        0x43018000: 0x4302,
        0x7F7F7FFF: 0x7F7F,
        0x7F7F8000: 0x7F80,
        0x7F7FFFFF: 0x7F80,
        0x00007FFF: 0x0000,
        0x00008000: 0x0000,
        0x00018000: 0x0002,
        0x007FFFFF: 0x0080,
        0x7F800001: 0x7FC0,
        0xFF800001: 0x7FC0,
        0x80008000: 0x8000,
        0xFF7F8000: 0xFF80,
        0x7FFFFFFF: 0x7FC0,
    },
}


@pytest.mark.parametrize("leaf", CASES)
def test_cases(leaf):
    given = np.array(list(CASES[leaf]), dtype=np.uint32)
    expect(evaluate(leaf, {"i": given}), np.array(list(CASES[leaf].values())), i=given)
