import ml_dtypes
import numpy as np
import pytest

import tests.rtl.leaves.leaf_golden as golden
from rtl.leaves import MxBlockScale, MxDecode, MxEncode
from tests.rtl.leaves.leaf_harness import evaluate, expect

ALL = np.arange(1 << 16, dtype=np.uint32)
CODES = np.arange(256, dtype=np.uint32)


def bf16(numbers: list[float]) -> np.ndarray:
    return golden.encode(np.array(numbers), golden.BF16)


def block_scales(blocks: np.ndarray, size: int) -> np.ndarray:
    operands = {f"i{k}": blocks[:, k] for k in range(size)}
    return evaluate(lambda: MxBlockScale(block=size), operands)


def test_decode_of_every_code_under_every_scale():
    codes, scales = (grid.ravel() for grid in np.meshgrid(CODES, CODES))
    expect(
        evaluate(MxDecode, {"code": codes, "scale": scales}),
        golden.mx_decode(codes, scales),
        code=codes,
        scale=scales,
    )


@pytest.mark.parametrize("scale", [0, 1, 4, 7, 8, 119, 127, 246, 254])
def test_encode_of_everything(scale):
    # Outside a window of exponents all codes are equal; a sample of them is enough.
    field = (ALL >> 7 & 255).astype(int)
    near = (field >= scale - 20) & (field <= scale + 12)
    words = ALL[near | (field < 2) | (field == 255) | (ALL % 61 == 0)]
    scales = np.full(len(words), scale, dtype=np.uint32)
    expect(
        evaluate(MxEncode, {"i": words, "scale": scales}),
        golden.mx_encode(words, scales),
        i=words,
        scale=scales,
    )


@pytest.mark.slow
@pytest.mark.parametrize("scale", range(255))
def test_encode_of_everything_under_every_scale(scale):
    scales = np.full(len(ALL), scale, dtype=np.uint32)
    expect(
        evaluate(MxEncode, {"i": ALL, "scale": scales}),
        golden.mx_encode(ALL, scales),
        i=ALL,
        scale=scales,
    )


def test_encode_agrees_with_ml_dtypes():
    words = np.arange(0x3000, 0x4F00, dtype=np.uint32)
    with_type = np.minimum(golden.decode(words, golden.BF16), 448.0).astype(np.float32)
    wanted = with_type.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    scales = np.full(len(words), 127, dtype=np.uint32)
    expect(golden.mx_encode(words, scales), wanted, i=words)


@pytest.mark.parametrize("size", [1, 3, 4, 8])
def test_block_scale(size):
    rng = np.random.default_rng(size)
    blocks = rng.integers(0, 1 << 16, (6000, size), dtype=np.uint32)
    small = rng.integers(0, 0x0500, (3000, size), dtype=np.uint32)
    special = rng.choice(
        np.array([0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0x0001, 0x3F80]), (3000, size)
    ).astype(np.uint32)
    blocks = np.concatenate([blocks, small, special])
    expect(block_scales(blocks, size), golden.mx_scale(blocks))


@pytest.mark.usefixtures("leaves_unused")
def test_block_scale_needs_an_element():
    with pytest.raises(ValueError, match="MxBlockScale: block must be at least 1, not 0"):
        MxBlockScale(block=0)


@pytest.mark.parametrize(
    ("block", "scale", "codes"),
    [
        ([500, 1, 0.5, -500], 0x7F, [0x7E, 0x38, 0x30, 0xFE]),
        ([4, 2, 1, 0.5], 0x79, [0x78, 0x70, 0x68, 0x60]),
        ([1.9921875, 1.9375, 1.0859375, -1.9921875], 0x77, [0x7E, 0x7E, 0x79, 0xFE]),
        ([1.0625, 1.1875, 1.3125, 1], 0x77, [0x78, 0x7A, 0x7A, 0x78]),
        ([1024, 1, 1 / 32, 1 / 256], 0x81, [0x78, 0x28, 0x04, 0x00]),
        ([2.0**-126, 2.0**-127, 2.0**-133, 0], 0x00, [0x40, 0x38, 0x08, 0x00]),
        ([2.0**-40, 2.0**-41, 0, -0.0], 0x4F, [0x78, 0x70, 0x00, 0x80]),
        ([float.fromhex("0x1.fep127"), 0, 0, 0], 0xF6, [0x7E, 0, 0, 0]),
        ([np.inf, -np.inf, 0, 1], 0xF6, [0x7E, 0xFE, 0, 0]),
        ([0, -0.0, 0, 0], 0x00, [0, 0x80, 0, 0]),
        ([np.nan, 1, 0, 0], 0x77, [0x7F, 0x78, 0, 0]),
    ],
)
def test_blocks_of_four(block, scale, codes):
    words = bf16(block)
    got = block_scales(words[None, :], 4)[0]
    assert f"{got:02X}" == f"{scale:02X}"
    encoded = evaluate(MxEncode, {"i": words, "scale": np.full(4, scale)})
    assert [f"{code:02X}" for code in encoded] == [f"{code:02X}" for code in codes]


def test_nan_keeps_its_sign():
    operands = {"i": np.array([0x7FC0, 0xFFC0, 0x7F81, 0xFF81]), "scale": np.array([127])}
    assert evaluate(MxEncode, operands).tolist() == [0x7F, 0xFF, 0x7F, 0xFF]


@pytest.mark.parametrize(
    ("code", "scale", "word"),
    [
        (0x38, 0x00, 0x0040),
        (0x7E, 0xFE, 0x7F80),  # 448 * 2^127
        (0xFE, 0xFE, 0xFF80),
        (0x01, 0x00, 0x0000),  # 2^-9 * 2^-127
        (0x07, 0x00, 0x0001),  # 7 * 2^-9 * 2^-127
        (0x04, 0x00, 0x0000),  # 2^-134, a tie
        (0x0C, 0x00, 0x0002),  # 3 * 2^-134, a tie
        (0x06, 0x01, 0x0002),  # 3 * 2^-134, a tie
        (0x7F, 0x7F, 0x7FC0),
        (0xFF, 0x7F, 0x7FC0),
        (0x80, 0x7F, 0x8000),
    ],
)
def test_decode_edges(code, scale, word):
    got = evaluate(MxDecode, {"code": np.array([code]), "scale": np.array([scale])})[0]
    assert f"{got:04X}" == f"{word:04X}"


def test_decode_of_zero_and_under_the_nan_scale():
    scales = np.arange(255, dtype=np.uint32)
    assert not evaluate(MxDecode, {"code": np.array([0]), "scale": scales}).any()
    assert (evaluate(MxDecode, {"code": CODES, "scale": np.array([0xFF])}) == 0x7FC0).all()


def test_four_bit_significands_survive():
    # At most 4 bits, no more than 2^14 below the maximum, the maximum's significand at most 1.75.
    rng = np.random.default_rng(4)
    numbers = rng.integers(8, 16, (500, 8)) * 2.0 ** rng.integers(-14, 0, (500, 8))
    numbers[:, 0] = rng.integers(8, 15, 500)
    numbers *= rng.choice([-1.0, 1.0], (500, 8)) * 2.0 ** rng.integers(-90, 90, (500, 1))
    words = golden.encode(numbers, golden.BF16)
    scales = block_scales(words, 8)[:, None]
    codes = evaluate(MxEncode, {"i": words, "scale": scales})
    expect(evaluate(MxDecode, {"code": codes, "scale": scales}), words)
