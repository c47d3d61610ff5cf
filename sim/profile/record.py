"""The stage profile of a run, schema version 5, from the hardware's counters."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from isa.config import ISSUE_POLICIES, PlenaConfig
from isa.image import VOCABULARY, ProgramImage
from isa.opcodes import Unit
from isa.stages import Stage
from sim.profile.accounting import (
    BUSY,
    COMPLETED,
    STALLS,
    Counters,
    check_run,
    check_shape,
    completed,
)
from sim.profile.amounts import PICOS_PER_SECOND, Amounts, cycles_of, proxies_of
from sim.profile.classification import classify
from sim.profile.errors import ProfileError
from sim.profile.pairs import PairStats, pair_amounts
from sim.profile.statuses import (
    ATTRIBUTION_POINT,
    CAVEAT,
    LOGICAL_BYTE_STATUS,
    PHYSICAL_BYTE_STATUS,
    RESOURCE_CYCLE_STATUS,
    SCHEMA_VERSION,
    TIME_UNIT_STATUS,
    accounting_status,
)


def build_profile(
    *,
    image: ProgramImage,
    config: PlenaConfig,
    engine: str,
    issue: str,
    cycles: int,
    counters: Counters,
    overlap_cycles: int,
    hbm_bytes_read: Sequence[int],
    hbm_bytes_written: Sequence[int],
    done: bool,
    shared_vs_routed_note: str,
    pair_stats: PairStats | None = None,
) -> dict[str, Any]:
    """The profile of one run, all identities checked.

    Args:
        image: the program, in our own vocabulary.
        config: of the machine that ran it.
        engine: the engine that ran, by name.
        issue: the issue policy that it ran under.
        cycles: of the run, counted apart from `counters`, so that they can be checked against it.
        counters: `counters[name][stage]` for every counter of `rtl.profile.COUNTERS`.
        overlap_cycles: in which two or more units were busy.
        hbm_bytes_read: per stage, by the HBM device itself.
        hbm_bytes_written: likewise.
        done: the program ran to its end, so that whatever was dispatched must have completed.
        shared_vs_routed_note: the caveat of the routed lowering that the program used.
        pair_stats: per routed pair and stage label, what its instructions cost
            (`sim.profile.pairs.pair_stats`); None leaves `pairs` empty.

    Raises:
        ProfileInvariantError: two counts that must agree do not (`sim.profile.accounting`), or the
            pairs of a stage have more of something than the stage (pairs_within_stage).
        ProfileError: an argument that cannot be: the message says which and why.
    """
    if image.vocabulary != VOCABULARY:
        raise ProfileError("image: its vocabulary is not ours; load it with ProgramImage.load")
    if issue not in ISSUE_POLICIES:
        raise ProfileError(f"issue = {issue!r}: must be one of {', '.join(ISSUE_POLICIES)}")
    if not shared_vs_routed_note.strip() or not engine:
        raise ProfileError("shared_vs_routed_note and engine must not be empty")
    check_shape(counters, hbm_bytes_read, hbm_bytes_written)
    check_run(
        counters,
        cycles=cycles,
        overlap_cycles=overlap_cycles,
        hbm_read=hbm_bytes_read,
        hbm_written=hbm_bytes_written,
        done=done,
    )
    period = config.CLOCK_PERIOD_PS
    finished = completed(counters)
    stages = {
        stage.label: Amounts(
            instructions=finished[stage],
            wall_picos=counters["wall"][stage] * period,
            hbm_read=hbm_bytes_read[stage],
            hbm_written=hbm_bytes_written[stage],
            proxies=proxies_of(
                {unit: counters[BUSY[unit.name.lower()]][stage] * period for unit in Unit}
            ),
        )
        for stage in Stage
    }
    instructions = {label: amounts.instructions for label, amounts in stages.items()}
    return assemble(
        stages=stages,
        pairs=pair_amounts(pair_stats or {}, stages, period),
        period_picos=period,
        simulation_picos=cycles * period,
        classification=classify(image, instructions, shared_vs_routed_note),
        dispatch={
            "attribution_point": ATTRIBUTION_POINT,
            "engine": engine,
            "config": {
                "name": config.name,
                "digest": config.digest,
                "fields": dataclasses.asdict(config),
            },
            "issue_policy": issue,
            "runs": 1,
            "total_overlap_cycles": overlap_cycles,
            "stages": {stage.label: _dispatch_of(counters, stage, finished) for stage in Stage},
        },
    )


def assemble(
    *,
    stages: Mapping[str, Amounts],
    pairs: Mapping[int, Mapping[str, Amounts]],
    period_picos: int,
    simulation_picos: int,
    classification: dict[str, Any],
    dispatch: dict[str, Any],
) -> dict[str, Any]:
    """The document, with every view and total made from the amounts; stages in vocabulary order."""
    whole = Amounts.total(stages.values())
    unprofiled = max(simulation_picos - whole.wall_picos, 0)
    return {
        "schema_version": SCHEMA_VERSION,
        "label_count": classification["label_count"],
        "total_instructions_executed": whole.instructions,
        "total_simulation_picos": simulation_picos,
        "total_simulation_cycles": cycles_of(simulation_picos, period_picos),
        "total_profiled_picos": whole.wall_picos,
        "total_profiled_cycles": cycles_of(whole.wall_picos, period_picos),
        "total_unprofiled_picos": unprofiled,
        "total_unprofiled_cycles": cycles_of(unprofiled, period_picos),
        "cycle_accounting_status": accounting_status(whole.wall_picos, simulation_picos),
        "period_picos": period_picos,
        "total_profiled_seconds": whole.wall_picos / PICOS_PER_SECOND,
        "total_hbm_bytes_read": whole.hbm_read,
        "total_hbm_bytes_written": whole.hbm_written,
        "total_resource_proxy_picos": whole.proxy_picos(),
        "total_resource_proxy_cycles": whole.proxy_cycles(period_picos),
        "logical_byte_status": LOGICAL_BYTE_STATUS,
        "physical_byte_status": PHYSICAL_BYTE_STATUS,
        "resource_cycle_status": RESOURCE_CYCLE_STATUS,
        "time_unit_status": TIME_UNIT_STATUS,
        "classification": classification,
        "stages": {s.label: stages[s.label].fields(whole, period_picos) for s in Stage},
        "pairs": {
            str(pair): _pair_fields(pairs[pair], whole, period_picos) for pair in sorted(pairs)
        },
        "dispatch": dispatch,
        "caveat": CAVEAT,
    }


def _pair_fields(parts: Mapping[str, Amounts], whole: Amounts, period: int) -> dict[str, Any]:
    inside = {s.label: parts[s.label].fields(whole, period) for s in Stage if s.label in parts}
    return {**Amounts.total(parts.values()).fields(whole, period), "stages": inside}


def _dispatch_of(counters: Counters, stage: Stage, finished: Sequence[int]) -> dict[str, Any]:
    return {
        "dispatched": counters["dispatched"][stage],
        "completed": finished[stage],
        "completed_by_port": {port: counters[name][stage] for port, name in COMPLETED.items()},
        "busy_cycles": {unit: counters[name][stage] for unit, name in BUSY.items()},
        "multiplier_cycles": counters["multipliers"][stage],
        "stall_cycles": {reason: counters[name][stage] for reason, name in STALLS.items()},
    }
