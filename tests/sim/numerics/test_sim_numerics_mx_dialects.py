"""Both MX dialects of the reference against the definitions that the leaves are proven against:
every code under every scale, and every number under every scale that a block can have."""

import numpy as np
import pytest

from isa.config import MX_DIALECTS, PRESETS, ConfigError, load_config
from sim.numerics import mx
from sim.numerics.bf16 import canonical_bits, from_bits, to_bits
from testbench.leaf_proofs.mx_definitions import mx_decode, mx_encode, mx_scale
from testbench.reference import data

EVERY = np.arange(1 << 16, dtype=np.uint32)


@pytest.mark.parametrize("dialect", MX_DIALECTS)
def test_decode_of_every_code_under_every_scale(dialect):
    codes, scales = EVERY & np.uint32(0xFF), EVERY >> np.uint32(8)
    got = mx.decode(codes.astype(np.uint8), scales.astype(np.uint8), 1, dialect)
    assert np.array_equal(canonical_bits(got), mx_decode(codes, scales, dialect))


def check_encode(dialect: str, scale: int) -> int:
    """All numbers beside one that decides the scale; returns how many."""
    binade = scale + (8 if dialect == "ocp" else 0)
    magnitude = EVERY & np.uint32(0x7FFF)
    fits = (magnitude < (binade + 1) << 7) if binade < 254 else magnitude <= 0x7FFF
    numbers = EVERY[fits | (magnitude > 0x7F80)]
    decisive = binade << 7 if binade else 1
    blocks = np.stack([numbers, np.full_like(numbers, decisive)], axis=1)
    codes, scales = mx.encode(from_bits(blocks), 2, dialect)
    assert (scales == scale).all()
    assert np.array_equal(mx_scale(blocks, dialect), scales[:, 0])
    wanted = mx_encode(numbers, np.full_like(numbers, scale), dialect)
    assert np.array_equal(codes[:, 0], wanted)
    return len(numbers)


@pytest.mark.parametrize("dialect", MX_DIALECTS)
def test_encode_of_every_number(dialect):
    last = 246 if dialect == "ocp" else 254
    for scale in (0, 1, 2, 6, 7, 8, 9, 64, 127, 200, last - 1, last):
        assert check_encode(dialect, scale) > 0


@pytest.mark.slow
@pytest.mark.parametrize("dialect", MX_DIALECTS)
def test_encode_of_every_number_under_every_scale(dialect):
    for scale in range(247 if dialect == "ocp" else 255):
        assert check_encode(dialect, scale) > 0


def test_scales_of_the_dialects_are_8_apart():
    block = from_bits([0x4080, 0, 0x3F80, 0xC000])  # 4 0 1 -2
    assert int(mx.encode(block, 4, "ocp")[1][0]) == 127 + 2 - 8
    codes, scales = mx.encode(block, 4, "plena")
    assert (codes.tolist(), scales.tolist()) == ([0x38, 0x00, 0x28, 0xB0], [129])


def test_what_plena_does_differently():
    def code(number: float) -> int:
        return int(mx.encode(np.array([number, 1.0]), 2, "plena")[0][0])

    assert code(-0.0) == 0x00  # the sign of a zero is lost, that of what rounds to zero is not
    assert code(-(2.0**-12)) == 0x80
    assert code(2.0**-6) == 0x08
    assert [code(2.0**-7 * m) for m in (1, 1.25, 1.875)] == [0x07] * 3  # clamped, no carry
    assert code(1.9921875) == 0x3F
    assert code(1.328125) == 0x3A  # 2.625 eighths, cut off to 2.5: a tie
    lost = mx.encode(from_bits([0x0040, 0x8020]), 2, "plena")  # a scale byte of 0 reads as 0
    assert to_bits(mx.decode(*lost, 2, "plena")).tolist() == [0x0000, 0x8000]


def test_the_identity_rule_of_plena():
    def identity(*block: float) -> tuple[bool, bool]:
        x = from_bits(to_bits(data.round_to_bf16(np.array(block))))
        kept = np.array_equal(to_bits(mx.round_trip(x, len(block), "plena")), to_bits(x))
        return bool(data.obeys_mx_identity_rule(x, len(block), "plena")[0]), kept

    assert identity(15.0, 1.0) == (True, True)
    assert identity(1.0, 2.0**-6) == (True, True)
    assert identity(1.0, 15 * 2.0**-10) == (False, False)
    assert identity(1.0, 17 / 16) == (False, False)
    assert identity(2.0**-126, 2.0**-127) == (True, True)
    assert identity(2.0**-127, 2.0**-128) == (False, False)
    assert identity(1.0, -0.0) == (False, False)
    tensor = data.exact((64, 64), seed=3, dialect="plena")
    assert np.array_equal(to_bits(mx.round_trip(tensor, 8, "plena")), to_bits(tensor))


def test_an_unknown_dialect_is_refused(tmp_path):
    with pytest.raises(ValueError, match="dialect must be one of ocp, plena, not 'mx'"):
        mx.encode(np.zeros(8), 8, "mx")
    with pytest.raises(ValueError, match="dialect must be one of ocp, plena, not 'mx'"):
        mx.decode(np.zeros(8, np.uint8), np.zeros(1, np.uint8), 8, "mx")
    with pytest.raises(ConfigError, match="mx_dialect = 'OCP': must be one of ocp, plena"):
        PRESETS["tiny"].replace(mx_dialect="OCP")
    (tmp_path / "c.toml").write_text('base = "tiny"\nMX_DIALECT = "plena"\n')
    with pytest.raises(ConfigError, match="'MX_DIALECT'; did you mean mx_dialect"):
        load_config(str(tmp_path / "c.toml"))
