"""OCP Microscaling blocks: E4M3 elements sharing one E8M0 scale, to and from BF16.

Source: numerics.md, "MX conversion". A tensor is [..., n] with n a multiple of `block`; codes keep
that shape, scales are [..., n / block], scale number i belonging to elements i*block .. (i+1)*block
- 1 of the row.
"""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import BF16, Bf16Array, from_bits, round_to_bf16, to_bits

Codes = npt.NDArray[np.uint8]
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E4M3_MAX = 448.0
E4M3_EMAX = 8
E8M0_BIAS = 127
E8M0_NAN = 0xFF
BLOCK = 8


def _blocked(x: npt.NDArray[Any], block: int) -> npt.NDArray[Any]:
    """Reshape [..., n] to [..., n/block, block]; ValueError when a block would straddle a row."""
    if block < 1 or x.ndim < 1 or x.shape[-1] % block:
        raise ValueError(f"MX: shape {x.shape} does not end in whole blocks of {block} elements")
    return x.reshape(*x.shape[:-1], x.shape[-1] // block, block)


def encode(x: npt.NDArray[Any], block: int = BLOCK) -> tuple[Codes, Codes]:
    """Quantise values to (E4M3 codes, E8M0 scale bytes).

    float32 and float64 are host data and are first rounded once to BF16 (which drops the sign of a
    NaN). e = floor(log2(max |x|)) - 8 clamped to [-127, 127]; the scale byte is e + 127; an element
    is x * 2^-e rounded to nearest even, saturating at +-448. Infinities count as the largest finite
    value in the maximum; NaN does not count and becomes 0x7F with its sign. A block without a
    non-zero number has scale byte 0.
    """
    host = np.asarray(x)
    values = _blocked(host if host.dtype == BF16 else round_to_bf16(host), block)
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64)
    largest = float(from_bits(0x7F7F))
    magnitude = np.where(np.isnan(exact), 0.0, np.minimum(np.abs(exact), largest)).max(axis=-1)
    _, exponent = np.frexp(magnitude)  # magnitude = f * 2^exponent with f in [0.5, 1)
    shared = np.where(magnitude > 0, exponent - 1 - E4M3_EMAX, -E8M0_BIAS)
    shared = np.clip(shared, -E8M0_BIAS, E8M0_BIAS)
    # Eight-bit significands stay exact in float32; what underflows there is far below E4M3.
    with np.errstate(all="ignore"):
        scaled = np.clip(np.ldexp(exact, -shared[..., None]), -E4M3_MAX, E4M3_MAX)
        codes = scaled.astype(np.float32).astype(E4M3).view(np.uint8)
    nan_codes = np.where(to_bits(values) & 0x8000, 0xFF, 0x7F).astype(np.uint8)
    codes = np.where(np.isnan(exact), nan_codes, codes)
    return codes.reshape(host.shape), (shared + E8M0_BIAS).astype(np.uint8)


def decode(codes: Codes, scales: Codes, block: int = BLOCK) -> Bf16Array:
    """Return elem * 2^(scale - 127) rounded once to BF16; scale 0xFF or an element NaN gives NaN.

    ValueError unless `scales` has exactly one byte per block of `codes`.
    """
    raw = _blocked(np.asarray(codes, dtype=np.uint8), block)
    scale = np.asarray(scales, dtype=np.uint8)
    if scale.shape != raw.shape[:-1]:
        raise ValueError(f"MX: {scale.shape} scales for blocks {raw.shape[:-1]}")
    with np.errstate(all="ignore"):
        elements = raw.view(E4M3).astype(np.float64)
        values = np.ldexp(elements, scale.astype(np.int32)[..., None] - E8M0_BIAS)
    values = np.where((scale == E8M0_NAN)[..., None], np.nan, values)
    return round_to_bf16(values).reshape(np.shape(codes))


def round_trip(x: npt.NDArray[Any], block: int = BLOCK) -> Bf16Array:
    """Return what a BF16 (or host float) tensor reads back as after a write to HBM."""
    codes, scales = encode(x, block)
    return decode(codes, scales, block)
