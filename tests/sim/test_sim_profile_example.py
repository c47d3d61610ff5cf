"""A run that can be checked by hand; the other profile tests start from its profile."""

import copy
from typing import Any

from isa.assembler import assemble
from isa.config import PRESETS
from isa.opcodes import Unit
from isa.stages import Stage
from rtl.profile import COUNTERS
from sim.profile import build_profile

#: 1500 ps, so that picoseconds and cycles cannot be mixed up.
CONFIG = PRESETS["tiny"].replace(CLOCK_PERIOD_PS=1500)
IMAGE = assemble(
    """\
; @stage=router_topk
S_ADDI_INT gp1, gp0, 1     ; Router Token 3
; @stage=expert_projection pair=2
S_ADDI_INT gp1, gp0, 2
S_ADDI_INT gp1, gp0, 3
; @stage=shared_expert_projection
S_ADDI_INT gp1, gp0, 4
; @stage=non_moe
S_ADDI_INT gp1, gp0, 5
S_ADDI_INT gp1, gp0, 6
""",
    config=CONFIG,
)
NOTE = "the ratio shows the routed lowering [pair-major] too"

#: Every count that is not 0. 20 dispatches and 80 stalls in 100 cycles.
COUNTS: dict[str, dict[str, int]] = {
    "wall": {
        "router_topk": 20,
        "expert_projection": 50,
        "shared_expert_projection": 25,
        "non_moe": 5,
    },
    "dispatched": {
        "router_topk": 4,
        "expert_projection": 10,
        "shared_expert_projection": 5,
        "non_moe": 1,
    },
    "completed_immediate": {"router_topk": 4, "non_moe": 1},
    "completed_matrix_product": {"expert_projection": 10},
    "completed_matrix_write": {"shared_expert_projection": 2},
    "completed_hbm": {"shared_expert_projection": 3},
    "busy_control": {"non_moe": 1},
    "busy_scalar": {"router_topk": 4},
    "busy_matrix": {"expert_projection": 45, "shared_expert_projection": 2},
    "busy_vector": {"router_topk": 6},
    "busy_topk": {"router_topk": 7},
    "busy_hbm": {"shared_expert_projection": 30},
    "multipliers": {"expert_projection": 40},
    "stall_no_unit": {"expert_projection": 10},
    "stall_hazard": {"expert_projection": 25},
    "stall_memory": {"shared_expert_projection": 30},
    "stall_fetch": {"router_topk": 3},
    "stall_drain": {"non_moe": 12},
    "hbm_reads": {"shared_expert_projection": 8},
    "hbm_writes": {"expert_projection": 1},
}


def per_stage(counts: dict[str, int]) -> list[int]:
    return [counts.get(stage.label, 0) for stage in Stage]


def arguments(**changes: Any) -> dict[str, Any]:
    """Arguments of `build_profile` for the example run, the caller's to change."""
    return {
        "image": IMAGE,
        "config": CONFIG,
        "engine": "pysim",
        "issue": "overlap",
        "cycles": 100,
        "counters": {name: per_stage(COUNTS.get(name, {})) for name in COUNTERS},
        "overlap_cycles": 9,
        "hbm_bytes_read": per_stage({"shared_expert_projection": 8 * 64}),
        "hbm_bytes_written": per_stage({"expert_projection": 64}),
        "done": True,
        "shared_vs_routed_note": NOTE,
        "pair_stats": {
            10: {"expert_projection": pair_counts(4, 20, 0, 0)},
            2: {"expert_projection": pair_counts(5, 30, 0, 64, matrix=21)},
        },
        **changes,
    }


def pair_counts(instructions: int, cycles: int, read: int, written: int, **busy: int) -> Any:
    return {
        "instructions": instructions,
        "wall_cycles": cycles,
        "hbm_bytes_read": read,
        "hbm_bytes_written": written,
        "busy_cycles": {unit.name.lower(): 0 for unit in Unit} | busy,
    }


def example(**changes: Any) -> dict[str, Any]:
    return build_profile(**arguments(**changes))


def scaled(factor: int) -> dict[str, Any]:
    """Arguments for a run in which everything took `factor` times as long."""
    found = copy.deepcopy(arguments(pair_stats=None))
    for name in ("hbm_bytes_read", "hbm_bytes_written"):
        found[name] = [value * factor for value in found[name]]
    found["counters"] = {n: [v * factor for v in vs] for n, vs in found["counters"].items()}
    return {**found, "cycles": 100 * factor, "overlap_cycles": 9 * factor}


def test_every_count_of_the_example_is_a_counter() -> None:
    assert COUNTS.keys() <= COUNTERS.keys()
    assert example(pair_stats=None)["pairs"] == {}
