"""What every command that runs a workload shares: its options, its errors, and the run itself."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler import CompileError
from isa.command import error_text
from isa.config import PRESETS, ConfigError
from isa.image import ImageError
from sim.engine import Engine
from sim.engines import ENGINES, CompilerError
from sim.hbm import HbmRangeError
from sim.lockstep import Lockstep, LockstepError
from sim.mismatch import Comparison
from sim.observers import Observer, TagError
from sim.profile import ProfileError, report_console
from sim.result import RunResult
from sim.simulation import DEFAULT_MAX_CYCLES, Simulation
from testbench.artefacts import MISMATCH_FILES, Artefacts
from testbench.reference.data import SaturatedGate
from testbench.report import print_report, summary
from testbench.workload import Workload
from waveforms.selection import UNITS
from waveforms.tail import record_tail
from waveforms.timeline import Timeline
from waveforms.vcd import VcdWriter

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_INTERRUPT = 0, 1, 2, 130
EXIT_CODES = (
    "Exit code: 0 every bit agrees and every stage is accounted for; 1 it does not; 2 the request "
    "itself cannot be run. The build directory holds the listing, program image, HBM image, "
    "profile and arrays."
)


class RequestError(Exception):
    """An option that this run cannot fulfil."""


def cycle_window(text: str) -> tuple[int, int | None]:
    """The cycles `A:B`, B exclusive and optional."""
    first, _, stop = text.partition(":")
    try:
        return int(first), int(stop) if stop else None
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write A:B in cycles, as 1000:2000") from None


def add_run_options(
    p: argparse.ArgumentParser, build_dir: str, *, kinds_of_data: bool = True
) -> None:
    """Configuration, data, engine, waveforms and output; `build_dir` is the default directory.

    Without `kinds_of_data` there is no --data: nothing of the workload goes through MX.
    """
    p.add_argument(
        "--config",
        default="default",
        metavar="NAME|FILE",
        help=f"{', '.join(PRESETS)}, or a TOML file (default: default, MLEN 64, BLEN 4)",
    )
    if kinds_of_data:
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
        help="compare every instruction's effects with the architectural machine as they happen; "
        "on a difference the run is made again, and its last cycles are written to mismatch.vcd in "
        "the build directory",
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
        help=f"record these units only: {', '.join(UNITS)}",
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
        default=Path(build_dir),
        metavar="DIR",
        help=f"where the artefacts go (default: {build_dir})",
    )
    p.add_argument(
        "--json", action="store_true", help="print one JSON document instead of the table"
    )


def exit_code(command: Callable[[], int]) -> int:
    """What `command` returns; a known error goes to stderr, and 1 or 2 is returned."""
    try:
        return command()
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
        print(f"error: {error_text(error)}", file=sys.stderr)
        return EXIT_FAIL if isinstance(error, SaturatedGate) else EXIT_USAGE
    except (TagError, ProfileError, LockstepError) as error:
        print(f"FAIL: {error}", file=sys.stderr)
        return EXIT_FAIL
    except KeyboardInterrupt:
        print("interrupted; files written so far are complete", file=sys.stderr)
        return EXIT_INTERRUPT


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A workload that has run: how it ended, what was compared, and what it left behind."""

    case: Workload
    result: RunResult
    comparisons: list[Comparison]
    problems: list[str]
    profile: dict[str, Any]
    report: dict[str, Any]
    artefacts: Artefacts

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.report["verdict"] == "PASS"


def execute(
    case: Workload,
    args: argparse.Namespace,
    *,
    directory: Path | None = None,
    engine: str | Engine | None = None,
) -> Finished:
    """Simulate and compare, by the options of `add_run_options`; artefacts are written.

    `directory` and `engine` replace those of the options, for several workloads in one command.
    """
    artefacts = Artefacts(directory or args.build_dir)
    hbm = case.hbm()
    artefacts.write_program(case.image, hbm)
    started = time.perf_counter()
    simulation = Simulation(
        case.config, case.image, hbm, engine=engine or args.engine, issue=args.issue
    )
    case.load(simulation)
    try:
        result = simulation.run(
            max_cycles=args.max_cycles,
            observers=_observers(args, simulation),
            progress=not args.json,
        )
    except LockstepError as error:
        _record_mismatch(case, simulation, error.cycle, artefacts)
        raise
    comparisons = case.check(simulation) if result.ok else []
    problems = case.check_stages(result) if result.ok else []
    profile = artefacts.write_results(case, simulation, result, comparisons)
    seconds = time.perf_counter() - started
    report = summary(case, simulation, result, comparisons, problems, profile, seconds)
    artefacts.write_report(report)
    return Finished(
        case=case,
        result=result,
        comparisons=comparisons,
        problems=problems,
        profile=profile,
        report=report,
        artefacts=artefacts,
    )


def _record_mismatch(case: Workload, failed: Simulation, cycle: int, artefacts: Artefacts) -> None:
    """The run again on the same engine, with waves around `cycle`."""
    path = artefacts.directory / MISMATCH_FILES[0]
    again = Simulation(
        case.config, case.image, case.hbm(), engine=failed.engine, issue=failed.issue
    )
    case.load(again)
    try:
        cycles = record_tail(path, again, cycle)
    except KeyError as error:
        print(f"no waves of the mismatch: {error.args[0]}", file=sys.stderr)
    else:
        print(f"waves of cycles {cycles.start} to {cycles.stop - 1}: {path}", file=sys.stderr)


def run_workload(
    case: Workload,
    args: argparse.Namespace,
    extra: Callable[[dict[str, Any]], list[str]] = lambda _: [],
) -> int:
    """Simulate, compare, report, by the options of `add_run_options`; the exit code.

    `extra` makes further lines for a person from the profile.
    """
    done = execute(case, args)
    if args.json:
        print(json.dumps(done.report, indent=2))
    else:
        print_report(
            report_console(),
            case,
            done.result,
            done.comparisons,
            done.problems,
            done.profile,
            done.report,
            done.artefacts,
            extra(done.profile),
        )
    return EXIT_PASS if done.passed else EXIT_FAIL


def _observers(args: argparse.Namespace, simulation: Simulation) -> list[Observer]:
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
    return observers
