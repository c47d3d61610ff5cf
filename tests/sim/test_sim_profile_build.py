"""The profile of a run: every figure of the example by hand, every identity violated."""

import re
from typing import Any

import pytest

from isa.assembler import assemble
from isa.image import VOCABULARY, ProgramImage
from isa.opcodes import Unit
from rtl.profile import COUNTERS
from sim.profile import ProfileError, check_profile
from sim.profile.accounting import BUSY, COMPLETED, STALLS
from sim.profile.amounts import PROXIES, PROXY_OF, Amounts, cycles_of, fraction
from tests.sim.test_sim_profile_example import (
    CONFIG,
    COUNTS,
    example,
    pair_counts,
)

#: Typed from attribution.md, "stage_profile.json".
TOP_V4 = [
    "schema_version",
    "label_count",
    "total_instructions_executed",
    "total_simulation_picos",
    "total_simulation_cycles",
    "total_profiled_picos",
    "total_profiled_cycles",
    "total_unprofiled_picos",
    "total_unprofiled_cycles",
    "cycle_accounting_status",
    "period_picos",
    "total_profiled_seconds",
    "total_hbm_bytes_read",
    "total_hbm_bytes_written",
    "total_resource_proxy_picos",
    "total_resource_proxy_cycles",
    "logical_byte_status",
    "physical_byte_status",
    "resource_cycle_status",
    "time_unit_status",
    "classification",
    "stages",
    "pairs",
    "caveat",
]
STAGE_V4 = [
    "instructions",
    "wall_picos",
    "wall_cycles",
    "seconds",
    "instruction_fraction",
    "time_fraction",
    "logical_bytes_read",
    "logical_bytes_written",
    "physical_hbm_bytes_read",
    "physical_hbm_bytes_written",
    "hbm_bytes_read",
    "hbm_bytes_written",
    "resource_proxy_picos",
    "resource_proxy_cycles",
]
CLASSIFICATION_V4 = [
    "routed_moe_markers_present",
    "label_count",
    "unclassified_labels",
    "unclassified_fraction",
    "stage_attribution",
    "attribution_notes",
    "moe_region_terminated",
    "trailing_stage",
    "trailing_labels",
    "unresolved_stage_markers",
    "vocabulary_terms_total",
    "vocabulary_terms_present",
    "vocabulary_terms_absent",
    "pair_id_terms_present",
    "stage_instruction_counts",
]
VOCABULARY_TYPED = [
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


def test_a_consumer_of_version_4_finds_every_field() -> None:
    profile = example()
    assert set(profile) == {*TOP_V4, "dispatch"}
    assert set(profile["classification"]) == set(CLASSIFICATION_V4)
    assert list(profile["classification"]["attribution_notes"]) == ["shared_vs_routed"]
    assert list(profile["stages"]) == VOCABULARY_TYPED
    for stage in profile["stages"].values():
        assert set(stage) == set(STAGE_V4)
    for pair in profile["pairs"].values():
        assert set(pair) == {*STAGE_V4, "stages"}
        for stage in pair["stages"].values():
            assert set(stage) == set(STAGE_V4)


def test_the_figures_of_the_example() -> None:
    profile = example()
    check_profile(profile)
    assert profile["schema_version"] == 5
    assert profile["label_count"] == 6
    assert profile["total_instructions_executed"] == 20
    assert profile["period_picos"] == 1500
    assert profile["total_simulation_picos"] == profile["total_profiled_picos"] == 150_000
    assert profile["total_simulation_cycles"] == profile["total_profiled_cycles"] == 100
    assert profile["total_unprofiled_picos"] == profile["total_unprofiled_cycles"] == 0
    assert profile["cycle_accounting_status"] == "profiled_time_matches_total"
    assert profile["total_profiled_seconds"] == pytest.approx(1.5e-7)
    assert (profile["total_hbm_bytes_read"], profile["total_hbm_bytes_written"]) == (512, 64)
    assert profile["total_resource_proxy_cycles"] == {
        "matrix": 47,
        "vector": 13,  # 6 of the vector unit and 7 of the top-k unit
        "scalar": 4,
        "dma": 30,
        "other": 1,
    }
    assert profile["total_resource_proxy_picos"]["matrix"] == 47 * 1500


def test_the_figures_of_a_stage() -> None:
    stage = example()["stages"]["shared_expert_projection"]
    proxies = {"matrix": 2, "vector": 0, "scalar": 0, "dma": 30, "other": 0}
    assert stage == {
        "instructions": 5,  # 2 on the matrix unit's port, 3 on the HBM port's
        "wall_picos": 37_500,
        "wall_cycles": 25,
        "seconds": pytest.approx(3.75e-8),
        "instruction_fraction": 0.25,
        "time_fraction": 0.25,
        "logical_bytes_read": None,
        "logical_bytes_written": None,
        "physical_hbm_bytes_read": 512,
        "physical_hbm_bytes_written": 0,
        "hbm_bytes_read": 512,
        "hbm_bytes_written": 0,
        "resource_proxy_picos": {name: cycles * 1500 for name, cycles in proxies.items()},
        "resource_proxy_cycles": proxies,
    }


def test_the_dispatch_section() -> None:
    dispatch = example()["dispatch"]
    assert dispatch["attribution_point"] == "hardware_dispatch_tag"
    assert (dispatch["engine"], dispatch["issue_policy"]) == ("pysim", "overlap")
    assert dispatch["config"]["name"] == CONFIG.name
    assert dispatch["config"]["digest"] == CONFIG.digest
    assert dispatch["config"]["fields"]["CLOCK_PERIOD_PS"] == 1500
    assert (dispatch["total_overlap_cycles"], dispatch["runs"]) == (9, 1)
    assert list(dispatch["stages"]) == VOCABULARY_TYPED
    stage = dispatch["stages"]["expert_projection"]
    assert (stage["dispatched"], stage["completed"], stage["multiplier_cycles"]) == (10, 10, 40)
    assert stage["completed_by_port"]["matrix_product"] == 10
    assert stage["busy_cycles"]["matrix"] == 45
    assert stage["stall_cycles"] == {
        "no_unit": 10,
        "hazard": 25,
        "memory": 0,
        "fetch": 0,
        "drain": 0,
    }


def test_pairs_are_in_numeric_order_with_their_stages_inside() -> None:
    pairs = example()["pairs"]
    assert list(pairs) == ["2", "10"]
    assert (pairs["2"]["instructions"], pairs["2"]["instruction_fraction"]) == (5, 0.25)
    assert pairs["2"]["wall_picos"] == 45_000
    assert pairs["2"]["time_fraction"] == 0.3
    assert pairs["2"]["physical_hbm_bytes_written"] == 64
    assert pairs["2"]["resource_proxy_cycles"] == dict.fromkeys(PROXIES, 0) | {"matrix": 21}
    assert list(pairs["10"]["stages"]) == ["expert_projection"]
    assert pairs["10"]["stages"]["expert_projection"]["wall_cycles"] == 20


def test_a_run_of_nothing_is_zeros() -> None:
    profile = example(
        image=assemble(""),
        cycles=0,
        overlap_cycles=0,
        counters={name: [0] * 16 for name in COUNTERS},
        hbm_bytes_read=[0] * 16,
        hbm_bytes_written=[0] * 16,
        pair_stats=None,
    )
    check_profile(profile)
    assert profile["stages"]["other"]["time_fraction"] == 0.0
    assert profile["classification"]["unclassified_fraction"] == 0.0
    assert profile["classification"]["trailing_stage"] == "other"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"issue": "eager"}, "issue = 'eager': must be one of overlap, serial"),
        ({"shared_vs_routed_note": " "}, "shared_vs_routed_note and engine must not be empty"),
        ({"hbm_bytes_read": [0] * 15}, "hbm_bytes_read: 15 values for 16 stages"),
        ({"hbm_bytes_read": [-1] * 16}, "hbm_bytes_read[residual_setup] = -1"),
        ({"counters": {"wall": [0] * 16, "walls": []}}, "unknown ['walls']"),
        ({"pair_stats": {-1: {}}}, "pair -1: must be an integer from 0 on"),
        ({"pair_stats": {1: {"gathre": pair_counts(0, 0, 0, 0)}}}, "pair_stats[1]: 'gathre'"),
    ],
)
def test_arguments_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(message)):
        example(**change)


def test_an_image_in_a_foreign_vocabulary_is_refused() -> None:
    image = ProgramImage(
        words=[0],  # type: ignore[arg-type]
        stages=[0],  # type: ignore[arg-type]
        pairs=[-1],  # type: ignore[arg-type]
        lines=[1],  # type: ignore[arg-type]
        source=("x",),
        vocabulary=("gather",),
    )
    with pytest.raises(ProfileError, match=r"ProgramImage\.load"):
        example(image=image)


def test_every_counter_is_in_the_profile() -> None:
    shown = {*COMPLETED.values(), *BUSY.values(), *STALLS.values()}
    assert shown | {"wall", "dispatched", "multipliers", "hbm_reads", "hbm_writes"} == set(COUNTERS)
    assert set(PROXY_OF) == set(Unit)
    assert set(PROXY_OF.values()) == set(PROXIES)
    assert COUNTS["wall"].keys() <= set(VOCABULARY)


def test_the_views_round_up_and_proxies_add_up() -> None:
    assert [cycles_of(picos, 1500) for picos in (0, 1, 1500, 1501)] == [0, 1, 1, 2]
    assert (fraction(1, 4), fraction(0, 0)) == (0.25, 0.0)
    one = Amounts(proxies=dict.fromkeys(PROXIES, 1))
    assert Amounts.total([one, one]).proxies == dict.fromkeys(PROXIES, 2)
