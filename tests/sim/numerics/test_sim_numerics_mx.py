"""OCP's MX blocks: an exact nearest-code search, and the identity rule both ways; cases.md is in
`tests/cases`."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.numerics import exact, mx
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16, to_bits
from testbench.reference import data

E4M3 = exact.Format(name="E4M3", exponent_bits=4, trailing_bits=3)
FINITE_CODES = list(range(0x7F))  # 0x7F is NaN; 0x78..0x7E are finite in the OCP format


def e4m3_value(code: int) -> Fraction:
    """Decode a positive OCP code by the formula; the top binade holds numbers here."""
    field, trailing = divmod(code, 8)
    return Fraction(trailing + (8 if field else 0), 8) * Fraction(2) ** (max(field, 1) - 7)


CODE_VALUES = [e4m3_value(code) for code in FINITE_CODES]


def nearest_code(magnitude: Fraction) -> int:
    """Search all codes for the nearest, ties to the even code, above the last one saturating."""
    return min(FINITE_CODES, key=lambda c: (abs(CODE_VALUES[c] - magnitude), c & 1))


def floor_log2_of_block(bits: list[int]) -> int | None:
    finite = [min(b & 0x7FFF, 0x7F7F) for b in bits if b & 0x7FFF <= 0x7F80]
    top = max((exact.value_of(b, exact.BF16) for b in finite), default=Fraction(0))
    return exact.floor_log2(top) if top else None


def encode_naively(bits: list[int]) -> tuple[list[int], int]:
    """Encode one block of BF16 patterns, from the text of numerics.md."""
    log2 = floor_log2_of_block(bits)
    e = -127 if log2 is None else max(-127, min(127, log2 - 8))
    codes = []
    for b in bits:
        magnitude, sign = b & 0x7FFF, (b >> 8) & 0x80
        if magnitude > 0x7F80:
            codes.append(sign | 0x7F)
        elif magnitude == 0x7F80:
            codes.append(sign | 0x7E)
        else:
            scaled = exact.value_of(magnitude, exact.BF16) * Fraction(2) ** -e
            codes.append(sign | nearest_code(min(scaled, Fraction(448))))
    return codes, e + 127


def test_zeros_decode_to_zeros_under_every_other_scale():
    scales = np.arange(255, dtype=np.uint8)
    codes = np.tile(np.array([0x00, 0x80], np.uint8), (255, 1)).reshape(255, 2)
    assert (to_bits(mx.decode(codes, scales[:, None], block=2)) == [0x0000, 0x8000]).all()


def test_decode_of_every_code_under_every_scale():
    codes = np.tile(np.arange(256, dtype=np.uint8), 256).reshape(256, 256, 1)
    scales = np.repeat(np.arange(256, dtype=np.uint8), 256).reshape(256, 256, 1)
    got = canonical_bits(mx.decode(codes, scales, block=1))[..., 0]
    for scale in (*range(12), 100, 127, 128, 200, *range(240, 255)):
        for code in range(256):
            if code & 0x7F == 0x7F:
                assert got[scale, code] == 0x7FC0
                continue
            value = e4m3_value(code & 0x7F) * Fraction(2) ** (scale - 127)
            bits = exact.bits_of(value, exact.BF16) | (code & 0x80) << 8
            assert got[scale, code] == bits, (scale, code)
    assert (got[255] == 0x7FC0).all()


def test_every_bf16_encodes_to_the_nearest_code_under_a_fixed_maximum():
    """Element 0 fixes the scale at 1; all smaller magnitudes take element 1."""
    small = np.arange(0x4400, dtype=np.uint16)  # up to 512
    blocks = np.stack([np.full_like(small, 0x43E0), small], axis=-1)  # maximum 448 or in its binade
    codes, scales = mx.encode(from_bits(blocks), block=2)
    assert (scales == 0x7F).all()
    for bits in range(0x3A80, 0x4400):  # from below the smallest subnormal's half upwards
        assert codes[bits, 1] == nearest_code(exact.value_of(bits, exact.BF16)), hex(bits)
    assert (codes[:0x3A80, 1] == 0).all()


def test_random_blocks_against_the_naive_encoder():
    rng = np.random.default_rng(8)
    bits = rng.integers(0, 1 << 16, (70, 8))  # all exponents: mostly one large element
    near = rng.integers(0x3C00, 0x4200, (70, 8)) | rng.integers(0, 2, (70, 8)) << 15
    low = rng.integers(0x0000, 0x0500, (30, 8)) | rng.integers(0, 2, (30, 8)) << 15
    special = near[:30].copy()
    special[:, 3] = rng.choice([0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F7F], 30)
    blocks = np.concatenate([bits, near, low, special])
    codes, scales = mx.encode(from_bits(blocks))
    for i, block in enumerate(blocks.tolist()):
        got = (codes[i].tolist(), int(scales[i, 0]))
        assert got == encode_naively(block), [hex(b) for b in block]


def test_host_data_is_rounded_once_to_bf16_first():
    # A hair above the E4M3 tie 1.0625: BF16 drops the hair first, and the tie goes down.
    values = np.array([1.0, 1.0625 + 2.0**-20, 0.0, 0.0])
    assert mx.encode(values, block=4)[0].tolist() == [0x78, 0x78, 0x00, 0x00]
    with pytest.raises(TypeError, match="float16"):
        mx.encode(values.astype(np.float16), block=4)


def test_block_shapes():
    x = round_to_bf16(np.random.default_rng(9).standard_normal((3, 5, 32)))
    codes, scales = mx.encode(x)
    assert (codes.shape, codes.dtype, scales.shape, scales.dtype) == (
        (3, 5, 32),
        np.uint8,
        (3, 5, 4),
        np.uint8,
    )
    assert np.array_equal(
        to_bits(mx.round_trip(x[1, 2, 8:16])), to_bits(mx.round_trip(x)[1, 2, 8:16])
    )
    with pytest.raises(ValueError, match="whole blocks of 8"):
        mx.encode(x[..., :12])
    with pytest.raises(ValueError, match="scales for blocks"):
        mx.decode(codes, scales[..., :3])


# --- the identity rule ---------------------------------------------------------------------------


def is_identity(block: list[float]) -> bool:
    x = round_to_bf16(np.array(block, np.float64))
    assert np.array_equal(x.astype(np.float64), block), "the test values must be BF16 values"
    return np.array_equal(to_bits(mx.round_trip(x)), to_bits(x))


def by_rule(block: list[float]) -> bool:
    return bool(data.obeys_mx_identity_rule(round_to_bf16(np.array(block, np.float64)))[0])


significant = st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.integers(1, 15), st.integers(-14, 0))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(significant, min_size=8, max_size=8), st.integers(-115, 120))
def test_every_block_within_the_rule_survives(
    elements: list[tuple[float, int, int]], exponent: int
):
    block = [sign * m * 2.0 ** (e + exponent) for sign, m, e in elements]
    if max(abs(v) for v in block) < 2.0**127 and by_rule(block):
        assert is_identity(block)


@pytest.mark.parametrize("exponent", [-120, -60, 0, 100])
def test_the_rule_at_its_limits(exponent: int):
    unit = 2.0**exponent
    for block in (
        [1.75 * unit, 1.75 * unit / 2**14] + [0.0] * 6 if exponent > -110 else [1.75 * unit] * 8,
        [14 * unit, -15 * unit / 2, 13 * unit / 4, -11 * unit / 8, 0.0, -0.0, unit, 9 * unit],
    ):
        assert by_rule(block)
        assert is_identity(block)


@pytest.mark.parametrize(
    "block",
    [
        [15.0, 1, 0, 0, 0, 0, 0, 0],  # the maximum's significand is 1.875: 480 saturates to 448
        [15 * 2.0**-40, 0, 0, 0, 0, 0, 0, 0],
        [-15 * 2.0**60, 2.0**60, 0, 0, 0, 0, 0, 0],
        [16.0, 17 / 16, 0, 0, 0, 0, 0, 0],  # five significant bits
        [1.0, 15 * 2.0**-18, 0, 0, 0, 0, 0, 0],  # more than 2^14 below the maximum
        [1.0, 2.0**-18, 0, 0, 0, 0, 0, 0],
    ],
)
def test_each_condition_of_the_rule_is_needed(block: list[float]):
    assert not by_rule(block)
    assert not is_identity(block)


def test_fifteen_reads_back_as_fourteen():
    values = [15.0, 1.0] + [0.0] * 6
    assert mx.round_trip(np.array(values)).astype(np.float64).tolist() == [14.0, 1.0] + [0.0] * 6


def test_the_rule_refuses_infinities_and_nan():
    assert not by_rule([np.inf] + [0.0] * 7)
    assert not data.obeys_mx_identity_rule(from_bits([0x7FC0] + [0] * 7))[0]


@pytest.mark.filterwarnings("error")
def test_no_numpy_warning_escapes():
    every = from_bits(np.arange(1 << 16))
    with np.errstate(all="raise"):
        mx.round_trip(every)
        data.obeys_mx_identity_rule(every)
