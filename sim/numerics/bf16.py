"""BF16 rounding and the element-wise operations of the vector and scalar units.

Source: numerics.md, "Element-wise BF16". Every function takes and returns arrays of
`ml_dtypes.bfloat16` (NumPy broadcasting applies), rounds exactly once, keeps subnormals, and gives
the one NaN 0x7FC0.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Bf16Array = npt.NDArray[Any]
"""An array of dtype `ml_dtypes.bfloat16`, which NumPy's type stubs cannot name."""
F32Array = npt.NDArray[np.float32]

BF16 = np.dtype(ml_dtypes.bfloat16)
NAN_BITS = 0x7FC0
FP32_NAN_BITS = 0x7FC0_0000
EXP_CLAMP = 88.0
"""exp() clamps its argument to +-88; both ends are BF16 values (0x42B0, 0xC2B0)."""


def from_bits(bits: npt.ArrayLike) -> Bf16Array:
    """View patterns 0..0xFFFF as BF16; raise ValueError for a pattern outside that range."""
    raw = np.asarray(bits)
    if raw.size and (raw.min() < 0 or raw.max() > 0xFFFF):
        raise ValueError(f"BF16 patterns are 0..0xFFFF, got {int(raw.min())}..{int(raw.max())}")
    return raw.astype(np.uint16).view(BF16)


def to_bits(x: Bf16Array) -> npt.NDArray[np.uint16]:
    """View BF16 values as their patterns, NaN payloads as they are."""
    return require_bf16(x, "x").view(np.uint16)


def canonical_bits(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the patterns of BF16 (uint16) or FP32 (uint32) values, every NaN made one."""
    values = np.asarray(x)
    if values.dtype == BF16:
        return np.where(np.isnan(values), np.uint16(NAN_BITS), values.view(np.uint16))
    if values.dtype == np.float32:
        return np.where(np.isnan(values), np.uint32(FP32_NAN_BITS), values.view(np.uint32))
    raise TypeError(f"canonical_bits takes bfloat16 or float32, got {values.dtype}")


def require_bf16(x: npt.NDArray[Any], name: str) -> Bf16Array:
    """Return x as an array, or raise TypeError naming the dtype it has instead of bfloat16."""
    values = np.asarray(x)
    if values.dtype != BF16:
        raise TypeError(f"{name} must be bfloat16, got {values.dtype}: use round_to_bf16 first")
    return values


def round_to_bf16(x: npt.ArrayLike) -> Bf16Array:
    """Round float32 or float64 values once to BF16: nearest, ties to even, subnormals, NaN 0x7FC0.

    Python floats count as float64. BF16 passes through with its NaN made canonical. Any other dtype
    (float16, integers) raises TypeError: it is a format mix-up, or would have been rounded before.
    """
    values = np.asarray(x)
    if values.dtype == BF16:
        return canonical_bits(values).view(BF16)
    if values.dtype == np.float64:
        values = _float64_to_odd_float32(values)
    if values.dtype != np.float32:
        raise TypeError(f"round_to_bf16 takes float32 or float64 values, got {values.dtype}")
    bits = values.view(np.uint32)
    tie_to_even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + np.uint32(0x7FFF) + tie_to_even) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(NAN_BITS), rounded).view(BF16)


def _float64_to_odd_float32(x: npt.NDArray[np.float64]) -> F32Array:
    """Round float64 to float32 towards zero with the last bit set when inexact ("to odd").

    FP32 has 16 bits more than BF16 down to its subnormals, so a later rounding to BF16 sees on
    which side of every tie the float64 value lay. A second rounding to nearest would not.
    """
    with np.errstate(all="ignore"):
        nearest = x.astype(np.float32)
        widened = nearest.astype(np.float64)
        inexact = widened != x
        away = np.abs(widened) > np.abs(x)  # true also for a finite x that became infinity
    bits = nearest.view(np.uint32) - away.astype(np.uint32)
    bits = bits | inexact.astype(np.uint32)
    return np.where(np.isnan(x), np.float32(np.nan), bits.view(np.float32))


def _in_float32(
    operation: Callable[[F32Array, F32Array], F32Array], a: Bf16Array, b: Bf16Array
) -> Bf16Array:
    """Apply one operation in FP32 and round to BF16: as one rounding, since 24 >= 2*8 + 2."""
    left, right = require_bf16(a, "a").astype(np.float32), require_bf16(b, "b").astype(np.float32)
    with np.errstate(all="ignore"):
        return round_to_bf16(operation(left, right))


def add(a: Bf16Array, b: Bf16Array) -> Bf16Array:
    """Return BF16(a + b)."""
    return _in_float32(np.add, a, b)


def sub(a: Bf16Array, b: Bf16Array) -> Bf16Array:
    """Return BF16(a - b)."""
    return _in_float32(np.subtract, a, b)


def mul(a: Bf16Array, b: Bf16Array) -> Bf16Array:
    """Return BF16(a * b)."""
    return _in_float32(np.multiply, a, b)


def order_key(x: Bf16Array) -> npt.NDArray[np.int32]:
    """Map BF16 to integers in numeric order, with -0 just below +0. NaN has no meaningful key."""
    bits = to_bits(x).astype(np.int32)
    return np.where(bits & 0x8000, 0x7FFF - bits, bits)


def from_order_key(key: npt.NDArray[np.int32]) -> Bf16Array:
    """Invert `order_key`."""
    return np.where(key < 0, 0x7FFF - key, key).astype(np.uint16).view(BF16)


def maximum(a: Bf16Array, b: Bf16Array) -> Bf16Array:
    """Return the larger; NaN if either is NaN; +0 of the two zeros."""
    result = from_order_key(np.maximum(order_key(a), order_key(b)))
    return np.where(np.isnan(a) | np.isnan(b), from_bits(NAN_BITS), result)


def minimum(a: Bf16Array, b: Bf16Array) -> Bf16Array:
    """Return the smaller; NaN if either is NaN; -0 of the two zeros."""
    result = from_order_key(np.minimum(order_key(a), order_key(b)))
    return np.where(np.isnan(a) | np.isnan(b), from_bits(NAN_BITS), result)


def reciprocal(x: Bf16Array) -> Bf16Array:
    """Return the correctly rounded 1/x; 1/+-0 = +-inf, 1/+-inf = +-0.

    A quotient of 8-bit significands stays 2^-17 away from every tie it does not hit, so float64
    suffices.
    """
    with np.errstate(all="ignore"):
        return round_to_bf16(1.0 / require_bf16(x, "x").astype(np.float64))


def sqrt(x: Bf16Array) -> Bf16Array:
    """Return the correctly rounded square root; sqrt(-0) = -0, other negative values give NaN."""
    with np.errstate(all="ignore"):
        return round_to_bf16(np.sqrt(require_bf16(x, "x").astype(np.float64)))


@cache
def _exp_table() -> npt.NDArray[np.uint16]:
    """Return BF16(exp(clamp(x))) for all 65,536 patterns.

    The hardest argument, 0x40DB, is 2^-16.4 ulp from a tie; float64 exp is good to 2^-44 of that
    ulp.
    """
    with np.errstate(all="ignore"):
        arguments = from_bits(np.arange(1 << 16)).astype(np.float64)
        table = to_bits(round_to_bf16(np.exp(np.clip(arguments, -EXP_CLAMP, EXP_CLAMP))))
    table.setflags(write=False)
    return table


def exp(x: Bf16Array) -> Bf16Array:
    """Return the correctly rounded exp of x clamped to +-88, infinities included; NaN for NaN."""
    return _exp_table()[to_bits(x)].view(BF16)
