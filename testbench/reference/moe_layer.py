"""A whole mixture-of-experts layer, instruction by instruction.

Source: lowering.md sections 4, 5, 8, 10 and 11. Weights are what the units see: pass
`mx.round_trip` of what is loaded from HBM.

    residual -> RMS norm -> router -> routed experts -> + shared expert -> + residual
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import (
    Bf16Array,
    add,
    mul,
    reciprocal,
    require_bf16,
    round_to_bf16,
    sqrt,
)
from sim.numerics.reduce import red_sum
from testbench.reference.routed import ExpertWeights, Order, routed_experts
from testbench.reference.shared_expert import ZERO, combine, shared_expert


@dataclass(frozen=True, kw_only=True)
class SharedWeights:
    """The fused shared expert: gate, up [H, W], down [W, H]; gate_row [1, H] or None."""

    gate: Bf16Array
    up: Bf16Array
    down: Bf16Array
    gate_row: Bf16Array | None


@dataclass(frozen=True, kw_only=True)
class LayerResult:
    """BF16, [T, H]: the normalised input, the sum over routed experts, the layer's output.

    gates: the sigmoid gates of the shared expert, [T], or None.
    """

    x: Bf16Array
    routed: Bf16Array
    output: Bf16Array
    gates: Bf16Array | None


def rms_norm(hidden: Bf16Array, weight: Bf16Array, *, epsilon: float, mlen: int) -> Bf16Array:
    """Return hidden [T, H] normalised by rows and multiplied by weight [1, H].

    Sum of squares with one BF16 rounding per MLEN block, times 1/H, plus epsilon, square root,
    reciprocal, times the row, times the weight: a rounding each. ValueError unless H is a multiple
    of mlen.
    """
    rows = require_bf16(hidden, "hidden")
    width = rows.shape[1]
    if width % mlen or weight.shape != (1, width):
        raise ValueError(f"rms_norm: hidden {rows.shape}, weight {weight.shape}, MLEN {mlen}")
    total = np.broadcast_to(ZERO, rows.shape[:1])
    for k in range(0, width, mlen):
        block = rows[:, k : k + mlen]
        total = red_sum(total, mul(block, block))
    mean = mul(total, round_to_bf16(1 / width))
    root = sqrt(add(mean, round_to_bf16(epsilon)))
    return mul(mul(rows, reciprocal(root)[:, None]), weight)


def moe_layer(
    hidden: Bf16Array,
    x: Bf16Array,
    weights: ExpertWeights,
    experts: npt.NDArray[np.integer],
    route_weights: Bf16Array,
    shared: SharedWeights | None,
    *,
    mlen: int,
    activation: str,
    scale_input: bool,
    order: Order,
    k_chunk_tiles: int | None,
) -> LayerResult:
    """Return the layer's output for hidden [T, H], whose normalised form is x, and its routing."""
    routed = routed_experts(
        x,
        weights,
        experts,
        route_weights,
        mlen=mlen,
        activation=activation,
        scale_input=scale_input,
        order=order,
        k_chunk_tiles=k_chunk_tiles,
    ).total
    total, gates = routed, None
    if shared is not None:
        branch = shared_expert(
            x,
            shared.gate,
            shared.up,
            shared.down,
            mlen=mlen,
            k_chunk_tiles=k_chunk_tiles,
            gate_weight=shared.gate_row,
        )
        total, gates = combine(total, branch.output), branch.gate_scalars
    return LayerResult(x=x, routed=routed, output=add(total, add(hidden, ZERO)), gates=gates)
