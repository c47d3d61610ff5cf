"""The matrix unit: products, one M_MM tile, and the linear projection with its K-split.

Source: numerics.md, "Matrix"; lowering.md section 2 (loop order, K chunks) and section 8.

    BF16 x BF16 -> FP32   per MLEN block: neighbours-first tree -> + FP32 accumulator -> BF16 at
    write-out
"""

import numpy as np

from testbench.reference.bf16 import Bf16Array, F32Array, add, require_bf16, round_to_bf16
from testbench.reference.reduce import tree_sum

SLAB_ELEMENTS = 1 << 19
"""Upper bound of products held at once (2 MiB of FP32), so that a slab stays in cache."""


def product_fp32(a: Bf16Array, b: Bf16Array) -> F32Array:
    """Return a * b in FP32: exact unless it underflows or overflows, and rounded to FP32 then."""
    with np.errstate(all="ignore"):
        return require_bf16(a, "a").astype(np.float32) * require_bf16(b, "b").astype(np.float32)


def _tree_matmul(vectors: F32Array, matrix: F32Array) -> F32Array:
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
    sums = _tree_matmul(left.astype(np.float32), right.astype(np.float32))
    with np.errstate(all="ignore"):
        return np.add(accumulator, sums * np.float32(scale), dtype=np.float32)


def linear_projection(
    act: Bf16Array, weight: Bf16Array, mlen: int, k_chunk_tiles: int | None = None
) -> Bf16Array:
    """Return act [rows, K] @ weight [K, N] as the lowered program computes it, BF16 [rows, N].

    Operands are the values the matrix unit sees: apply the MX round trip first to what is loaded
    from HBM. K tiles of `mlen` are accumulated in FP32 in K order from +0.0 and rounded once. With
    more than `k_chunk_tiles` tiles (cap in lowering.md; None: no bound), each chunk of that many
    tiles is rounded to BF16, and the chunks are added in BF16 in chunk order. ValueError unless K
    is a positive multiple of mlen.
    """
    left, right = require_bf16(act, "act"), require_bf16(weight, "weight")
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(f"linear_projection: act {left.shape} @ weight {right.shape}")
    depth = left.shape[1]
    if mlen < 1 or depth < 1 or depth % mlen:
        raise ValueError(
            f"linear_projection: K = {depth} is not a positive multiple of MLEN {mlen}"
        )
    if k_chunk_tiles is not None and k_chunk_tiles < 1:
        raise ValueError(f"linear_projection: k_chunk_tiles {k_chunk_tiles} must be at least 1")
    chunk = depth if k_chunk_tiles is None else k_chunk_tiles * mlen
    result = _project_chunk(left[:, :chunk], right[:chunk], mlen)
    for k in range(chunk, depth, chunk):
        part = _project_chunk(left[:, k : k + chunk], right[k : k + chunk], mlen)
        result = add(result, part)
    return result


def _project_chunk(act: Bf16Array, weight: Bf16Array, mlen: int) -> Bf16Array:
    """Accumulate the K tiles of one chunk in FP32 and round at write-out."""
    accumulator = np.zeros((act.shape[0], weight.shape[1]), np.float32)
    for k in range(0, act.shape[1], mlen):
        accumulator = mm_tile(accumulator, act[:, k : k + mlen], weight[k : k + mlen])
    return round_to_bf16(accumulator)
