"""The linear projection with its K-split.

Source: numerics.md, "Matrix"; lowering.md section 2 (loop order, K chunks) and section 8.

    per MLEN block: one M_MM into the FP32 accumulator -> BF16 at write-out
"""

import numpy as np

from sim.numerics.bf16 import Bf16Array, add, require_bf16, round_to_bf16
from sim.numerics.matrix import mm_tile


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
