"""What a profile says about the origin and the coverage of a program's tags."""

from typing import Any

import pytest

from isa.assembler import assemble
from isa.image import VOCABULARY
from isa.legacy_rules import LEGACY_TERMS
from sim.profile.classification import PAIR_TERMS, classify
from tests.sim.test_sim_profile_example import NOTE, example


def classified(source: str, **changes: Any) -> dict[str, Any]:
    return classify(assemble(source, **changes), {}, NOTE)


WORD = "S_ADDI_INT gp1, gp0, 1\n"


def test_the_classification_of_the_example() -> None:
    found = example()["classification"]
    assert found["routed_moe_markers_present"] is True
    assert found["stage_attribution"] == "explicit_stage_markers"
    assert found["attribution_notes"] == {"shared_vs_routed": NOTE}
    assert found["moe_region_terminated"] is True
    assert (found["trailing_stage"], found["trailing_labels"]) == ("non_moe", 2)
    assert (found["unclassified_labels"], found["unclassified_fraction"]) == (0, 0.0)
    assert found["vocabulary_terms_total"] == 27
    assert found["vocabulary_terms_present"] == ["router token"]
    assert len(found["vocabulary_terms_absent"]) == 26
    assert found["pair_id_terms_present"] == ["pair="]
    assert found["stage_instruction_counts"]["expert_projection"] == 10
    assert list(found["stage_instruction_counts"]) == list(VOCABULARY)


@pytest.mark.parametrize(
    ("source", "terminated", "stage", "labels"),
    [
        ("; @stage=non_moe\n", True, "non_moe", 0),
        (f"; @stage=gather\n{WORD}; @stage=non_moe\n{WORD}", True, "non_moe", 1),
        (f"; @stage=gather\n{WORD}", False, "gather", 1),
        # From the last marker, not from the last change.
        (f"; @stage=gather\n{WORD}; @stage=gather\n{WORD * 2}", False, "gather", 2),
        # Another layer after the first one's end.
        (f"; @stage=non_moe\n{WORD}; @stage=residual_setup\n{WORD}", False, "residual_setup", 1),
        # A marker behind an instruction tags what follows.
        (f"{WORD.strip()} ; @stage=non_moe\n{WORD}{WORD}", True, "non_moe", 2),
        # An unknown name changes nothing.
        (f"; @stage=gather\n{WORD}; @stage=gathre\n{WORD}", False, "gather", 2),
        # Without markers: the run of the last stage.
        (WORD * 3, False, "other", 3),
        ("", False, "other", 0),
    ],
)
def test_how_the_program_ends(source: str, terminated: bool, stage: str, labels: int) -> None:
    found = classified(source, strict=False)
    assert found["moe_region_terminated"] is terminated
    assert (found["trailing_stage"], found["trailing_labels"]) == (stage, labels)


def test_unresolved_and_unclassified_are_reported() -> None:
    found = classified(f"{WORD}; @stage=gathre\n{WORD}; @stage=gather\n{WORD * 2}", strict=False)
    assert found["unresolved_stage_markers"] == ["gathre"]
    assert (found["unclassified_labels"], found["unclassified_fraction"]) == (2, 0.5)
    assert found["routed_moe_markers_present"] is False


def test_terms_are_looked_for_in_comments_only_in_any_case_of_letters() -> None:
    found = classified("VRAM_BLOCK: // Subblock [0] vram block of step6_pair3\n; pairs=8\n")
    assert found["stage_attribution"] == "legacy_comment_substrings"
    assert found["vocabulary_terms_present"] == ["subblock [", "vram block"]
    assert found["pair_id_terms_present"] == ["step6_pair"]
    assert PAIR_TERMS == ("step6_pair", "pair=")


def test_the_legacy_terms_are_those_of_the_rules() -> None:
    assert len(LEGACY_TERMS) == len(set(LEGACY_TERMS)) == 27
    assert all(term == term.lower() for term in LEGACY_TERMS)
    assert set(LEGACY_TERMS) == {
        *("gpt-oss router", "router token", "router dot token", "gpt-oss vram scatter-add"),
        *("_scatter", "allocate vram matrix step6_pair", "_route", "materialize route weight"),
        *("true-zero vram rows", "step6_device_routing_acc", "gpt-oss gather token rows"),
        *("gather pair", "clear gather padding", "_gather", "dynamic expert bias add"),
        *("_sigmoid", "tile row min fp", "tile row max fp", "vram fill zero"),
        *("vram matrix add", "vram matrix mul", "dynamic hbm weight prefetch"),
        *("expert_id_to_weight_base", "subblock [", "sub projection", "vram block add"),
        "vram block",
    }
