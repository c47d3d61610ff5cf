"""Routed experts, instruction by instruction: expert, route weight, accumulation.

Source: lowering.md sections 4, 8 and 10; numerics.md "no fused steps". Operands are what the units
see: pass `mx.round_trip(t)` for a tensor loaded from HBM, t itself for one in vector SRAM. Routing
is given: experts and BF16 weights per token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import (
    Bf16Array,
    add,
    exp,
    maximum,
    minimum,
    mul,
    reciprocal,
    round_to_bf16,
)
from testbench.reference.matrix import linear_projection
from testbench.reference.shared_expert import ONE, ZERO, swiglu

Order = Literal["pair", "expert"]
LIMIT = round_to_bf16(7.0)
MINUS_LIMIT = round_to_bf16(-7.0)
MINUS_ALPHA = round_to_bf16(-1.702)


@dataclass(frozen=True, kw_only=True)
class ExpertWeights:
    """Experts of a layer, by number: gate, up [H, I], down [I, H] of each that is used.

    The biases, of all experts, are [E, I], [E, I], [E, H].
    """

    gate: Mapping[int, Bf16Array]
    up: Mapping[int, Bf16Array]
    down: Mapping[int, Bf16Array]
    bias_gate: Bf16Array | None = None
    bias_up: Bf16Array | None = None
    bias_down: Bf16Array | None = None


@dataclass(frozen=True, kw_only=True)
class RoutedResult:
    """activation [T*k, I] and pairs [T*k, H], weighted, in pair order; total [T, H]."""

    activation: Bf16Array
    pairs: Bf16Array
    total: Bf16Array


def clamp(gate: Bf16Array, up: Bf16Array) -> tuple[Bf16Array, Bf16Array]:
    """Return min(gate, 7) and max(min(up, 7), -7)."""
    return minimum(gate, LIMIT), maximum(minimum(up, LIMIT), MINUS_LIMIT)


def clamp_gated(gate: Bf16Array, up: Bf16Array) -> Bf16Array:
    """Return (clamp(up) + 1) * (g * sigmoid(1.702 g)), g = clamp(gate): ten instructions.

    The gate is clamped from above only.
    """
    g, u = clamp(gate, up)
    sigmoid = reciprocal(add(exp(mul(g, MINUS_ALPHA)), ONE))
    return mul(add(u, ONE), mul(g, sigmoid))


ACTIVATIONS = {"standard_swiglu": swiglu, "gpt_oss_clamp_gated": clamp_gated}


def gate_up(
    rows: Bf16Array,
    weights: ExpertWeights,
    number: int,
    *,
    mlen: int,
    k_chunk_tiles: int | None,
) -> tuple[Bf16Array, Bf16Array]:
    """Return gate and up [n, I] of one expert over rows [n, H], with their biases."""
    gate = linear_projection(rows, weights.gate[number], mlen, k_chunk_tiles)
    up = linear_projection(rows, weights.up[number], mlen, k_chunk_tiles)
    if weights.bias_gate is not None and weights.bias_up is not None:
        gate, up = add(gate, weights.bias_gate[number]), add(up, weights.bias_up[number])
    return gate, up


def expert(
    rows: Bf16Array,
    weights: ExpertWeights,
    number: int,
    *,
    activation: str,
    mlen: int,
    k_chunk_tiles: int | None,
) -> tuple[Bf16Array, Bf16Array]:
    """Return activation [n, I] and output [n, H] of one expert over rows [n, H], not weighted."""
    gate, up = gate_up(rows, weights, number, mlen=mlen, k_chunk_tiles=k_chunk_tiles)
    inner = ACTIVATIONS[activation](gate, up)
    out = linear_projection(inner, weights.down[number], mlen, k_chunk_tiles)
    return inner, out if weights.bias_down is None else add(out, weights.bias_down[number])


def routed_experts(
    x: Bf16Array,
    weights: ExpertWeights,
    experts: npt.NDArray[np.integer],
    route_weights: Bf16Array,
    *,
    mlen: int,
    activation: str = "standard_swiglu",
    scale_input: bool = False,
    order: Order = "pair",
    k_chunk_tiles: int | None = None,
    start: Bf16Array | None = None,
) -> RoutedResult:
    """Run the experts [T, k] of every token of x [T, H] and add up what they return.

    Gathering adds +0. `route_weights` [T, k] multiply the outputs, or the inputs with
    `scale_input`. A token's outputs are added to `start` (zeros) one by one, in rank order, or in
    ascending expert number with order "expert". ValueError on shapes that do not fit.
    """
    tokens, top_k = experts.shape
    if x.shape[0] != tokens or route_weights.shape != experts.shape:
        raise ValueError(f"routed: x {x.shape}, experts {experts.shape}, {route_weights.shape}")
    flat = experts.reshape(-1)
    token_of = np.arange(tokens * top_k) // top_k
    scale = route_weights.reshape(-1, 1)
    width = next(iter(weights.gate.values())).shape[1]
    inner = round_to_bf16(np.zeros((tokens * top_k, width)))
    pairs = round_to_bf16(np.zeros((tokens * top_k, x.shape[1])))
    for number in np.unique(flat).tolist():
        mine = np.flatnonzero(flat == number)
        rows = add(x[token_of[mine]], ZERO)
        if scale_input:
            rows = mul(rows, scale[mine])
        inner[mine], out = expert(
            rows, weights, number, activation=activation, mlen=mlen, k_chunk_tiles=k_chunk_tiles
        )
        pairs[mine] = out if scale_input else mul(out, scale[mine])
    total = round_to_bf16(np.zeros(x.shape)) if start is None else start.copy()
    ranks = np.argsort(experts, axis=1, kind="stable") if order == "expert" else None
    for step in range(top_k):
        rank = np.full(tokens, step) if ranks is None else ranks[:, step]
        total = add(total, pairs[np.arange(tokens) * top_k + rank])
    return RoutedResult(activation=inner, pairs=pairs, total=total)
