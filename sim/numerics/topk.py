"""V_TOPK: ranking, and the weights step by step.

Source: isa.md, "V_TOPK and C_SET_TOPK_REG"; numerics.md, "V_TOPK weights"; the steps are those that
the top-k unit states.
"""

from functools import cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import BF16, Bf16Array, require_bf16, round_to_bf16

LOG2E = 12_102_203
"""round(log2(e) * 2^23)."""
VANISHING = 128.0
"""e^-a is 0 from this a on."""


def topk(
    logits_bits: npt.ArrayLike, num_experts: int, top_k: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint16]]:
    """Return the indices of the `top_k` largest of `num_experts` BF16 patterns, and their weights'.

    Patterns beyond `num_experts` do not count. ValueError unless 1 <= top_k <= num_experts.
    """
    bits = np.asarray(logits_bits, np.uint16)
    if not 1 <= top_k <= num_experts <= len(bits):
        raise ValueError(
            f"topk: 1 <= top_k = {top_k} <= num_experts = {num_experts} <= {len(bits)} must hold"
        )
    logits = bits[:num_experts].view(BF16)
    indices = rank(logits, top_k)
    return indices, topk_weights(logits[indices]).view(np.uint16)


def rank(logits: Bf16Array, count: int) -> npt.NDArray[Any]:
    """Return the indices of the `count` largest, largest first, equal ones by smaller index.

    NaN ranks as -inf; -0.0 equals +0.0.
    """
    return np.argsort(-_ranked_values(logits), kind="stable")[:count]


def _ranked_values(logits: Bf16Array) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        values = require_bf16(logits, "logits").astype(np.float32)
    return np.where(np.isnan(values), np.float32(-np.inf), values)


def topk_weights(selected: Bf16Array) -> Bf16Array:
    """Return the softmax over the selected logits [k], largest first: within 1 BF16 ulp.

    Steps, FP32 operations rounding to nearest even::

        d_i = l_i - l_0 in FP32; 0 where l_i = l_0, for infinities too
        e_i = `falling_exp`(|d_i|)
        s   = ((e_0 + e_1) + e_2) + ... in FP32
        r   = floor(2^40 / S) * 2^(110 - x), for s = S * 2^(x - 150), 2^23 <= S < 2^24
        w_i = e_i * r, exact, rounded once to BF16

    All zeros when every logit is -inf or NaN; +inf takes all the weight, in equal shares.
    """
    logits = _ranked_values(selected)
    largest = logits[0]
    if largest == -inf:
        return round_to_bf16(np.zeros(len(logits)))
    with np.errstate(all="ignore"):
        distances = np.where(logits == largest, np.float32(0), np.abs(logits - largest))
    terms = np.array([falling_exp(float(d)) for d in distances])
    return round_to_bf16(exact_weights(terms))


def exact_weights(terms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return e_i * r, not yet rounded, for rows of terms e_i [..., k] that `falling_exp` gave, the
    first of which is 1."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for i in range(terms.shape[-1]):
        total = total + terms[..., i].astype(np.float32)
    significand, exponent = np.frexp(total.astype(np.float64))  # in [0.5, 1)
    quotient = (1 << 40) // (significand * (1 << 24)).astype(np.int64)
    # With S = significand * 2^24, s = S * 2^(exponent - 24): x = exponent + 126.
    reciprocal = np.ldexp(quotient.astype(np.float64), -16 - exponent)
    return terms * reciprocal[..., np.newaxis]


def falling_exp(a: float) -> float:
    """Return e^-a, 19 significant bits, for an FP32 value a >= 0 (infinity included).

    With `>>` dropping bits: A = a in units of 2^-17; Q = -((A * LOG2E) >> 16), in units of 2^-24;
    n = Q >> 24; f = Q mod 2^24; t = (f >> 5) mod 2^14; u = (f >> 11) mod 2^8; P = c0 + (((c1 + ((c2
    * u) >> 8)) * t) >> 14) with the parabola of segment f >> 19; the result is P * 2^(n - 18), cut
    off to a multiple of 2^-149.
    """
    if a >= VANISHING:
        return 0.0
    q = -((int(a * (1 << 17)) * LOG2E) >> 16)
    n, f = q >> 24, q & 0xFFFFFF
    t, u = f >> 5 & 0x3FFF, f >> 11 & 0xFF
    c0, c1, c2 = _parabolas()[f >> 19]
    p = c0 + (((c1 + (c2 * u >> 8)) * t) >> 14)
    places = n - 18 + 149
    return float(np.ldexp(float(p if places >= 0 else p >> -places), max(places, 0) - 149))


@cache
def _parabolas() -> tuple[tuple[int, int, int], ...]:
    """Return (c0, c1, c2) of 32 segments: c0 + c1 s + c2 s^2 meets 2^x at s = 0, 1/2 and 1.

    In units of 2^-18, each rounded to the nearest.
    """
    rows = []
    for segment in range(32):
        left, middle, right = (np.exp2((2 * segment + k) / 64) * 2.0**18 for k in range(3))
        rows.append((left, 4 * middle - 3 * left - right, 2 * (left + right - 2 * middle)))
    return tuple((round(a), round(b), round(c)) for a, b, c in rows)
