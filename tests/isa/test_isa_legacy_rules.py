"""The legacy rules against attribution.md: every rule, its clauses, its place in the order."""

import pytest

from isa.assembler import assemble
from isa.legacy_rules import LEGACY_RULES, LEGACY_TERMS
from isa.markers import legacy_stage
from isa.stages import Stage

STAGES = {stage.label: stage for stage in Stage}

#: Typed from attribution.md: comment, the stage before (other when it does not matter), the stage.
CASES = [
    # 1
    ("GPT-OSS router logits", "other", "router_topk"),
    ("router token 3", "gather", "router_topk"),
    ("router dot token 3", "gather", "router_topk"),
    # 2
    ("GPT-OSS VRAM scatter-add", "gather", "scatter_combine"),
    ("step6_pair3_scatter", "gather", "scatter_combine"),
    # 3
    ("Allocate VRAM Matrix step6_pair0_route", "gather", "expert_route_weight"),
    # 4
    ("materialize route weight of 3", "gather", "expert_route_weight"),
    ("true-zero VRAM rows 0..3", "expert_route_weight", "expert_route_weight"),
    # 5
    ("true-zero VRAM rows 0..3", "gather", "accumulator_init"),
    ("step6_device_routing_acc", "expert_route_weight", "accumulator_init"),
    # 6
    ("gpt-oss gather token rows", "other", "gather"),
    ("gather pair 3", "other", "gather"),
    ("clear gather padding", "other", "gather"),
    ("allocate vram matrix step6_pair2_gather", "other", "gather"),
    # 7
    ("dynamic expert bias add", "other", "expert_bias"),
    # 8
    ("allocate vram matrix step6_pair2_sigmoid", "other", "expert_activation"),
    # 9
    ("tile row min fp", "other", "expert_activation"),
    ("tile row max fp", "other", "expert_activation"),
    ("vram fill zero", "expert_activation", "expert_activation"),
    ("vram matrix add", "expert_activation", "expert_activation"),
    ("vram matrix mul", "expert_activation", "expert_activation"),
    ("vram fill zero", "gather", "gather"),
    ("vram matrix add", "expert_bias", "expert_bias"),
    ("vram matrix mul", "other", "other"),
    # 10
    ("dynamic HBM weight prefetch", "other", "expert_weight_address"),
    ("expert_id_to_weight_base", "other", "expert_weight_address"),
    # 11
    ("SubBlock [0][1]", "other", "expert_weight_prefetch"),
    # 12
    ("sub projection", "other", "expert_projection"),
    ("vram block add", "other", "expert_projection"),
    ("VRAM block 3", "other", "expert_projection"),
    ("allocate vram matrix step6_pair2_up", "other", "expert_projection"),
    # None of them.
    ("allocate vram matrix hidden", "gather", "gather"),
    ("_route of step6_pair3", "gather", "gather"),
    ("_gather", "expert_bias", "expert_bias"),
    ("_sigmoid", "gather", "gather"),
    ("", "gather", "gather"),
    ("@stage=expert_bias", "gather", "gather"),
]


@pytest.mark.parametrize(("comment", "before", "after"), CASES)
def test_every_clause(comment: str, before: str, after: str) -> None:
    assert legacy_stage(comment, STAGES[before]) is STAGES[after]


#: One comment that hits a rule whatever the stage is, by the rule's number.
HITS = [
    "router token",
    "_scatter",
    "allocate vram matrix step6_pair _route",
    "materialize route weight",
    "step6_device_routing_acc",
    "gather pair",
    "dynamic expert bias add",
    "allocate vram matrix step6_pair _sigmoid",
    "tile row min fp",
    "expert_id_to_weight_base",
    "subblock [",
    "sub projection",
]
RESULTS = [
    *("router_topk", "scatter_combine", "expert_route_weight", "expert_route_weight"),
    *("accumulator_init", "gather", "expert_bias", "expert_activation", "expert_activation"),
    *("expert_weight_address", "expert_weight_prefetch", "expert_projection"),
]


def test_there_are_twelve_rules_with_these_results() -> None:
    assert [rule.stage.label for rule in LEGACY_RULES] == RESULTS
    assert len(HITS) == len(RESULTS) == 12


@pytest.mark.parametrize("late", range(1, 12))
@pytest.mark.parametrize("early", range(11))
def test_the_first_hit_wins(early: int, late: int) -> None:
    if early < late:
        both = f"{HITS[late]} {HITS[early]}"
        assert legacy_stage(both, Stage.OTHER).label == RESULTS[early]


def test_zeroing_belongs_to_the_route_weight_before_it_belongs_to_the_accumulator() -> None:
    stage = Stage.OTHER
    seen = []
    for comment in (
        "true-zero vram rows",
        "allocate vram matrix step6_pair0_route",
        "true-zero vram rows",
        "materialize route weight",
        "true-zero vram rows",
        "step6_device_routing_acc true-zero vram rows",
    ):
        stage = legacy_stage(comment, stage)
        seen.append(stage.label)
    # The last one: rule 4 comes first, and still holds.
    assert seen == ["accumulator_init", *["expert_route_weight"] * 5]


def test_the_activation_holds_until_another_rule_hits() -> None:
    source = """\
S_ADDI_INT gp1, gp0, 0 ; vram matrix add
S_ADDI_INT gp1, gp0, 1 ; allocate vram matrix step6_pair7_sigmoid
S_ADDI_INT gp1, gp0, 2 ; vram matrix add
S_ADDI_INT gp1, gp0, 3 ; VRAM Block add
S_ADDI_INT gp1, gp0, 4 ; vram matrix add
S_ADDI_INT gp1, gp0, 5
"""
    image = assemble(source)
    names = [image.vocabulary[stage] for stage in image.stages]
    # A trailing comment tags what follows its line.
    assert names == [*("other",) * 2, *("expert_activation",) * 2, *("expert_projection",) * 2]
    assert image.pairs.tolist() == [-1, -1, 7, 7, 7, 7]
    assert image.tag_origin == "legacy_comment_substrings"


def test_a_marker_anywhere_switches_the_rules_off() -> None:
    source = "; router token 1\nS_ADDI_INT gp1, gp0, 0\n; @stage=gather\nS_ADDI_INT gp1, gp0, 1\n"
    image = assemble(source)
    assert [image.vocabulary[stage] for stage in image.stages] == ["other", "gather"]


def test_terms_and_rules_agree_in_both_directions() -> None:
    in_rules = [term for rule in LEGACY_RULES for term in rule.terms()]
    assert set(in_rules) == set(LEGACY_TERMS)
    assert len(LEGACY_TERMS) == len(set(LEGACY_TERMS)) == 27
    for term in LEGACY_TERMS:
        assert term
        assert term == term.lower()


@pytest.mark.parametrize("term", LEGACY_TERMS)
def test_every_term_matters(term: str) -> None:
    # Somewhere, what a comment means changes with this term alone.
    others = ["", *HITS, *(" ".join(rule_terms) for rule_terms in _clauses_without(term))]
    assert any(
        legacy_stage(f"{other} | {term}", stage) is not legacy_stage(other, stage)
        for other in others
        for stage in Stage
    )


def _clauses_without(term: str) -> list[list[str]]:
    clauses = [clause for rule in LEGACY_RULES for clause in rule.clauses]
    return [[t for t in clause.all_of if t != term] for clause in clauses if term in clause.all_of]
