"""Routers as their models define them, in float32 and with nothing of the machine in them.

Every rule is a function of its own, written from the public modeling code (Hugging Face
transformers, class named with each). `choose` says which experts a token gets and by which scores,
`weigh` what they weigh. Where a definition leaves the order of equal scores open, the smaller index
comes first.

Two things that public code does and these leave out: the 1e-20 that is added to a sum of sigmoids
before the division (nothing in float32), and scores of dropped groups set to 0 where the checkpoint
authors' own code sets -inf, as here; 0 lets a dropped expert in when kept ones are negative.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.router_rule import GroupScore, RouterSpec, Scores

F32 = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PublicChoice:
    """scores [T, E] that experts are ranked by; group_scores [T, groups] and kept [T, kept_groups],
    None without groups; indices [T, k], best first."""

    scores: F32
    group_scores: F32 | None
    kept: Indices | None
    indices: Indices


def logits(x: F32, weight: F32, bias: F32 | None = None) -> F32:
    """Return x [T, H] . weight [E, H], plus the bias [E], all in float32."""
    product = x.astype(np.float32) @ weight.astype(np.float32).T
    return product if bias is None else product + bias.astype(np.float32)


def choose(
    spec: RouterSpec, values: F32, correction: F32 | None = None, kept: Indices | None = None
) -> PublicChoice:
    """Return the choice by the model's definition; `kept` replaces the choice of groups."""
    scores = {
        Scores.SELECTED_SOFTMAX: lambda: values,  # GptOssTopKRouter ranks logits
        Scores.SOFTMAX: lambda: softmax(values),  # Mixtral-, Qwen2Moe-, DeepseekV2 routers
        Scores.SIGMOID: lambda: sigmoid(values),  # Llama4Router, DeepseekV3TopkRouter, Glm4Moe
    }[spec.rule.scores]()
    if correction is not None:
        scores = scores + correction.astype(np.float32)
    groups = None
    allowed = scores
    if spec.rule.groups > 1:
        grouped = scores.reshape(len(scores), spec.rule.groups, spec.group_size)
        best = -np.sort(-grouped, axis=-1)
        two = spec.rule.group_score is GroupScore.TOP_TWO_SUM
        groups = best[..., 0] + best[..., 1] if two else best[..., 0]
        kept = _largest(groups, spec.rule.kept_groups) if kept is None else kept
        stays = np.zeros(groups.shape, bool)
        np.put_along_axis(stays, kept, True, axis=1)
        allowed = np.where(np.repeat(stays, spec.group_size, axis=1), scores, -np.inf)
    return PublicChoice(
        scores=scores,
        group_scores=groups,
        kept=kept,
        indices=_largest(allowed, spec.top_k),
    )


def weigh(spec: RouterSpec, values: F32, indices: Indices) -> F32:
    """Return the route weights [T, k] of the chosen experts by the model's definition."""
    rule = {
        Scores.SELECTED_SOFTMAX: _softmax_of_selected,
        Scores.SOFTMAX: _selected_of_softmax,
        Scores.SIGMOID: _selected_of_sigmoid,
    }[spec.rule.scores]
    weights = rule(values.astype(np.float32), indices)
    if spec.rule.renormalised:
        weights = weights / weights.sum(axis=1, keepdims=True, dtype=np.float32)
    return weights * np.float32(spec.rule.factor)


def softmax(values: F32) -> F32:
    """Return the softmax of every row."""
    terms = np.exp(values - values.max(axis=1, keepdims=True))
    return terms / terms.sum(axis=1, keepdims=True, dtype=np.float32)


def sigmoid(values: F32) -> F32:
    """Return 1 / (1 + e^-x), from the side on which the exponential does not overflow."""
    small = np.exp(-np.abs(values.astype(np.float32)))
    above = np.where(values >= 0, np.float32(1), small).astype(np.float32)
    return above / (np.float32(1) + small)


def _softmax_of_selected(values: F32, indices: Indices) -> F32:
    """GptOssTopKRouter: top-k first, softmax over what was selected."""
    return softmax(np.take_along_axis(values, indices, axis=1))


def _selected_of_softmax(values: F32, indices: Indices) -> F32:
    """MixtralSparseMoeBlock, Qwen2MoeSparseMoeBlock, DeepseekV2: softmax over all first."""
    return np.take_along_axis(softmax(values), indices, axis=1)


def _selected_of_sigmoid(values: F32, indices: Indices) -> F32:
    """Llama4Router; DeepseekV3TopkRouter and Glm4MoeTopkRouter, without the correction bias."""
    return np.take_along_axis(sigmoid(values), indices, axis=1)


def _largest(values: F32, count: int) -> Indices:
    return np.argsort(-values, axis=1, kind="stable")[:, :count]
