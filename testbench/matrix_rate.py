"""Measures the matrix unit on the whole machine: one tile, a run of independent tiles, and a real
projection.

python -m testbench.matrix_rate --config default
"""

import argparse
import json
import sys
from collections.abc import Sequence

from rich.table import Table

from isa.assembler import assemble
from isa.command import leave_with
from isa.config import PRESETS, ConfigError, PlenaConfig, load_config
from isa.opcodes import Op
from isa.stages import Stage
from sim.engine import Engine
from sim.engines import ENGINES, CompilerError, make_engine
from sim.observers import Completed, Dispatched, Observer
from sim.profile import report_console
from sim.simulation import Simulation
from testbench.shared_case import build_case, spec_of

TILES = 16


class ProductTimes(Observer):
    """Cycles of dispatch and completion of every M_MM, in program order."""

    def __init__(self) -> None:
        self.dispatched_at: list[int] = []
        self.completed_at: list[int] = []

    def dispatched(self, event: Dispatched) -> None:
        """Notes an M_MM's start."""
        if event.word & 0x3F == Op.M_MM:
            self.dispatched_at.append(event.cycle)

    def completed(self, event: Completed) -> None:
        """Notes its end; the matrix unit completes in order."""
        if event.port == "matrix_product":
            self.completed_at.append(event.cycle)


def _run(engine: Engine, source: str) -> ProductTimes:
    times = ProductTimes()
    image = assemble(source, source_name="matrix_rate", config=engine.config)
    result = Simulation(engine.config, image, engine=engine).run(observers=[times])
    if not result.ok:
        raise RuntimeError(result.report(image))
    return times


def isolated_latency(engine: Engine) -> int:
    """Cycles of one M_MM alone, from its dispatch to its completion, both included."""
    times = _run(engine, "M_MM 0, gp0, gp0\n")
    return times.completed_at[0] - times.dispatched_at[0] + 1


def sustained_cycles(engine: Engine) -> float:
    """Cycles per tile of `TILES` independent M_MM, each with its M_MM_WO to rows that nobody
    reads."""
    target = engine.config.MLEN * engine.config.MLEN // 2
    body = "".join(
        f"M_MM 0, gp0, gp0\nM_MM_WO gp1, gp0, {i % 2 * engine.config.BLEN}\n" for i in range(TILES)
    )
    times = _run(engine, f"S_ADDI_INT gp1, gp0, {target}\n{body}")
    return (times.completed_at[-1] - times.completed_at[0]) / (TILES - 1)


def projection_utilisation(engine: Engine, rows: int) -> tuple[float, int]:
    """Share of the projection stages' cycles with the multipliers busy, and those cycles, for
    `rows` tokens."""
    config = engine.config
    spec = spec_of("llama4", hidden=config.MLEN, intermediate=config.MLEN)
    case = build_case(config, spec, rows=rows)
    simulation = Simulation(config, case.program.image, case.hbm(), engine=engine)
    case.load(simulation)
    result = simulation.run(progress=True)
    if not result.ok or not all(c.ok for c in case.check(simulation)):
        raise RuntimeError(
            "the projection's result is wrong; run python -m testbench.shared_moe for the details"
        )
    stage = Stage.SHARED_EXPERT_PROJECTION
    cycles = result.counters["wall"][stage]
    return result.counters["multipliers"][stage] / cycles, cycles


def measure(config: PlenaConfig, engine_name: str, rows: int) -> dict[str, object]:
    """Every figure of this command, with the bound that it must keep."""
    engine = make_engine(engine_name, config)
    share, cycles = projection_utilisation(engine, rows)
    return {
        "config": config.name,
        "config_digest": config.digest,
        "engine": engine.name,
        "isolated_cycles": isolated_latency(engine),
        "isolated_bound": 3 * config.BLEN + 11,
        "sustained_cycles": sustained_cycles(engine),
        "sustained_bound": config.BLEN + 2,
        "rows": rows,
        "projection_cycles": cycles,
        "multiplier_busy": share,
        # Stated for 64 tokens at MLEN 64; fewer do not amortise the first load.
        "multiplier_busy_bound": 0.6 if rows >= 64 and config.MLEN >= 64 else None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the figures; 1 when one misses its bound."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.matrix_rate",
        description="Measure cycles per matrix tile and the use of the multipliers, in RTL.",
        epilog="Exit code: 0 all bounds hold; 1 one does not; 2 the request cannot be run.",
    )
    p.add_argument(
        "--config",
        default="default",
        help=f"{', '.join(PRESETS)} or a TOML file (default: default)",
    )
    p.add_argument("--engine", choices=("auto", *ENGINES), default="auto")
    p.add_argument("--rows", type=int, help="tokens of the projection (default: MLEN)")
    p.add_argument("--json", action="store_true", help="print JSON instead of the table")
    args = p.parse_args(arguments)
    try:
        config = load_config(args.config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        figures = measure(config, args.engine, args.rows or config.MLEN)
    except CompilerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows = [
        ("one M_MM alone, dispatch to completion", "isolated_cycles", "at most", "cycles"),
        ("independent M_MM + M_MM_WO, per tile", "sustained_cycles", "at most", "cycles"),
        (
            f"multipliers busy in the projections, {figures['rows']} rows",
            "multiplier_busy",
            "at least",
            "",
        ),
    ]
    table = Table(
        title=f"matrix unit, configuration {config.name}, engine {figures['engine']}",
        title_justify="left",
    )
    for head in ("figure", "measured", "bound", ""):
        table.add_column(head)
    good = True
    for label, key, sense, unit in rows:
        value, bound = figures[key], figures[key.replace("_cycles", "") + "_bound"]
        if bound is None:
            table.add_row(label, f"{value:.4g} {unit}", "none at this size", "")
            continue
        holds = value <= bound if sense == "at most" else value >= bound  # type: ignore[operator]
        good = good and holds
        table.add_row(
            label, f"{value:.4g} {unit}", f"{sense} {bound:g}", "holds" if holds else "MISSED"
        )
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        report_console().print(table)
    return 0 if good else 1


if __name__ == "__main__":
    leave_with(main)
