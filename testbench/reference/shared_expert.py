"""The shared expert, instruction by instruction: SwiGLU, sigmoid gate, projections, combine.

Source: lowering.md sections 5 and 8, numerics.md "no fused steps". Every step is one instruction
and rounds to BF16. Operands are what the units see: pass `mx.round_trip(t)` for a tensor loaded
from HBM, t itself for one that is already in vector SRAM.
"""

from dataclasses import dataclass

import numpy as np

from sim.numerics.bf16 import (
    Bf16Array,
    add,
    exp,
    mul,
    reciprocal,
    require_bf16,
    round_to_bf16,
    sub,
)
from sim.numerics.reduce import red_sum
from testbench.reference.matrix import linear_projection

ZERO = round_to_bf16(0.0)
ONE = round_to_bf16(1.0)
MINUS_ONE = round_to_bf16(-1.0)


@dataclass(frozen=True, kw_only=True)
class Biases:
    """Optional bias rows, BF16: gate [I], up [I], down [H]."""

    gate: Bf16Array | None = None
    up: Bf16Array | None = None
    down: Bf16Array | None = None


@dataclass(frozen=True, kw_only=True)
class SharedExpertResult:
    """Every intermediate of one shared expert, BF16.

    gate, up [rows, I] and down [rows, H] include their biases; activation [rows, I]; gate_scalars
    [rows], or None for an ungated expert, whose output is down; output [rows, H], not yet combined.
    """

    gate: Bf16Array
    up: Bf16Array
    activation: Bf16Array
    down: Bf16Array
    gate_scalars: Bf16Array | None
    output: Bf16Array


def swiglu(gate: Bf16Array, up: Bf16Array) -> Bf16Array:
    """Return silu(gate) * up in six instructions, six roundings."""
    negated = mul(gate, MINUS_ONE)
    exponential = exp(negated)
    denominator = add(exponential, ONE)
    sigmoid = reciprocal(denominator)
    silu = mul(gate, sigmoid)
    return mul(up, silu)


def gate_logits(x: Bf16Array, gate_weight: Bf16Array, mlen: int) -> Bf16Array:
    """Return the dot products [rows] of x [rows, H] with the gate row, [H] or [1, H].

    Per MLEN block the products are rounded to BF16 (V_MUL_VV) and V_RED_SUM adds their FP32 tree
    sum to a BF16 accumulator that starts at +0.0, so there is one BF16 rounding per block.
    ValueError on other shapes.
    """
    rows, row = require_bf16(x, "x"), require_bf16(gate_weight, "gate_weight")
    hidden = rows.shape[-1]
    if row.shape not in ((hidden,), (1, hidden)):
        raise ValueError(f"gate weight {row.shape} must be one row as wide as x, H = {hidden}")
    if mlen < 1 or hidden % mlen:
        raise ValueError(f"gate: H = {hidden} is not a multiple of MLEN {mlen}")
    row = row.reshape(hidden)
    accumulator = np.broadcast_to(ZERO, rows.shape[:-1])
    for k in range(0, hidden, mlen):
        accumulator = red_sum(accumulator, mul(rows[..., k : k + mlen], row[k : k + mlen]))
    return accumulator


def sigmoid_gate(x: Bf16Array, gate_weight: Bf16Array, mlen: int) -> Bf16Array:
    """Return the gate scalars [rows]: bf(0 - logit), exp, + 1, 1/., a BF16 rounding each."""
    negated = sub(ZERO, gate_logits(x, gate_weight, mlen))
    return reciprocal(add(exp(negated), ONE))


def _biased(projected: Bf16Array, bias: Bf16Array | None, name: str) -> Bf16Array:
    """Add a bias row [width] to every row, one BF16 addition each."""
    if bias is None:
        return projected
    if bias.shape != projected.shape[-1:]:
        raise ValueError(f"{name} bias {bias.shape} must be [{projected.shape[-1]}]")
    return add(projected, bias)


def shared_expert(
    x: Bf16Array,
    w_gate: Bf16Array,
    w_up: Bf16Array,
    w_down: Bf16Array,
    *,
    mlen: int,
    k_chunk_tiles: int | None = None,
    biases: Biases | None = None,
    gate_weight: Bf16Array | None = None,
) -> SharedExpertResult:
    """Run one shared expert over x [rows, H] with w_gate, w_up [H, I] and w_down [I, H].

    Both projections, their biases, SwiGLU, down projection, its bias, then down * gate scalar per
    row when `gate_weight` is given. The gate reads x, not the expert's output. H and I must be
    multiples of mlen; `k_chunk_tiles` is the K-split bound of every projection (see
    `linear_projection`). ValueError names what does not fit.
    """
    hidden, inter = w_gate.shape
    if x.shape[-1] != hidden or w_up.shape != (hidden, inter) or w_down.shape != (inter, hidden):
        raise ValueError(
            f"shared expert: x {x.shape}, w_gate {w_gate.shape}, w_up {w_up.shape}, "
            f"w_down {w_down.shape} do not fit [rows, H], [H, I], [H, I], [I, H]"
        )
    biases = biases or Biases()
    gate = linear_projection(x, w_gate, mlen, k_chunk_tiles)
    up = linear_projection(x, w_up, mlen, k_chunk_tiles)
    gate, up = _biased(gate, biases.gate, "gate"), _biased(up, biases.up, "up")
    activation = swiglu(gate, up)
    down = linear_projection(activation, w_down, mlen, k_chunk_tiles)
    down = _biased(down, biases.down, "down")
    scalars = None if gate_weight is None else sigmoid_gate(x, gate_weight, mlen)
    return SharedExpertResult(
        gate=gate,
        up=up,
        activation=activation,
        down=down,
        gate_scalars=scalars,
        output=down if scalars is None else mul(down, scalars[:, None]),
    )


def combine(accumulator: Bf16Array, shared_output: Bf16Array) -> Bf16Array:
    """Return accumulator + shared output, one unweighted BF16 addition, both [rows, H].

    On a true-zero accumulator that is the shared output itself, except that its -0 becomes +0.
    """
    if accumulator.shape != shared_output.shape:
        raise ValueError(f"combine: {accumulator.shape} and {shared_output.shape} differ in shape")
    return add(accumulator, shared_output)
