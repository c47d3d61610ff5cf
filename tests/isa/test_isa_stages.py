"""The stage vocabulary against attribution.md, and the branches."""

import pytest

from isa.stages import BRANCH_OF, Branch, Stage

# attribution.md, "Vocabulary", in order.
NAMES = [
    "residual_setup",
    "router_topk",
    "accumulator_init",
    "gather",
    "expert_weight_address",
    "expert_weight_prefetch",
    "expert_projection",
    "expert_activation",
    "expert_bias",
    "expert_route_weight",
    "scatter_combine",
    "shared_expert_projection",
    "shared_expert_activation",
    "shared_expert_gate",
    "non_moe",
    "other",
]


def test_the_vocabulary_is_the_contracts_dense_and_in_order():
    assert [stage.label for stage in Stage] == NAMES
    assert [stage.value for stage in Stage] == list(range(16))


def test_every_stage_is_placed_in_a_branch():
    missing = [stage.label for stage in Stage if stage not in BRANCH_OF]
    assert not missing, f"not placed in a branch of BRANCH_OF: {', '.join(missing)}"
    assert {s.label for s, b in BRANCH_OF.items() if b is Branch.SHARED} == {
        n for n in NAMES if "shared" in n
    }
    assert BRANCH_OF[Stage.ROUTER_TOPK] is Branch.ROUTED
    assert BRANCH_OF[Stage.OTHER] is BRANCH_OF[Stage.NON_MOE] is Branch.OUTSIDE


def test_an_unknown_label_names_the_vocabulary():
    assert Stage.from_label("gather") is Stage.GATHER
    with pytest.raises(ValueError, match=r"'gathr' is not in the vocabulary.*scatter_combine"):
        Stage.from_label("gathr")
