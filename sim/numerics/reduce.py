"""Reductions: the FP32 adder tree, V_RED_SUM and V_RED_MAX.

Source: numerics.md, "Reductions", and the rmask rule of isa.md.

    lane  0 1 2 3 4 5 6 7
           +   +   +   +      each + rounded to FP32
             +       +
                 +
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import (
    NAN_BITS,
    Bf16Array,
    F32Array,
    from_bits,
    from_order_key,
    order_key,
    require_bf16,
    round_to_bf16,
)

LaneEnable = npt.NDArray[np.bool_] | None
"""Which lanes take part, broadcast against the row; None means all."""


def tree_sum(terms: F32Array, axis: int = -1) -> F32Array:
    """Sum float32 `terms` along `axis`: lane 2i with 2i+1 first, then pairs of pairs.

    The length must be a power of two (every MLEN, VLEN and HLEN is); ValueError otherwise, since
    the page defines no other tree. TypeError unless float32. NaN results are not canonical.
    """
    values = np.asarray(terms)
    if values.dtype != np.float32:
        raise TypeError(f"tree_sum adds float32 terms, got {values.dtype}")
    values = np.moveaxis(values, axis, 0)
    count = values.shape[0]
    if count < 1 or count & (count - 1):
        raise ValueError(f"tree_sum: {count} terms, but the adder tree has a power of two of lanes")
    with np.errstate(all="ignore"):
        while values.shape[0] > 1:
            values = values[0::2] + values[1::2]
    return values[0]


def enabled_lanes(v_mask: int, vlen: int, hlen: int) -> npt.NDArray[np.bool_]:
    """Return the enables [vlen] of V_MASK: bit h enables lanes h*hlen .. (h+1)*hlen - 1."""
    return np.array([bool(v_mask >> (lane // hlen) & 1) for lane in range(vlen)])


def red_sum(f: Bf16Array, row: Bf16Array, lane_enable: LaneEnable = None) -> Bf16Array:
    """Return V_RED_SUM: BF16(FP32(f + tree sum of row)), masked-off lanes counting as +0.0.

    `row` is [..., VLEN], `f` is [...]. The sum is rounded to FP32 and then to BF16: two roundings,
    as specified.
    """
    lanes = require_bf16(row, "row").astype(np.float32)
    if lane_enable is not None:
        lanes = np.where(lane_enable, lanes, np.float32(0.0))
    with np.errstate(all="ignore"):
        return round_to_bf16(require_bf16(f, "f").astype(np.float32) + tree_sum(lanes))


def red_max(f: Bf16Array, row: Bf16Array, lane_enable: LaneEnable = None) -> Bf16Array:
    """Return V_RED_MAX: the maximum of f and the enabled lanes; NaN if any is; +0 beats -0.

    `row` is [..., VLEN], `f` is [...]. With no lane enabled the result is f.
    """
    lanes, start = require_bf16(row, "row"), require_bf16(f, "f")
    enabled: npt.NDArray[Any] = np.broadcast_to(
        np.True_ if lane_enable is None else lane_enable, lanes.shape
    )
    lowest = np.int32(-0x8000)
    keys = np.where(enabled, order_key(lanes), lowest).max(axis=-1)
    result = from_order_key(np.maximum(keys, order_key(start)))
    unordered = np.isnan(start) | (np.isnan(lanes) & enabled).any(axis=-1)
    return np.where(unordered, from_bits(NAN_BITS), result)
