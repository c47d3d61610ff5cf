"""The public definitions of the routers, and what counts as explained by rounding."""

import dataclasses

import numpy as np
import pytest

from compiler.models import MODELS
from compiler.router_rule import RouterSpec
from isa.config import PRESETS
from sim.numerics import bf16
from testbench.reference import public_router
from testbench.reference import router as reference
from testbench.reference.router import Routing, router_logits
from testbench.router_agreement import (
    SIGMAS,
    Agreement,
    compare_with_definition,
    logit_deviation,
)
from testbench.router_case import RouterCase, build_router_case, golden_routing, router_data

TINY = PRESETS["tiny"]


def case_of(name: str, tokens: int = 60, seed: int = 0) -> RouterCase:
    return build_router_case(TINY, MODELS[name].scaled(TINY).router, tokens=tokens, seed=seed)


def agreement(case: RouterCase, golden: Routing) -> Agreement:
    data = case.data
    return compare_with_definition(
        case.program.spec,
        golden,
        x=data.x,
        weight=data.weight,
        bias=data.bias,
        correction=data.correction,
        mlen=TINY.MLEN,
    )


@pytest.mark.parametrize("model", MODELS)
def test_rounding_explains_every_difference_from_the_definition(model: str) -> None:
    case = case_of(model)
    found = agreement(case, case.golden)
    assert found.problems == []
    assert found.equal_sets + len({s.token for s in found.swaps}) >= found.tokens
    assert found.equal_sets >= 0.9 * found.tokens
    # A bound that is far from what happens would explain a defect too.
    assert found.formula_bound < 15
    assert found.weight_ulps < 10


@pytest.mark.parametrize("model", MODELS)
def test_a_wrong_expert_is_not_explained(model: str) -> None:
    case = case_of(model)
    indices = case.golden.indices.copy()
    worst = bf16.order_key(case.golden.choice[7]).argmin()
    indices[7, -1] = worst
    found = agreement(case, dataclasses.replace(case.golden, indices=indices))
    assert any("token 7: expert" in p and "NOT explained" in p for p in found.problems)


@pytest.mark.parametrize("model", ["deepseek-v2", "deepseek-v3"])
def test_a_wrong_group_is_not_explained(model: str) -> None:
    case = case_of(model)
    kept = case.golden.kept
    scores = case.golden.group_scores
    assert kept is not None
    assert scores is not None
    worst = kept.copy()
    worst[3, 0] = bf16.order_key(scores[3]).argmin()
    found = agreement(case, dataclasses.replace(case.golden, kept=worst))
    assert any("token 3: group" in p and "NOT explained" in p for p in found.problems)


@pytest.mark.parametrize("model", MODELS)
def test_a_wrong_weight_is_not_explained(model: str) -> None:
    case = case_of(model)
    weights = case.golden.weights.copy()
    weights[5, 0] = bf16.round_to_bf16(1.2 * np.float64(weights[5, 0]))
    found = agreement(case, dataclasses.replace(case.golden, weights=weights))
    assert any("on the same logits" in p for p in found.problems)


@pytest.mark.parametrize("hidden", [8, 64, 1024])
def test_logit_errors_spread_as_they_should(hidden: int) -> None:
    spec = dataclasses.replace(MODELS["deepseek-v3"].scaled(TINY).router, hidden=hidden)
    data = router_data(spec, 100, seed=1)
    x, weight = (np.asarray(v, np.float32) for v in (data.x, data.weight))
    exact = public_router.logits(x, weight)
    deviation = logit_deviation(x, weight, exact, biased=False, mlen=TINY.MLEN)
    errors = (router_logits(data.x, data.weight, TINY.MLEN).astype(np.float64) - exact) / deviation
    assert 0.5 < errors.std() < 1.1
    assert np.abs(errors).max() < SIGMAS
    assert abs(errors.mean()) < 0.05


def test_the_form_of_the_choice_agrees_more_often_than_the_plain_one(monkeypatch) -> None:
    """b - sigmoid(-l) against sigmoid(l) + b, both in BF16: docs/routing.md has the figures."""
    model, config = MODELS["deepseek-v3"], PRESETS["default"]
    spec = model.scaled(config).router
    data = router_data(spec, 128, seed=0)

    def plain(logits, correction):
        falling = bf16.exp(bf16.sub(bf16.round_to_bf16(0.0), logits))
        return bf16.add(bf16.reciprocal(bf16.add(falling, bf16.round_to_bf16(1.0))), correction)

    found = []
    for form in (reference.corrected_scores, plain):
        monkeypatch.setattr(reference, "corrected_scores", form)
        golden = golden_routing(spec, data, config.MLEN)
        agreed = compare_with_definition(
            spec,
            golden,
            x=data.x,
            weight=data.weight,
            bias=None,
            correction=data.correction,
            mlen=config.MLEN,
        )
        found.append(agreed.equal_sets)
    assert found[0] >= 120 > 110 > found[1]


def spec_of(name: str, experts: int, top_k: int) -> RouterSpec:
    return RouterSpec(experts=experts, top_k=top_k, hidden=8, rule=MODELS[name].rule)


def test_the_definitions_by_hand() -> None:
    logits = np.log(np.array([[1, 2, 4, 8]], np.float32))
    third = np.array([[3, 2]])
    cases = {
        "gpt-oss-20b": [8 / 12, 4 / 12],
        "mixtral-8x7b": [8 / 12, 4 / 12],
        "deepseek-v2-lite": [8 / 15, 4 / 15],
        "glm-4.5": [2.5 * (8 / 9) / (8 / 9 + 4 / 5), 2.5 * (4 / 5) / (8 / 9 + 4 / 5)],
        "llama4-scout": [8 / 9, 4 / 5],
    }
    for name, weights in cases.items():
        spec = spec_of(name, 4, 2)
        assert public_router.choose(spec, logits).indices.tolist() == third.tolist()
        assert np.allclose(public_router.weigh(spec, logits, third), [weights], atol=1e-6), name


def test_a_correction_changes_the_choice_and_not_the_weights() -> None:
    spec = spec_of("glm-4.5-air", 4, 2)
    logits = np.zeros((1, 4), np.float32)
    correction = np.array([0, 0.1, 0.3, -0.1], np.float32)
    choice = public_router.choose(spec, logits, correction)
    assert choice.indices.tolist() == [[2, 1]]
    assert public_router.weigh(spec, logits, choice.indices).tolist() == [[0.5, 0.5]]


def test_groups_keep_the_best_by_maximum_or_by_the_sum_of_two() -> None:
    # 8 groups of 2: group 0 has the best expert, groups 1 to 4 the best pairs.
    logits = np.full((1, 16), -4, np.float32)
    logits[0, 0] = 5
    logits[0, 2:10] = 2
    by_maximum = public_router.choose(spec_of("deepseek-v2", 16, 6), logits)
    assert by_maximum.kept is not None
    assert by_maximum.kept[0].tolist() == [0, 1, 2]
    assert by_maximum.indices[0].tolist() == [0, 2, 3, 4, 5, 1]
    by_pairs = public_router.choose(spec_of("deepseek-v3", 16, 8), logits, np.zeros(16, np.float32))
    assert by_pairs.kept is not None
    assert by_pairs.kept[0].tolist() == [1, 2, 3, 4]
    assert by_pairs.indices[0].tolist() == list(range(2, 10))
