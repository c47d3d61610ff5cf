"""The MX leaves in Amaranth's simulator, both dialects; cases.md is in `tests/cases`.

Every number under every scale, through the compiled leaf, is `testbench.leaf_proofs`.
"""

import ml_dtypes
import numpy as np
import pytest

import testbench.leaf_proofs.definitions as golden
from isa.config import MX_DIALECTS
from rtl.leaves import MxBlockScale, MxDecode, MxEncode
from testbench.leaf_proofs import mx_definitions
from tests.rtl.leaves.leaf_harness import evaluate, expect

ALL = np.arange(1 << 16, dtype=np.uint32)
CODES = np.arange(256, dtype=np.uint32)


def block_scales(blocks: np.ndarray, size: int, dialect: str = "ocp") -> np.ndarray:
    operands = {f"i{k}": blocks[:, k] for k in range(size)}
    return evaluate(lambda: MxBlockScale(block=size, dialect=dialect), operands)


@pytest.mark.parametrize("dialect", MX_DIALECTS)
def test_decode_of_every_code_under_every_scale(dialect):
    codes, scales = (grid.ravel() for grid in np.meshgrid(CODES, CODES))
    expect(
        evaluate(lambda: MxDecode(dialect=dialect), {"code": codes, "scale": scales}),
        mx_definitions.mx_decode(codes, scales, dialect),
        code=codes,
        scale=scales,
    )


@pytest.mark.parametrize("dialect", MX_DIALECTS)
@pytest.mark.parametrize("scale", [0, 1, 4, 7, 8, 119, 127, 246, 254])
def test_encode_of_everything(scale, dialect):
    # Outside a window of exponents all codes are equal; a sample of them is enough.
    field = (ALL >> 7 & 255).astype(int)
    near = (field >= scale - 20) & (field <= scale + 12)
    words = ALL[near | (field < 2) | (field == 255) | (ALL % 61 == 0)]
    scales = np.full(len(words), scale, dtype=np.uint32)
    expect(
        evaluate(lambda: MxEncode(dialect=dialect), {"i": words, "scale": scales}),
        mx_definitions.mx_encode(words, scales, dialect),
        i=words,
        scale=scales,
    )


def test_encode_agrees_with_ml_dtypes():
    words = np.arange(0x3000, 0x4F00, dtype=np.uint32)
    with_type = np.minimum(golden.decode(words, golden.BF16), 448.0).astype(np.float32)
    wanted = with_type.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    scales = np.full(len(words), 127, dtype=np.uint32)
    expect(mx_definitions.mx_encode(words, scales), wanted, i=words)


@pytest.mark.parametrize("dialect", MX_DIALECTS)
@pytest.mark.parametrize("size", [1, 3, 4, 8])
def test_block_scale(size, dialect):
    rng = np.random.default_rng(size)
    blocks = rng.integers(0, 1 << 16, (6000, size), dtype=np.uint32)
    small = rng.integers(0, 0x0500, (3000, size), dtype=np.uint32)
    special = rng.choice(
        np.array([0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0x0001, 0x3F80]), (3000, size)
    ).astype(np.uint32)
    blocks = np.concatenate([blocks, small, special])
    expect(block_scales(blocks, size, dialect), mx_definitions.mx_scale(blocks, dialect))


@pytest.mark.usefixtures("leaves_unused")
def test_parameters_are_checked():
    with pytest.raises(ValueError, match="MxBlockScale: block must be at least 1, not 0"):
        MxBlockScale(block=0)
    for leaf in (MxDecode, MxBlockScale, MxEncode):
        wanted = f"{leaf.__name__}: dialect must be one of ocp, plena, not 'mx'"
        with pytest.raises(ValueError, match=wanted):
            leaf(dialect="mx")


@pytest.mark.parametrize("dialect", MX_DIALECTS)
def test_decode_of_zero_and_under_the_last_scale(dialect):
    def make() -> MxDecode:
        return MxDecode(dialect=dialect)

    scales = np.arange(255, dtype=np.uint32)
    assert not evaluate(make, {"code": np.array([0]), "scale": scales}).any()
    got = evaluate(make, {"code": CODES, "scale": np.array([0xFF])})
    if dialect == "ocp":
        assert (got == 0x7FC0).all()
    else:
        assert set(got.tolist()) == {0x7F80, 0xFF80, 0x7FC0}


@pytest.mark.parametrize(("dialect", "binades", "limit"), [("ocp", 14, 15), ("plena", 6, 16)])
def test_four_bit_significands_survive(dialect, binades, limit):
    # At most 4 bits, no more than so many binades below the maximum; in OCP the maximum's
    # significand is at most 1.75.
    rng = np.random.default_rng(4)
    numbers = rng.integers(8, 16, (500, 8)) * 2.0 ** rng.integers(-binades, 0, (500, 8))
    numbers[:, 0] = rng.integers(8, limit, 500)
    numbers *= rng.choice([-1.0, 1.0], (500, 8)) * 2.0 ** rng.integers(-90, 90, (500, 1))
    words = golden.encode(numbers, golden.BF16)
    scales = block_scales(words, 8, dialect)[:, None]
    codes = evaluate(lambda: MxEncode(dialect=dialect), {"i": words, "scale": scales})
    back = evaluate(lambda: MxDecode(dialect=dialect), {"code": codes, "scale": scales})
    expect(back, words)
