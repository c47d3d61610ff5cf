"""The model table: complete, cited, and scaled without losing its shape."""

import dataclasses

import pytest

from compiler import ARCHITECTURES, CompileError, SharedExpertSpec
from compiler.models import MODELS, find_model
from compiler.moe_model import MoeModel, SharedBranch
from compiler.router_rule import GroupScore, RouterRule, RouterSpec, Scores, TopkGives
from isa import PRESETS, PlenaConfig

CITED = {
    "experts",
    "top_k",
    "hidden",
    "intermediate",
    "rule",
    "activation",
    "expert_biases",
    "shared",
}


def test_every_value_names_its_source() -> None:
    fields = {f.name for f in dataclasses.fields(MoeModel)}
    assert fields - {"name", "title", "checkpoint", "sources"} == CITED
    for name, model in MODELS.items():
        assert model.name == name
        assert "/" in model.checkpoint
        assert set(model.sources) == CITED, name
        assert all(model.sources.values())


def test_what_one_v_topk_gives_of_each_rule() -> None:
    """lowering.md section 9."""
    gives = {name: model.rule.topk_gives for name, model in MODELS.items()}
    exact, real = TopkGives.EXACT, TopkGives.EXACT_IN_REAL_ARITHMETIC
    indices, nothing = TopkGives.INDICES, TopkGives.NOTHING
    assert gives == {
        "gpt-oss-20b": exact,
        "gpt-oss-120b": exact,
        "mixtral-8x7b": real,
        "qwen3-30b-a3b": real,
        "qwen3-next-80b-a3b": real,
        "qwen2-moe-a14b": indices,
        "deepseek-v2-lite": indices,
        "deepseek-v2": nothing,
        "deepseek-v3": nothing,
        "kimi-k2": nothing,
        "glm-4.5": nothing,
        "glm-4.5-air": nothing,
        "llama4-scout": indices,
        "llama4-maverick": indices,
    }


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
@pytest.mark.parametrize("name", MODELS)
def test_scaling_keeps_the_rule_and_every_ratio(config: PlenaConfig, name: str) -> None:
    model = MODELS[name]
    small = model.scaled(config)
    assert (small.rule, small.top_k, small.activation) == (
        model.rule,
        model.top_k,
        model.activation,
    )
    assert small.experts <= model.experts
    assert small.experts <= max(2 * config.MLEN + model.rule.groups, 4 * model.top_k * 2)
    # Half of the kept experts stay out at least, as in the model.
    kept = small.rule.kept_groups * small.router.group_size
    assert 2 * small.top_k <= kept or small.experts == model.experts
    assert min(small.hidden, small.intermediate) == config.MLEN
    ratio = (small.hidden / small.intermediate) / (model.hidden / model.intermediate)
    assert 2 / 3 < ratio < 3 / 2
    assert (small.shared is None) == (model.shared is None)
    if model.shared is not None:
        assert small.shared is not None
        assert small.shared.width * model.intermediate == model.shared.width * small.intermediate
        assert (small.shared.count, small.shared.gated) == (model.shared.count, model.shared.gated)
    assert small.scaled(config) == small


def test_shared_expert_families_are_rows_of_the_table() -> None:
    models = {arch: row.model for arch, row in ARCHITECTURES.items()}
    assert models["qwen2"] == MODELS["qwen2-moe-a14b"].title
    gated = {arch for arch, row in ARCHITECTURES.items() if row.gated}
    assert gated == {"qwen2"}
    spec = SharedExpertSpec.of("deepseek", hidden=64, intermediate=64)
    assert (spec.n_shared, spec.width) == (2, 128)


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(CompileError, match=r"deepseek-v4.*did you mean deepseek-v"):
        find_model("deepseek-v4")


SOFTMAX = RouterRule(scores=Scores.SOFTMAX)


def spec(experts: int, top_k: int, rule: RouterRule = SOFTMAX) -> RouterSpec:
    return RouterSpec(experts=experts, top_k=top_k, hidden=64, rule=rule)


def grouped(groups: int, kept: int, score: GroupScore = GroupScore.MAXIMUM) -> RouterRule:
    return RouterRule(
        scores=Scores.SIGMOID,
        correction_bias=True,
        groups=groups,
        kept_groups=kept,
        group_score=score,
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: spec(4, 5), r"top_k = 5: must be at most experts = 4"),
        (lambda: spec(4, 0), r"top_k = 0: must be at least 1"),
        (lambda: spec(0, 1), r"experts = 0: must be at least 1"),
        (
            lambda: spec(8, 2, grouped(8, 1)),
            r"top_k = 2: 1 kept of 8 groups of 8 experts hold 1 to choose from",
        ),
        (lambda: spec(10, 2, grouped(4, 2)), r"groups = 4: must divide experts = 10"),
        (
            lambda: spec(8, 2, grouped(8, 4, GroupScore.TOP_TWO_SUM)),
            r"groups = 8: leave 1 of 8 experts per group",
        ),
        (lambda: grouped(4, 5), r"kept_groups = 5: must be 1 to groups = 4"),
        (lambda: grouped(1, 1), r"group_score = MAXIMUM, groups = 1"),
        (lambda: RouterRule(scores=Scores.SOFTMAX, factor=0), r"factor = 0: must be positive"),
        (
            lambda: RouterRule(scores=Scores.SELECTED_SOFTMAX, factor=2.0),
            r"factor = 2.0: must be 1 where the weights are those of V_TOPK",
        ),
        (lambda: RouterRule(scores=Scores.SIGMOID, bias=True), r"bias with sigmoid"),
        (lambda: RouterRule(scores=Scores.SOFTMAX, correction_bias=True), r"correction_bias with"),
        (lambda: SharedBranch(count=2, width=3, gated=False), r"shared width = 3"),
    ],
)
def test_shapes_that_cannot_be_are_refused(make, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make()


def test_a_row_names_the_model_it_refuses() -> None:
    with pytest.raises(CompileError, match="mixtral-8x7b: intermediate = 0"):
        dataclasses.replace(MODELS["mixtral-8x7b"], intermediate=0)
