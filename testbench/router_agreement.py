"""How far a router on the machine agrees with the model's definition, and whether rounding alone
explains the rest.

Every score gets the standard deviation of its rounding error, from the steps of lowering.md
section 8 and the data itself: one rounding is off by at most UNIT of the value, evenly spread, and
roundings are independent. (The sum of all worst cases would be rigorous, and for thousands of lanes
so large that it explained any defect.) Two experts, or groups, may change places only if their
float32 scores are closer than SIGMAS deviations of the difference; a swap beyond that is a defect,
and so is a weight beyond its bound.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.router_rule import GroupScore, RouterSpec, Scores
from testbench.reference import public_router
from testbench.reference.public_router import F32, Indices
from testbench.reference.router import Routing

#: A rounding to BF16 changes a value by at most this share of it.
UNIT = 2.0**-8
#: Standard deviation of that share, evenly spread.
STEP = UNIT / 3**0.5
#: Deviations that rounding is given: among a million scores, none leaves six.
SIGMAS = 6
#: What the float32 of the definition itself may be off by.
FP32_SLACK = 2.0**-20

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Swap:
    """An expert, or a group of experts, that the definition chooses and the machine does not.

    margin: by how much its float32 score is above that of the one taken instead; bound: how much
    rounding may take away. tie: the machine's BF16 scores of the two are equal.
    """

    token: int
    what: str
    wanted: int
    taken: int
    margin: float
    bound: float
    tie: bool

    @property
    def explained(self) -> bool:
        """Whether rounding alone can have changed the order."""
        return self.margin <= self.bound

    def __str__(self) -> str:
        why = "a tie in BF16" if self.tie else "BF16 scores in the other order"
        verdict = "explained by rounding" if self.explained else "NOT explained by rounding"
        return (
            f"token {self.token}: {self.what} {self.taken} instead of {self.wanted}: {why}; "
            f"float32 margin {self.margin:.3g}, rounding up to {self.bound:.3g}: {verdict}"
        )


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The comparison of one run with the model's definition.

    equal_sets: tokens that get the same experts. weight_ulps: the largest error of a weight of such
    a token, in BF16 ulps of the float32 weight; formula_ulps: the share that the weights' own steps
    have in it, that is, against the definition on the machine's logits. Both have bounds.
    """

    tokens: int
    equal_sets: int
    swaps: list[Swap] = field(default_factory=list)
    weight_ulps: float
    weight_bound: float
    formula_ulps: float
    formula_bound: float

    @property
    def problems(self) -> list[str]:
        """What rounding does not explain."""
        found = [str(swap) for swap in self.swaps if not swap.explained]
        if self.weight_ulps > self.weight_bound:
            found.append(
                f"a route weight is {self.weight_ulps:.2f} ulp from the definition, rounding "
                f"explains {self.weight_bound:.2f}"
            )
        if self.formula_ulps > self.formula_bound:
            found.append(
                f"a route weight is {self.formula_ulps:.2f} ulp from the definition on the same "
                f"logits, its steps explain {self.formula_bound:.2f}"
            )
        return found

    def summary(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        return {
            "tokens": self.tokens,
            "equal_index_sets": self.equal_sets,
            "equal_share": self.equal_sets / self.tokens,
            "weight_error_ulps": round(self.weight_ulps, 3),
            "weight_error_bound_ulps": round(self.weight_bound, 3),
            "formula_error_ulps": round(self.formula_ulps, 3),
            "formula_error_bound_ulps": round(self.formula_bound, 3),
            "differences": [str(swap) for swap in self.swaps],
            "unexplained": self.problems,
        }


def compare_with_definition(
    spec: RouterSpec,
    routing: Routing,
    *,
    x: npt.NDArray[Any],
    weight: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    correction: npt.NDArray[Any] | None,
    mlen: int,
) -> Agreement:
    """Compare what the machine decided with the definition on the same BF16 operands."""
    wide_x, wide_w = x.astype(np.float32), weight.astype(np.float32)
    wide_b = None if bias is None else bias.astype(np.float32)
    wide_c = None if correction is None else correction.astype(np.float32)
    exact = public_router.logits(wide_x, wide_w, wide_b)
    deviation = logit_deviation(wide_x, wide_w, exact, biased=bias is not None, mlen=mlen)
    swaps = _swaps(spec, routing, exact, wide_c, deviation)
    wanted = public_router.choose(spec, exact, wide_c).indices
    same = [
        set(a) == set(b) for a, b in zip(routing.indices.tolist(), wanted.tolist(), strict=True)
    ]
    total, formula, total_bound, formula_bound = _weight_errors(
        spec, routing, exact, deviation, np.array(same), mlen
    )
    return Agreement(
        tokens=len(x),
        equal_sets=sum(same),
        swaps=swaps,
        weight_ulps=total,
        weight_bound=total_bound,
        formula_ulps=formula,
        formula_bound=formula_bound,
    )


def logit_deviation(x: F32, weight: F32, exact: F32, *, biased: bool, mlen: int) -> F64:
    """Standard deviation [T, E] of BF16 logit - float32 logit.

    Every product is rounded, the sum once per block, and a biased logit once more.
    """
    variance, partial = np.zeros(exact.shape), np.zeros(exact.shape)
    wide_x, wide_w = x.astype(np.float64), weight.astype(np.float64)
    for k in range(0, x.shape[1], mlen):
        left, right = wide_x[:, k : k + mlen], wide_w[:, k : k + mlen]
        partial += left @ right.T
        variance += np.square(left) @ np.square(right).T + np.square(partial)
    if biased:
        variance += np.square(exact)
    return STEP * np.sqrt(variance) + FP32_SLACK


def _choice(exact: F32, correction: F32 | None, deviation: F64) -> tuple[F64, F64]:
    """The scores that experts are compared by, and deviations of the machine's: logits, or sigmoids
    with the correction. Softmax and sigmoid alone keep the order of the logits."""
    if correction is None:
        return exact.astype(np.float64), deviation
    rising = public_router.sigmoid(exact).astype(np.float64)
    scores, falling = rising + correction, public_router.sigmoid(-exact).astype(np.float64)
    # exp, + 1, reciprocal: three roundings of sigmoid(-l), then that of the difference.
    variance = np.square(rising * falling * deviation) + 3 * np.square(STEP * falling)
    return scores, np.sqrt(variance + np.square(STEP * (scores - 1))) + FP32_SLACK


def _group_scores(spec: RouterSpec, scores: F64, deviation: F64) -> tuple[F64, F64]:
    """Scores of the groups, and deviations."""
    shape = (len(scores), spec.rule.groups, spec.group_size)
    best, worst = -np.sort(-scores.reshape(shape), axis=-1), deviation.reshape(shape).max(axis=-1)
    if spec.rule.group_score is GroupScore.MAXIMUM:
        return best[..., 0], worst
    total = best[..., 0] + best[..., 1]
    return total, np.sqrt(2 * np.square(worst) + np.square(STEP * (total - 2)))


def _swaps(
    spec: RouterSpec, routing: Routing, exact: F32, correction: F32 | None, deviation: F64
) -> list[Swap]:
    scores, deviations = _choice(exact, correction, deviation)
    swaps: list[Swap] = []
    definition = public_router.choose(spec, exact, correction)
    if definition.kept is not None and routing.kept is not None:
        assert routing.group_scores is not None
        groups, spread = _group_scores(spec, scores, deviations)
        swaps += _differences(
            "group", definition.kept, routing.kept, groups, spread, routing.group_scores
        )
        # What follows from another choice of groups needs no further explanation.
        definition = public_router.choose(spec, exact, correction, kept=routing.kept)
    swaps += _differences(
        "expert", definition.indices, routing.indices, scores, deviations, routing.choice
    )
    return swaps


def _differences(
    what: str,
    wanted: Indices,
    taken: Indices,
    scores: F64,
    deviations: F64,
    machine: npt.NDArray[Any],
) -> list[Swap]:
    """One swap for every pair of a missing and an unwanted one, the closest pairs first."""
    swaps = []
    for token, (want, got) in enumerate(zip(wanted.tolist(), taken.tolist(), strict=True)):
        missing = sorted(set(want) - set(got), key=lambda e: scores[token, e])
        surplus = sorted(set(got) - set(want), key=lambda e: -scores[token, e])
        for a, b in zip(missing, surplus, strict=True):
            swaps.append(
                Swap(
                    token=token,
                    what=what,
                    wanted=a,
                    taken=b,
                    margin=float(scores[token, a] - scores[token, b]),
                    bound=SIGMAS * float(np.hypot(deviations[token, a], deviations[token, b])),
                    tie=bool(machine[token, a] == machine[token, b]),
                )
            )
    return swaps


def _weight_errors(
    spec: RouterSpec,
    routing: Routing,
    exact: F32,
    deviation: F64,
    same: npt.NDArray[np.bool_],
    mlen: int,
) -> tuple[float, float, float, float]:
    """Largest total and formula errors in ulps, and the bounds of those weights."""
    got = routing.weights.astype(np.float64)
    own = public_router.weigh(spec, routing.logits.astype(np.float32), routing.indices)
    definition = public_router.weigh(spec, exact, routing.indices)
    steps = _roundings(spec, routing, mlen)
    formula, formula_bound = _in_ulps(got, own, (1 + UNIT) ** steps - 1)
    if not same.any():
        return 0.0, formula, 0.0, formula_bound
    # A logit's error enters by itself and, except in a lone sigmoid, through the sum of all.
    alone = spec.rule.scores is Scores.SIGMOID and not spec.rule.renormalised
    worst = SIGMAS * deviation.max(axis=1, keepdims=True) * (1 if alone else 2**0.5)
    relative = np.exp(worst) * (1 + UNIT) ** steps - 1
    total, total_bound = _in_ulps(got[same], definition[same], relative[same])
    return total, formula, total_bound, formula_bound


def _in_ulps(got: F64, want: F32, relative: F64) -> tuple[float, float]:
    """The error that is the largest share of its bound, and that bound, in BF16 ulps of `want`."""
    ulp = np.exp2(np.floor(np.log2(np.maximum(want, 2.0**-126))) - 7)
    errors = np.abs(got - want) / ulp
    bounds = np.broadcast_to(want * relative, errors.shape) / ulp
    at = np.unravel_index(np.argmax(errors / bounds), errors.shape)
    return float(errors.max()), float(max(bounds[at], bounds.flat[np.argmax(errors)]))


def _roundings(spec: RouterSpec, routing: Routing, mlen: int) -> F64:
    """How many roundings of a relative UNIT a weight [T, k] collects after the logits."""
    rule, logits = spec.rule, routing.logits.astype(np.float64)
    factor = 0 if rule.factor == 1.0 else 2  # its own, and the product
    shape = routing.indices.shape
    if rule.topk_weights:
        return np.full(shape, 2.0)  # one ulp (numerics.md), at most twice this share
    if rule.scores is Scores.SOFTMAX:
        distance = logits.max(axis=1, keepdims=True) - logits
        share = public_router.softmax(logits.astype(np.float32))
        # l - m is rounded before exp, which turns it into a relative error of that size.
        average = (distance * share).sum(axis=1, keepdims=True)
        chosen = np.take_along_axis(distance, routing.indices, axis=1)
        return chosen + average + (1 + 1) + spec.blocks(mlen) + 1 + factor + 1
    sigmoids = np.full(shape, 3.0)
    if not rule.renormalised:
        return sigmoids + factor
    return sigmoids + 3 + -(-spec.top_k // mlen) + 1 + factor + 1
