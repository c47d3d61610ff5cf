"""Measures the simulator: a fixed program per configuration, each in a process of its own.

python -m testbench.bench --config tiny --config default
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from isa.config import PRESETS, ConfigError, load_config
from sim.engines import ENGINES, CompilerError, make_engine
from sim.profile import report_console
from sim.simulation import Simulation
from testbench.shared_case import build_case, spec_of

ROWS = 8


def measure(config_name: str, engine_name: str, rows: int) -> dict[str, Any]:
    """Builds, runs and times a DeepSeek shared expert, hidden = intermediate = MLEN."""
    config = load_config(config_name)
    started = time.perf_counter()
    case = build_case(
        config, spec_of("deepseek", hidden=config.MLEN, intermediate=config.MLEN), rows=rows
    )
    compiled = time.perf_counter()
    engine = make_engine(engine_name, config)
    simulation = Simulation(config, case.program.image, case.hbm(), engine=engine)
    case.load(simulation)
    result = simulation.run()
    exact = result.ok and all(c.ok for c in case.check(simulation))
    return {
        "config": config.name,
        "engine": engine.name,
        "exact": exact,
        "cycles": result.cycles,
        "cycles_per_second": result.cycles / result.wall_seconds,
        "simulation_seconds": result.wall_seconds,
        "elaboration_seconds": engine.elaboration_seconds,
        "compile_and_reference_seconds": compiled - started,
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table of the measurements; 1 when a result was not exact."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.bench",
        description="Measure simulated cycles per second, elaboration time and peak memory of a "
        "fixed program, "
        f"a DeepSeek shared expert on {ROWS} tokens with hidden = intermediate = MLEN.",
        epilog="Times depend on the machine and on what else it does: compare figures of one run "
        "only.",
    )
    p.add_argument(
        "--config", action="append", help=f"may be repeated; default: {', '.join(PRESETS)}"
    )
    p.add_argument("--engine", choices=("auto", *ENGINES), default="auto")
    p.add_argument("--rows", type=int, default=ROWS)
    p.add_argument("--json", action="store_true", help="print JSON instead of the table")
    args = p.parse_args(arguments)
    names = args.config or list(PRESETS)
    try:
        for name in names:
            load_config(name)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # A process each, so that peak memory is that of one configuration.
    figures = []
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            try:
                figures.append(pool.apply(measure, (name, args.engine, args.rows)))
            except CompilerError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        table = Table(
            title=f"DeepSeek shared expert, {args.rows} tokens, hidden = intermediate = MLEN"
        )
        heads = (
            "config",
            "engine",
            "cycles",
            "cycles/s",
            "simulate s",
            "elaborate s",
            "compile + golden s",
            "peak MiB",
            "exact",
        )
        for head in heads:
            table.add_column(head, justify="left" if head in ("config", "engine") else "right")
        for f in figures:
            table.add_row(
                f["config"],
                f["engine"],
                f"{f['cycles']:,}",
                f"{f['cycles_per_second']:,.0f}",
                f"{f['simulation_seconds']:.1f}",
                f"{f['elaboration_seconds']:.1f}",
                f"{f['compile_and_reference_seconds']:.1f}",
                f"{f['peak_mebibytes']:.0f}",
                "yes" if f["exact"] else "NO",
            )
        report_console().print(table)
    return 0 if all(f["exact"] for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
