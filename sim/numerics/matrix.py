"""The matrix unit: products, and one matrix instruction on one tile.

Source: numerics.md, "Matrix".

    BF16 x BF16 -> FP32   neighbours-first tree over the lanes -> * bmm_scale -> + FP32 accumulator
"""

import numpy as np

from sim.numerics.bf16 import Bf16Array, F32Array, require_bf16
from sim.numerics.reduce import tree_sum

SLAB_ELEMENTS = 1 << 19
"""Upper bound of products held at once (2 MiB of FP32), so that a slab stays in cache."""


def product_fp32(a: Bf16Array, b: Bf16Array) -> F32Array:
    """Return a * b in FP32: exact unless it underflows or overflows, and rounded to FP32 then."""
    with np.errstate(all="ignore"):
        return require_bf16(a, "a").astype(np.float32) * require_bf16(b, "b").astype(np.float32)


def tree_matmul(vectors: F32Array, matrix: F32Array) -> F32Array:
    """Return the tree sums [rows, cols] of vectors [rows, lanes] and matrix [lanes, cols]."""
    (rows, lanes), cols = vectors.shape, matrix.shape[1]
    col_step = min(cols, max(1, SLAB_ELEMENTS // lanes))
    row_step = max(1, SLAB_ELEMENTS // (lanes * max(1, col_step)))
    sums = np.empty((rows, cols), np.float32)
    lanes_first = np.ascontiguousarray(vectors.T)[:, :, None]
    with np.errstate(all="ignore"):
        for r in range(0, rows, row_step):
            for c in range(0, cols, col_step):
                slab = lanes_first[:, r : r + row_step] * matrix[:, None, c : c + col_step]
                sums[r : r + row_step, c : c + col_step] = tree_sum(slab, axis=0)
    return sums


def mm_tile(
    accumulator: F32Array, vectors: Bf16Array, matrix: Bf16Array, scale: float = 1.0
) -> F32Array:
    """Return the FP32 accumulator after one matrix instruction on one tile.

    accumulator [rows, cols] FP32; vectors [rows, lanes]; matrix [lanes, cols]. `lanes` is MLEN for
    M_MM, M_TMM and the vector forms. For M_BMM and M_BTMM it is the HLEN lanes of one head, and
    `scale` is bmm_scale, which the tree's result is multiplied by before it is accumulated.
    TypeError or ValueError on other dtypes or shapes.
    """
    left, right = require_bf16(vectors, "vectors"), require_bf16(matrix, "matrix")
    if accumulator.dtype != np.float32:
        raise TypeError(f"the accumulator is float32, got {accumulator.dtype}")
    if left.shape[1] != right.shape[0] or accumulator.shape != (left.shape[0], right.shape[1]):
        raise ValueError(f"mm_tile: {left.shape} @ {right.shape} into {accumulator.shape}")
    sums = tree_matmul(left.astype(np.float32), right.astype(np.float32))
    with np.errstate(all="ignore"):
        return np.add(accumulator, sums * np.float32(scale), dtype=np.float32)
