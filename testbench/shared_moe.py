"""Runs a shared expert on the RTL, cycle by cycle, and compares every bit with the reference.

python -m testbench.shared_moe                      # DeepSeek form, default configuration
python -m testbench.shared_moe --arch qwen2 --rows 3 --config tiny --vcd waves.vcd
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from compiler import ARCHITECTURES, CompileError
from isa.config import PRESETS, ConfigError, load_config
from isa.image import ImageError
from sim.engines import ENGINES, CompilerError
from sim.hbm import HbmRangeError
from sim.lockstep import Lockstep, LockstepError
from sim.observers import Observer, TagError
from sim.profile import ProfileError, report_console
from sim.simulation import DEFAULT_MAX_CYCLES, Simulation
from testbench.artefacts import Artefacts
from testbench.reference.data import SaturatedGate
from testbench.report import print_report, summary
from testbench.shared_case import build_case, spec_of
from waveforms.timeline import Timeline
from waveforms.vcd import VcdWriter

EXIT_PASS, EXIT_FAIL, EXIT_USAGE = 0, 1, 2


class RequestError(Exception):
    """An option that this run cannot fulfil."""


def cycle_window(text: str) -> tuple[int, int | None]:
    """The cycles `A:B`, B exclusive and optional."""
    first, _, stop = text.partition(":")
    try:
        return int(first), int(stop) if stop else None
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write A:B in cycles, as 1000:2000") from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.shared_moe",
        description="Compile a mixture-of-experts shared expert, run it cycle by cycle on the "
        "PLENA datapath, compare "
        "the result bit for bit with the reference, and show where the cycles went.",
        epilog="Exit code: 0 every bit agrees and every stage is accounted for; 1 it does not; 2 "
        "the request itself "
        "cannot be run. The build directory holds the listing, program image, HBM image, profile "
        "and arrays.",
    )
    p.add_argument(
        "--arch",
        default="deepseek",
        help=f"model family: {', '.join(ARCHITECTURES)} (default: deepseek); "
        "qwen2 is the form with a sigmoid gate per token",
    )
    p.add_argument(
        "--n-shared",
        type=int,
        metavar="N",
        help="shared experts fused into one (default: the family's)",
    )
    p.add_argument(
        "--hidden", type=int, metavar="H", help="hidden size, a multiple of MLEN (default: MLEN)"
    )
    p.add_argument(
        "--intermediate",
        type=int,
        metavar="I",
        help="width of one shared expert, a multiple of MLEN (default: MLEN)",
    )
    p.add_argument("--rows", type=int, default=8, metavar="T", help="tokens (default: 8)")
    p.add_argument(
        "--with-routed-accumulator",
        action="store_true",
        help="add to a preloaded sum over routed experts, instead of to zeros",
    )
    p.add_argument(
        "--config",
        default="default",
        metavar="NAME|FILE",
        help=f"{', '.join(PRESETS)}, or a TOML file (default: default, MLEN 64, BLEN 4)",
    )
    p.add_argument(
        "--data",
        choices=("exact", "random"),
        default="exact",
        help="exact: MX storage loses nothing; random: general data through the MX conversion",
    )
    p.add_argument("--seed", type=int, default=0, help="of the data (default: 0)")
    p.add_argument(
        "--issue",
        choices=("overlap", "serial"),
        help="issue policy (default: the configuration's, overlap in every preset)",
    )
    p.add_argument(
        "--engine",
        choices=("auto", *ENGINES),
        default="auto",
        help="simulation engine (default: auto)",
    )
    p.add_argument(
        "--max-cycles", type=int, default=DEFAULT_MAX_CYCLES, metavar="N", help="watchdog limit"
    )
    p.add_argument(
        "--lockstep",
        action="store_true",
        help="compare every instruction's effects with the architectural machine as they happen",
    )
    p.add_argument(
        "--vcd",
        type=Path,
        metavar="FILE",
        help="write waveforms, with GTKWave and Surfer files of the same name beside them",
    )
    p.add_argument(
        "--vcd-window",
        type=cycle_window,
        metavar="A:B",
        help="record cycles A to B-1 only; B may be left out",
    )
    p.add_argument(
        "--vcd-units",
        type=lambda text: text.split(","),
        metavar="NAME,...",
        help="record these units only: control, scalar, vector, matrix, hbm",
    )
    p.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="write instruction lifetimes as Chrome-trace JSON for Perfetto (1 cycle = 1 us)",
    )
    p.add_argument(
        "--build-dir",
        type=Path,
        metavar="DIR",
        help="where the artefacts go (default: build/shared_moe)",
    )
    p.add_argument(
        "--json", action="store_true", help="print one JSON document instead of the table"
    )
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one workload; returns the exit code."""
    args = parser().parse_args(arguments)
    try:
        return run(args)
    except (
        RequestError,
        CompilerError,
        ConfigError,
        CompileError,
        ImageError,
        SaturatedGate,
        HbmRangeError,
        OSError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAIL if isinstance(error, SaturatedGate) else EXIT_USAGE
    except (TagError, ProfileError, LockstepError) as error:
        print(f"FAIL: {error}", file=sys.stderr)
        return EXIT_FAIL
    except KeyboardInterrupt:
        print("interrupted; files written so far are complete", file=sys.stderr)
        return 130


def run(args: argparse.Namespace) -> int:
    """Compile, simulate, compare, report."""
    config = load_config(args.config)
    spec = spec_of(
        args.arch,
        hidden=config.MLEN if args.hidden is None else args.hidden,
        intermediate=config.MLEN if args.intermediate is None else args.intermediate,
        n_shared=args.n_shared,
    )
    case = build_case(
        config,
        spec,
        rows=args.rows,
        kind=args.data,
        seed=args.seed,
        routed_accumulator=args.with_routed_accumulator,
    )
    artefacts = Artefacts(args.build_dir or Path("build/shared_moe"))
    hbm = case.hbm()
    artefacts.write_program(case.program.image, hbm)

    started = time.perf_counter()
    simulation = Simulation(config, case.program.image, hbm, engine=args.engine, issue=args.issue)
    case.load(simulation)
    observers: list[Observer] = []
    if args.lockstep:
        observers.append(Lockstep())
    if args.vcd is not None:
        window, units = args.vcd_window, args.vcd_units
        try:
            observers.append(VcdWriter(args.vcd, simulation, window=window, units=units))
        except ValueError as error:
            raise RequestError(f"--vcd: {error}") from error
    if args.timeline is not None:
        observers.append(Timeline(args.timeline, simulation))
    result = simulation.run(max_cycles=args.max_cycles, observers=observers, progress=not args.json)
    comparisons = case.check(simulation) if result.ok else []
    problems = case.check_stages(result) if result.ok else []
    profile = artefacts.write_results(case, simulation, result, comparisons)
    report = summary(
        case, simulation, result, comparisons, problems, profile, time.perf_counter() - started
    )
    artefacts.write_report(report)
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print_report(
            report_console(), case, result, comparisons, problems, profile, report, artefacts
        )
    return EXIT_PASS if report["verdict"] == "PASS" else EXIT_FAIL


if __name__ == "__main__":
    sys.exit(main())
