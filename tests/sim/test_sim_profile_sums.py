"""Sums of profiles, and the difference between two."""

from typing import Any

import pytest

from isa.assembler import assemble
from isa.config import PRESETS
from isa.stages import Stage
from sim.profile import (
    MixedProfilesError,
    ProfileError,
    build_profile,
    check_profile,
    diff_profiles,
    merge_profiles,
)
from tests.sim.test_sim_profile_example import CONFIG, NOTE, example, pair_counts, scaled
from tests.sim.test_sim_profile_files import version_4


def test_the_sum_of_two_runs() -> None:
    unmarked = assemble("; @stage=gather pair=2\nS_ADDI_INT gp1, gp0, 1 ; gather pair\n")
    first, second = example(), example(image=unmarked, engine="compiled")
    merged = merge_profiles([first, second], ["a", "b"])
    check_profile(merged)
    assert merged["total_simulation_picos"] == 300_000
    assert merged["total_simulation_cycles"] == 200
    assert merged["total_instructions_executed"] == 40
    assert merged["total_resource_proxy_cycles"]["matrix"] == 94
    stage = merged["stages"]["shared_expert_projection"]
    assert (stage["wall_cycles"], stage["physical_hbm_bytes_read"]) == (50, 1024)
    assert stage["time_fraction"] == 0.25
    assert list(merged["pairs"]) == ["2", "10"]
    assert merged["pairs"]["2"]["instructions"] == 10
    assert merged["pairs"]["2"]["stages"]["expert_projection"]["wall_cycles"] == 60
    assert merged["pairs"]["2"]["resource_proxy_picos"]["matrix"] == 2 * 21 * 1500
    dispatch = merged["dispatch"]
    assert (dispatch["runs"], dispatch["total_overlap_cycles"]) == (2, 18)
    assert dispatch["engine"] == "pysim, compiled"
    assert dispatch["stages"]["expert_projection"]["busy_cycles"]["matrix"] == 90
    assert dispatch["stages"]["expert_projection"]["stall_cycles"]["hazard"] == 50
    found = merged["classification"]
    assert merged["label_count"] == found["label_count"] == 7
    assert found["moe_region_terminated"] is False  # not in the second program
    assert (found["trailing_stage"], found["trailing_labels"]) == ("gather", 1)
    assert found["vocabulary_terms_present"] == ["router token", "gather pair"]
    assert (found["vocabulary_terms_total"], len(found["vocabulary_terms_absent"])) == (27, 25)
    assert found["stage_instruction_counts"]["expert_projection"] == 20
    assert found["attribution_notes"]["shared_vs_routed"] == NOTE


def test_a_sum_of_one_is_itself_and_sums_of_sums_agree() -> None:
    one = example()
    assert merge_profiles([one], ["a"]) == one
    three = merge_profiles([one, one, one], ["a", "b", "c"])
    assert merge_profiles([merge_profiles([one, one], ["a", "b"]), one], ["ab", "c"]) == three
    assert three["dispatch"]["runs"] == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"config": CONFIG.replace(HBM_LATENCY=25, name="slow")}, "configuration digest"),
        ({"config": PRESETS["tiny"]}, "configuration digest"),
        ({"issue": "serial"}, "issue policy overlap"),
        ({"image": assemble("S_ADDI_INT gp1, gp0, 1\n")}, "origin of tags"),
    ],
)
def test_mixed_profiles_are_not_added(change: dict[str, Any], what: str) -> None:
    with pytest.raises(MixedProfilesError, match=f"cannot merge first and second: {what}"):
        merge_profiles([example(), example(**change)], ["first", "second"])


def test_a_foreign_vocabulary_version_4_and_nothing_are_not_added() -> None:
    foreign = example()
    foreign["stages"]["else"] = foreign["stages"].pop("other")
    with pytest.raises(MixedProfilesError, match="first and second: vocabulary"):
        merge_profiles([example(), foreign], ["first", "second"])
    with pytest.raises(ProfileError, match="old: schema version 4 does not say"):
        merge_profiles([version_4()], ["old"])
    with pytest.raises(ProfileError, match="nothing to merge"):
        merge_profiles([], [])


def slower() -> dict[str, Any]:
    """The example with 10 cycles more of memory stalls and bus use in the shared projection."""
    run = scaled(1)
    shared = Stage.SHARED_EXPERT_PROJECTION
    for name in ("wall", "stall_memory", "busy_hbm"):
        run["counters"][name][shared] += 10
    run["counters"]["busy_matrix"][shared] -= 1
    return build_profile(**{**run, "cycles": 110})


def test_the_difference_says_what_moved() -> None:
    deltas = {delta.label: delta for delta in diff_profiles(example(), slower())}
    assert list(deltas) == [stage.label for stage in Stage]
    shared = deltas["shared_expert_projection"]
    assert (shared.before_picos, shared.after_picos, shared.delta_picos) == (37_500, 52_500, 15_000)
    assert shared.moved == (("busy hbm", 10), ("stall memory", 10), ("busy matrix", -1))
    assert [d.label for d in deltas.values() if d.changed] == ["shared_expert_projection"]


def test_the_difference_with_version_4_compares_what_both_have() -> None:
    deltas = {delta.label: delta for delta in diff_profiles(version_4(), slower())}
    assert deltas["shared_expert_projection"].moved == ()
    assert deltas["non_moe"].before_picos == 0
    assert deltas["non_moe"].moved == (("instructions", 1),)


def test_pairs_of_different_runs_keep_what_only_one_has() -> None:
    other = example(pair_stats={3: {"gather": pair_counts(0, 0, 0, 0)}})
    merged = merge_profiles([example(), other], ["a", "b"])
    assert list(merged["pairs"]) == ["2", "3", "10"]
    assert merged["pairs"]["3"]["stages"]["gather"]["instructions"] == 0
