"""The end of a run, for people and for scripts."""

from typing import Any

from rich.console import Console

from sim.mismatch import Comparison
from sim.profile import coverage_warning, stage_table
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.artefacts import Artefacts
from testbench.workload import Workload


def summary(
    case: Workload,
    simulation: Simulation,
    result: RunResult,
    comparisons: list[Comparison],
    problems: list[str],
    profile: dict[str, Any],
    total_seconds: float,
) -> dict[str, Any]:
    """The report as one JSON document; `verdict` is PASS only when every check passed."""
    passed = result.ok and bool(comparisons) and all(c.ok for c in comparisons) and not problems
    stages = case.projection_stages
    projection_cycles = sum(result.counters["wall"][stage] for stage in stages)
    multiplier_cycles = sum(result.counters["multipliers"][stage] for stage in stages)
    return {
        "verdict": "PASS" if passed else "FAIL",
        **case.facts,
        "config": simulation.config.name,
        "config_digest": simulation.config.digest,
        "issue": result.issue,
        "engine": result.engine,
        "engine_reason": simulation.engine.reason,
        "cause": result.cause.name,
        "cycles": result.cycles,
        "words": len(simulation.image.words),
        "instructions": sum(result.counters["dispatched"]),
        "multiplier_busy_in_projections": multiplier_cycles / max(1, projection_cycles),
        "overlap_cycles": result.overlap_cycles,
        "hbm_bytes_read": simulation.hbm.total_read,
        "hbm_bytes_written": simulation.hbm.total_written,
        "elaboration_seconds": round(simulation.engine.elaboration_seconds, 3),
        "simulation_seconds": round(result.wall_seconds, 3),
        "total_seconds": round(total_seconds, 3),
        "cycles_per_second": round(result.cycles / max(result.wall_seconds, 1e-9), 1),
        "comparisons": [
            {
                "name": c.name,
                "elements": c.elements,
                "different": c.different,
                "first": [
                    {
                        "row": m.row,
                        "column": m.column,
                        "got": f"0x{m.got:04X}",
                        "want": f"0x{m.want:04X}",
                        "writer": m.writer,
                    }
                    for m in c.first
                ],
            }
            for c in comparisons
        ],
        "problems": problems + ([] if result.ok else [result.report(simulation.image)]),
        "stages": profile["stages"],
    }


def print_report(
    console: Console,
    case: Workload,
    result: RunResult,
    comparisons: list[Comparison],
    problems: list[str],
    profile: dict[str, Any],
    report: dict[str, Any],
    artefacts: Artefacts,
    lines: list[str],
) -> None:
    """The table, the totals, further `lines`, and the verdict."""
    console.print(case.title)
    console.print(stage_table(profile))
    busy = report["multiplier_busy_in_projections"]
    multipliers = f"; multipliers busy in {busy:.1%} of the projection cycles"
    console.print(
        f"{report['cycles']:,} cycles, {report['instructions']:,} instructions "
        f"({report['words']:,} words), issue policy {report['issue']}; two or more units busy in "
        f"{report['overlap_cycles']:,} cycles{multipliers if case.projection_stages else ''}"
    )
    console.print(
        f"engine {report['engine']} ({report['engine_reason']}): elaborated in "
        f"{report['elaboration_seconds']:.1f} s, simulated in "
        f"{report['simulation_seconds']:.1f} s ({report['cycles_per_second']:,.0f} cycles/s), "
        f"{report['total_seconds']:.1f} s in all"
    )
    warning = coverage_warning(profile)
    for line in [*lines, *([] if warning is None else [warning])]:
        console.print(line, highlight=False)
    for comparison in comparisons:
        console.print(str(comparison), highlight=False)
    if not result.ok:
        console.print(result.report(case.image), highlight=False)
    for problem in problems:
        console.print(problem, highlight=False)
    console.print(f"artefacts in {artefacts.directory}")
    style = "bold green" if report["verdict"] == "PASS" else "bold red"
    console.print(report["verdict"], style=style)
