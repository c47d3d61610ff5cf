"""The accounting identities of a run: each violated, and all of them kept by the machine."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from isa.config import PRESETS
from isa.stages import Stage
from isa.traps import Trap
from sim.profile import ProfileInvariantError, build_profile, check_profile
from tests.sim.test_sim_profile_example import NOTE, arguments, pair_counts, per_stage


def moved(name: str, stage: str, by: int) -> Callable[[dict[str, Any]], None]:
    """Changes one counter of one stage."""

    def change(found: dict[str, Any]) -> None:
        found["counters"][name][Stage.from_label(stage)] += by

    return change


def other(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "invariant", "stage", "found", "expected"),
    [
        (moved("wall", "gather", 1), "wall_cycles_equal_total", "all stages", 101, 100),
        (moved("wall", "non_moe", -1), "wall_cycles_equal_total", "all stages", 99, 100),
        (other("cycles", 101), "wall_cycles_equal_total", "all stages", 100, 101),
        (
            moved("completed_hbm", "shared_expert_projection", -1),
            "dispatched_equal_completed",
            "shared_expert_projection",
            5,
            4,
        ),
        (
            moved("completed_vector", "gather", 1),
            "dispatched_equal_completed",
            "gather",
            0,
            1,
        ),
        (moved("stall_fetch", "gather", 1), "dispatch_slots_equal_total", "all stages", 101, 100),
        (moved("stall_drain", "non_moe", -2), "dispatch_slots_equal_total", "all stages", 98, 100),
        (moved("busy_hbm", "gather", 71), "busy_within_total", "all stages", 101, 100),
        (moved("busy_control", "gather", 100), "busy_within_total", "all stages", 101, 100),
        (moved("busy_topk", "other", 94), "busy_within_total", "all stages", 101, 100),
        (moved("multipliers", "gather", 61), "busy_within_total", "all stages", 101, 100),
        (other("overlap_cycles", 101), "overlap_within_total", "all stages", 101, 100),
        (
            moved("hbm_reads", "shared_expert_projection", 1),
            "hbm_bytes_equal_device",
            "shared_expert_projection",
            576,
            512,
        ),
        (
            other("hbm_bytes_read", per_stage({"shared_expert_projection": 512, "other": 64})),
            "hbm_bytes_equal_device",
            "other",
            0,
            64,
        ),
        (
            other("hbm_bytes_written", per_stage({"expert_projection": 128})),
            "hbm_bytes_equal_device",
            "expert_projection",
            64,
            128,
        ),
        (
            other("hbm_bytes_written", per_stage({"expert_bias": 64})),
            "hbm_bytes_equal_device",
            "expert_projection",
            64,
            0,
        ),
        (
            other("pair_stats", {3: {"expert_projection": pair_counts(11, 0, 0, 0)}}),
            "pairs_within_stage",
            "expert_projection",
            11,
            10,
        ),
        (
            other("pair_stats", {3: {"gather": pair_counts(0, 0, 1, 0)}}),
            "pairs_within_stage",
            "gather",
            1,
            0,
        ),
        (
            other("pair_stats", {3: {"expert_projection": pair_counts(0, 0, 0, 0, matrix=46)}}),
            "pairs_within_stage",
            "expert_projection",
            46 * 1500,
            45 * 1500,
        ),
    ],
)
def test_a_violated_identity_is_named_with_both_numbers_and_the_stage(
    change: Callable[[dict[str, Any]], None],
    invariant: str,
    stage: str,
    found: int,
    expected: int,
) -> None:
    run = copy.deepcopy(arguments())
    change(run)
    with pytest.raises(ProfileInvariantError) as caught:
        build_profile(**run)
    error = caught.value
    assert (error.invariant, error.stage) == (invariant, stage)
    assert (error.found, error.expected) == (found, expected)
    for part in (invariant, stage, str(found), str(expected)):
        assert part in str(error)


def test_what_is_at_its_limit_is_no_violation() -> None:
    run = copy.deepcopy(arguments(overlap_cycles=100))
    moved("busy_hbm", "gather", 70)(run)
    moved("multipliers", "gather", 60)(run)
    assert build_profile(**run)["dispatch"]["stages"]["gather"]["busy_cycles"]["hbm"] == 70


def test_a_run_that_was_stopped_may_have_unfinished_instructions_but_none_from_nowhere() -> None:
    run = copy.deepcopy(arguments(done=False, pair_stats=None))
    moved("completed_hbm", "shared_expert_projection", -1)(run)
    profile = build_profile(**run)
    assert profile["total_instructions_executed"] == 19
    stage = profile["dispatch"]["stages"]["shared_expert_projection"]
    assert (stage["dispatched"], stage["completed"]) == (5, 4)
    moved("completed_vector", "gather", 1)(run)
    with pytest.raises(ProfileInvariantError, match="completed_within_dispatched: gather: 1 comp"):
        build_profile(**run)


@pytest.mark.parametrize("issue", ["overlap", "serial"])
def test_the_machine_keeps_the_identities(program: Callable[..., Any], issue: str) -> None:
    sim = program(
        """
        S_ADDI_INT gp1, gp0, 8
        ; @stage=shared_expert_projection
        C_SET_SCALE_REG gp1
        H_PREFETCH_M gp0, gp0, a0, 0
        H_PREFETCH_V gp0, gp0, a0, 0, 0
        M_MM gp0, gp0, gp0
        M_MM_WO gp1, gp0, 0
        ; @stage=router_topk
        V_ADD_VV gp1, gp1, gp1, 0
        ; @stage=non_moe
        H_STORE_V gp1, gp0, a0, 0, 0
        """,
        issue=issue,
    )
    result = sim.run()
    assert result.cause is Trap.DONE
    profile = build_profile(
        image=sim.image,
        config=PRESETS["tiny"],
        engine=result.engine,
        issue=issue,
        cycles=result.cycles,
        counters=result.counters,
        overlap_cycles=result.overlap_cycles,
        hbm_bytes_read=sim.hbm.bytes_read,
        hbm_bytes_written=sim.hbm.bytes_written,
        done=True,
        shared_vs_routed_note=NOTE,
    )
    check_profile(profile)
    assert profile["total_instructions_executed"] == 8
    assert profile["total_hbm_bytes_read"] > 0
    assert profile["total_hbm_bytes_written"] > 0
    assert profile["stages"]["shared_expert_projection"]["wall_picos"] > 0
