"""The router, instruction by instruction: logits, choice, groups, selection, weights.

Source: lowering.md sections 3, 8 and 9; isa.md, "V_TOPK". Every step is one instruction and rounds
to BF16.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.router_rule import GroupScore, RouterRule, RouterSpec, Scores
from sim.numerics.bf16 import (
    BF16,
    Bf16Array,
    add,
    exp,
    mul,
    reciprocal,
    require_bf16,
    round_to_bf16,
    sub,
)
from sim.numerics.reduce import red_max, red_sum
from sim.numerics.topk import rank, topk_weights

ZERO = round_to_bf16(0.0)
ONE = round_to_bf16(1.0)
LOWEST = round_to_bf16(-np.inf)
LIFT = round_to_bf16(2.0**120)
"""Takes the experts of dropped groups below all others."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Routing:
    """What a router decides, BF16.

    logits [T, E] include the bias; choice [T, E] is what the experts were ranked by, masked where
    groups were dropped; group_scores [T, groups] and kept [T, kept_groups], None without groups;
    indices and weights [T, k], best choice first.
    """

    logits: Bf16Array
    choice: Bf16Array
    group_scores: Bf16Array | None
    kept: Indices | None
    indices: Indices
    weights: Bf16Array


def router_logits(x: Bf16Array, weight: Bf16Array, mlen: int) -> Bf16Array:
    """Return x [T, H] . weight [E, H] as BF16 [T, E], one rounding per MLEN block.

    The products of a block are rounded (V_MUL_VV), and V_RED_SUM adds their FP32 tree sum to a BF16
    accumulator. ValueError unless H is a multiple of mlen in both.
    """
    rows, experts = require_bf16(x, "x"), require_bf16(weight, "weight")
    hidden = rows.shape[1]
    if experts.shape[1] != hidden or hidden % mlen:
        raise ValueError(f"router: x {rows.shape}, weight {experts.shape}, MLEN {mlen}")
    logits = np.broadcast_to(ZERO, (len(rows), len(experts)))
    for k in range(0, hidden, mlen):
        products = mul(rows[:, None, k : k + mlen], experts[None, :, k : k + mlen])
        logits = red_sum(logits, products)
    return logits


def route(
    spec: RouterSpec,
    logits: Bf16Array,
    *,
    mlen: int,
    correction: Bf16Array | None = None,
) -> Routing:
    """Choose and weigh the experts of every row of logits [T, E], which include the bias."""
    choice = logits
    if correction is not None:
        choice = corrected_scores(logits, correction)
    scores = kept = None
    if spec.rule.groups > 1:
        scores = group_scores(spec, choice)
        kept = np.array([rank(row, spec.rule.kept_groups) for row in scores])
        choice = _masked(choice, kept, spec.group_size)
    indices = np.array([rank(row, spec.top_k) for row in choice])
    weights = [
        _weights(spec.rule, *token, mlen) for token in zip(logits, choice, indices, strict=True)
    ]
    return Routing(
        logits=logits,
        choice=choice,
        group_scores=scores,
        kept=kept,
        indices=indices,
        weights=np.array(weights, BF16),
    )


def corrected_scores(logits: Bf16Array, correction: Bf16Array) -> Bf16Array:
    """Return b - sigmoid(-l): exp, + 1, reciprocal, subtraction; one below sigmoid(l) + b."""
    return sub(correction, reciprocal(add(exp(logits), ONE)))


def group_scores(spec: RouterSpec, choice: Bf16Array) -> Bf16Array:
    """Return the scores [T, groups]: the best of a group, or BF16(best + second best)."""
    grouped = choice.reshape(len(choice), spec.rule.groups, spec.group_size)
    if spec.rule.group_score is GroupScore.MAXIMUM:
        # Lanes of other groups lie below all scores: they do not reach the maximum.
        return red_max(np.broadcast_to(LOWEST, grouped.shape[:-1]), grouped)
    best = np.array([[row[rank(row, 2)] for row in token] for token in grouped], BF16)
    return add(best[..., 0], best[..., 1])


def _masked(choice: Bf16Array, kept: Indices, size: int) -> Bf16Array:
    """Return choice with the groups that are not kept lowered by LIFT, exact in the kept ones."""
    stays = np.zeros((len(choice), choice.shape[1] // size), bool)
    np.put_along_axis(stays, kept, True, axis=1)
    return add(choice, np.where(np.repeat(stays, size, axis=1), ZERO, sub(ZERO, LIFT)))


def _weights(
    rule: RouterRule, logits: Bf16Array, choice: Bf16Array, indices: Indices, mlen: int
) -> Bf16Array:
    """Return the route weights [k] of one token."""
    if rule.topk_weights:
        return topk_weights(choice[indices])
    factor = None if rule.factor == 1.0 else round_to_bf16(rule.factor)
    if rule.scores is Scores.SOFTMAX:
        largest = red_max(LOWEST, logits)
        scale = _factor_over_sum(exp(sub(_rows(logits, mlen, LOWEST), largest)), factor)
        return mul(exp(sub(logits[indices], largest)), scale)
    scores = reciprocal(add(exp(sub(ZERO, logits[indices])), ONE))
    if rule.renormalised:
        return mul(scores, _factor_over_sum(_rows(scores, mlen, ZERO), factor))
    return scores if factor is None else mul(scores, factor)


def _rows(values: Bf16Array, mlen: int, pad: Bf16Array) -> Bf16Array:
    """Return values [n] as rows [ceil(n / mlen), mlen], filled up with `pad`."""
    rows = np.full((-(-len(values) // mlen), mlen), pad, BF16)
    rows.reshape(-1)[: len(values)] = values
    return rows


def _factor_over_sum(rows: Bf16Array, factor: Bf16Array | None) -> Bf16Array:
    """Return BF16(reciprocal(sum) * factor), the sum one V_RED_SUM per row."""
    total: Any = ZERO
    for row in rows:
        total = red_sum(total, row)
    scale = reciprocal(total)
    return scale if factor is None else mul(scale, factor)
