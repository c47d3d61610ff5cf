"""MX blocks: E4M3 elements sharing one E8M0 scale, to and from BF16, in two dialects.

A tensor is [..., n] with n a multiple of `block`; codes keep that shape, scales are [..., n /
block], scale number i belonging to elements i*block .. (i+1)*block - 1 of the row.

Sources: numerics.md, "MX conversion", for `ocp` (OCP Microscaling Formats 1.0); for `plena` the
quantiser of the PLENA emulator. That one adds 1e-9 to a maximum before it takes the logarithm,
against log2(0), which gives blocks below 2^-22 another scale; here, as in the hardware, nothing is
added. A NaN, which it does not expect, is written as in OCP.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import BF16, Bf16Array, from_bits, round_to_bf16, to_bits

Codes = npt.NDArray[np.uint8]
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E4M3_MAX = 448.0
E4M3_EMAX = 8
PLENA_BIAS = 7
E8M0_BIAS = 127
E8M0_NAN = 0xFF
BLOCK = 8


def _blocked(x: npt.NDArray[Any], block: int) -> npt.NDArray[Any]:
    """Reshape [..., n] to [..., n/block, block]; ValueError when a block would straddle a row."""
    if block < 1 or x.ndim < 1 or x.shape[-1] % block:
        raise ValueError(f"MX: shape {x.shape} does not end in whole blocks of {block} elements")
    return x.reshape(*x.shape[:-1], x.shape[-1] // block, block)


def encode(x: npt.NDArray[Any], block: int = BLOCK, dialect: str = "ocp") -> tuple[Codes, Codes]:
    """Quantise values to (E4M3 codes, E8M0 scale bytes).

    float32 and float64 are host data and are first rounded once to BF16 (which drops the sign of a
    NaN). The scale byte is e + 127 with e = floor(log2(max |x|)) - 8, in dialect `plena` without
    the -8, clamped to [-127, 127]; an element is x * 2^-e, see the dialect's function. Infinities
    count as the largest finite value in the maximum; NaN does not count and becomes 0x7F with its
    sign. A block without a non-zero number has scale byte 0.

    ValueError: no such dialect, or a block would straddle a row.
    """
    rules = _rules(dialect)
    host = np.asarray(x)
    values = _blocked(host if host.dtype == BF16 else round_to_bf16(host), block)
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64)
    largest = float(from_bits(0x7F7F))
    magnitude = np.where(np.isnan(exact), 0.0, np.minimum(np.abs(exact), largest)).max(axis=-1)
    _, exponent = np.frexp(magnitude)  # magnitude = f * 2^exponent with f in [0.5, 1)
    shared = np.where(magnitude > 0, exponent - 1 - rules.emax, -E8M0_BIAS)
    shared = np.clip(shared, -E8M0_BIAS, E8M0_BIAS)
    with np.errstate(all="ignore"):
        scaled = np.ldexp(exact, -shared[..., None])
        codes = rules.element_codes(np.where(np.isnan(scaled), 0.0, scaled))
    nan_codes = np.where(to_bits(values) & 0x8000, 0xFF, 0x7F).astype(np.uint8)
    codes = np.where(np.isnan(exact), nan_codes, codes)
    return codes.reshape(host.shape), (shared + E8M0_BIAS).astype(np.uint8)


def decode(codes: Codes, scales: Codes, block: int = BLOCK, dialect: str = "ocp") -> Bf16Array:
    """Return element * scale rounded once to BF16; the scale is 2^(byte - 127), but 0xFF is NaN in
    dialect `ocp`, and in `plena` 0x00 is 0 and 0xFF infinity. NaN and 0 * infinity give NaN.

    ValueError: no such dialect, or not exactly one byte of `scales` per block of `codes`.
    """
    rules = _rules(dialect)
    raw = _blocked(np.asarray(codes, dtype=np.uint8), block)
    scale = np.asarray(scales, dtype=np.uint8)
    if scale.shape != raw.shape[:-1]:
        raise ValueError(f"MX: {scale.shape} scales for blocks {raw.shape[:-1]}")
    factors = np.ldexp(1.0, np.arange(256) - E8M0_BIAS)
    for byte, factor in rules.special_scales.items():
        factors[byte] = factor
    with np.errstate(all="ignore"):
        values = rules.element_values()[raw] * factors[scale][..., None]
    return round_to_bf16(values).reshape(np.shape(codes))


def round_trip(x: npt.NDArray[Any], block: int = BLOCK, dialect: str = "ocp") -> Bf16Array:
    """Return what a BF16 (or host float) tensor reads back as after a write to HBM."""
    codes, scales = encode(x, block, dialect)
    return decode(codes, scales, block, dialect)


def _ocp_codes(scaled: npt.NDArray[np.float64]) -> Codes:
    """To nearest even, saturating at +-448; a zero keeps its sign."""
    # Eight-bit significands stay exact in float32; what underflows there is far below E4M3.
    clipped = np.clip(scaled, -E4M3_MAX, E4M3_MAX)
    return clipped.astype(np.float32).astype(E4M3).view(np.uint8)


def _plena_codes(scaled: npt.NDArray[np.float64]) -> Codes:
    """Two bits beyond the significand, then to nearest even, without a carry into the exponent.

    The exponent is floor(log2 |x|) clamped to [-7, 7]. At -7 there is no hidden bit. Above the last
    binade it is +-240; every zero is code 0.
    """
    magnitude = np.minimum(np.abs(scaled), 2.0**9)
    _, exponent = np.frexp(np.where(magnitude > 0, magnitude, 2.0**-99))
    wanted = exponent - 1
    exponent = np.clip(wanted, -PLENA_BIAS, PLENA_BIAS)
    hidden = np.where(exponent == -PLENA_BIAS, 0.0, 1.0)
    eighths = (np.ldexp(magnitude, -exponent) - hidden) * 8
    quarters_cut = np.floor(eighths * 4) / 4
    significand = np.clip(np.rint(quarters_cut), 0, 7)
    significand = np.where(wanted > PLENA_BIAS, 7, significand)
    codes = (exponent + PLENA_BIAS) * 8 + significand.astype(np.int64)
    sign = np.where(scaled < 0, 0x80, 0)
    return (codes | sign).astype(np.uint8)


def _ocp_values() -> npt.NDArray[np.float64]:
    """The 256 elements: up to 448, no infinities."""
    return np.arange(256, dtype=np.uint8).view(E4M3).astype(np.float64)


def _plena_values() -> npt.NDArray[np.float64]:
    """The 256 elements: the least binade is m/8 * 2^-7, the top exponent infinities and NaN."""
    field, m = np.arange(128) >> 3, np.arange(128) & 7
    values = np.ldexp(np.where(field == 0, m, 8 + m).astype(np.float64), field - PLENA_BIAS - 3)
    values[field == 15] = np.nan
    values[15 << 3] = np.inf
    return np.concatenate([values, -values])


@dataclass(frozen=True)
class _Rules:
    """What one dialect does: elements to codes and back, and scale bytes that are no power of two.

    A block's maximum is scaled into the binade 2^emax."""

    emax: int
    element_codes: Callable[[npt.NDArray[np.float64]], Codes]
    element_values: Callable[[], npt.NDArray[np.float64]]
    special_scales: dict[int, float]


_RULES = {
    "ocp": _Rules(E4M3_EMAX, _ocp_codes, _ocp_values, {E8M0_NAN: np.nan}),
    "plena": _Rules(0, _plena_codes, _plena_values, {0: 0.0, 255: np.inf}),
}


def _rules(dialect: str) -> _Rules:
    if dialect not in _RULES:
        raise ValueError(f"MX: dialect must be one of {', '.join(_RULES)}, not {dialect!r}")
    return _RULES[dialect]
