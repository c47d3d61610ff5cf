"""Measures the simulator: a fixed program per configuration, each in a process of its own.

python -m testbench.bench --config tiny --config default
python -m testbench.bench --engines
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from isa.command import leave_with
from isa.config import PRESETS, ConfigError, load_config
from sim.engines import ENGINES, CompilerError, make_engine
from sim.profile import report_console
from sim.simulation import Simulation
from testbench.bench.compare import compare
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


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m testbench.bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"""\
Measure simulated cycles per second, elaboration time and peak memory of a fixed program, a
DeepSeek shared expert on {ROWS} tokens with hidden = intermediate = MLEN.

With --engines, measure every engine side by side instead, at one configuration: from nothing (with
an empty cache), cached start, an idle machine, busy matrix and vector units, the shared expert, and
for fast engines a long one (8 MLEN x 8 MLEN, MLEN rows) with the host's share of the time. Results
must be exact and cycle counts equal.""",
        epilog="""\
examples:
  python -m testbench.bench --config tiny --config default
  python -m testbench.bench --engines --config default --output build/bench
  python -m testbench.bench --engines --engine compiled --engine verilator --seconds 5

Times depend on the machine and on what else it does: compare figures of one run only. With
--output, engines.json and engines.png are written again after each engine, so that an interrupted
run leaves what it has.

Exit code: 0 all exact and equal; 1 not (or a bound missed, with --must-hold); 2 it cannot be run;
130 interrupted.""",
    )
    p.add_argument(
        "--config",
        action="append",
        help=f"may be repeated; default: {', '.join(PRESETS)} (with --engines: default)",
    )
    p.add_argument(
        "--engine",
        action="append",
        choices=("auto", *ENGINES),
        help="default: auto; with --engines: all of them, and it may be repeated",
    )
    p.add_argument("--rows", type=int, default=ROWS, help="tokens; not with --engines")
    p.add_argument("--json", action="store_true", help="print JSON instead of the table")
    several = p.add_argument_group("with --engines")
    several.add_argument("--engines", action="store_true", help="compare engines")
    several.add_argument(
        "--seconds", type=float, default=3.0, help="how long each speed is measured (default: 3)"
    )
    several.add_argument("--no-long", action="store_true", help="without the long run")
    several.add_argument(
        "--output", type=Path, metavar="DIR", help="folder for engines.json and engines.png"
    )
    several.add_argument(
        "--must-hold", action="store_true", help="a bound that is missed makes the exit code 1"
    )
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table of the measurements; see the exit codes in --help."""
    args = _parser().parse_args(arguments)
    names = args.config or (["default"] if args.engines else list(PRESETS))
    try:
        configs = [load_config(name) for name in names]
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.engines:
        chosen = args.engine or list(ENGINES)
        if len(configs) > 1 or "auto" in chosen or args.seconds <= 0:
            print(
                "error: --engines takes one --config, engines by name, and --seconds above 0",
                file=sys.stderr,
            )
            return 2
        return compare(
            configs[0],
            chosen,
            seconds=args.seconds,
            long=not args.no_long,
            output=args.output,
            as_json=args.json,
            must_hold=args.must_hold,
        )
    if args.engine and len(args.engine) > 1:
        print("error: several engines need --engines", file=sys.stderr)
        return 2
    return _single(names, args.engine[0] if args.engine else "auto", args.rows, args.json)


def _single(names: Sequence[str], engine: str, rows: int, as_json: bool) -> int:
    # A process each, so that peak memory is that of one configuration.
    figures = []
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            try:
                figures.append(pool.apply(measure, (name, engine, rows)))
            except CompilerError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        table = Table(title=f"DeepSeek shared expert, {rows} tokens, hidden = intermediate = MLEN")
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
    leave_with(main)
