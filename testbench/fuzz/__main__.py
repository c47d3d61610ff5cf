"""Runs random programs in lock step until a limit or a difference.

python -m testbench.fuzz --minutes 10 --config small
python -m testbench.fuzz --generator crowded --count 200
python -m testbench.fuzz --engine compiled --instructions 1000000 --record tiny.json
python -m testbench.fuzz --engine compiled --verify tiny.json
python -m testbench.fuzz --engine compiled --against pysim --count 1000
python -m testbench.fuzz --replay build/fuzz/tiny-plain-1234
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from isa.command import error_text, leave_with
from isa.config import ISSUE_POLICIES, PRESETS, ConfigError, load_config
from sim.engine import Engine
from sim.engines import ENGINES, CompilerError, make_engine
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.record import Record, RecordError, sources_digest
from testbench.fuzz.run import Check, on_both, under
from testbench.fuzz.session import (
    ALL_GENERATORS,
    GENERATORS,
    Failure,
    Limits,
    generator_of,
    run_session,
    save_failure,
    verify,
)

EXIT_PASS, EXIT_FAIL, EXIT_USAGE = 0, 1, 2
DEFAULT_COUNT = 20


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.fuzz",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Generate random programs, dense in hazards, and run each on the hardware in\n"
        "lock step with the architectural machine, under both issue policies, which must leave\n"
        "the same state. The first that differs is shrunk and saved.",
        epilog="Generators: plain makes patterns dense in hazards; crowded puts transfers before\n"
        "them that the memory answers late, so that the patterns meet in every slot of the\n"
        "scoreboard, and changes the stage as it goes; all takes plain for even seeds and\n"
        "crowded for odd ones. What a generator makes of a seed never changes.\n\n"
        "--record keeps what ran, and goes on behind it when the file exists; --verify runs it\n"
        "again, with the seeds, policies and generator of the record. Limits can be combined.\n\n"
        "Exit code: 0 no difference; 1 a difference (the case is saved); 2 wrong usage.",
    )
    p.add_argument("--seed", type=int, default=0, help="of the first program (default: 0)")
    p.add_argument(
        "--count", type=int, metavar="N", help=f"programs (default: {DEFAULT_COUNT} without limits)"
    )
    p.add_argument("--instructions", type=int, metavar="N", help="stop after so many in all")
    p.add_argument("--minutes", type=float, metavar="M", help="stop after this wall time")
    p.add_argument(
        "--generator",
        choices=(*GENERATORS, ALL_GENERATORS),
        default=ALL_GENERATORS,
        help="what makes the programs (default: all)",
    )
    p.add_argument("--config", default="tiny", help=f"{', '.join(PRESETS)}, or a TOML file")
    p.add_argument("--issue", choices=(*ISSUE_POLICIES, "both"), default="both")
    p.add_argument("--engine", choices=("auto", *ENGINES), default="auto")
    p.add_argument(
        "--against",
        choices=tuple(ENGINES),
        help="run each program on this engine too: every event in the same cycle, counters, halt "
        "records and final state must be equal",
    )
    p.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write a JSON record of what ran; go on behind it if it exists",
    )
    p.add_argument(
        "--verify",
        type=Path,
        metavar="FILE",
        help="run a record's programs again (the first --count of them) and compare the digests",
    )
    p.add_argument("--replay", type=Path, metavar="DIR", help="run a saved case again")
    p.add_argument("--no-shrink", action="store_true", help="save a failing case as it is")
    p.add_argument(
        "--build-dir", type=Path, default=Path("build/fuzz"), metavar="DIR", help="for saved cases"
    )
    return p


def _check(args: argparse.Namespace, engine: Engine, policies: Sequence[str]) -> Check:
    if args.against is None:
        return under(policies, engine)
    return on_both((engine, make_engine(args.against, engine.config)), policies)


def _replay(args: argparse.Namespace, policies: Sequence[str]) -> int:
    case = FuzzCase.load(args.replay)
    outcome = _check(args, make_engine(args.engine, case.config), policies)(case)[-1]
    print(outcome.failure or f"no difference; {outcome.cause.name}")
    return EXIT_FAIL if outcome.failure else EXIT_PASS


def _report(args: argparse.Namespace, failure: Failure, check: Check, record: Record) -> None:
    """Save and print a failing case."""
    generator = generator_of(record.generator, failure.seed)
    folder = args.build_dir / f"{record.config}-{generator}-{failure.seed}"
    case = save_failure(failure, check, folder, small=not args.no_shrink)
    failed = f"seed {failure.seed}, generator {generator}"
    print(f"{failed}: {failure.outcome.failure}\n", file=sys.stderr)
    print(
        f"{case.source()}\nsaved; run it again with\n  python -m testbench.fuzz --replay {folder}"
    )


def _session(args: argparse.Namespace, policies: Sequence[str]) -> int:
    kept = None if args.verify is None else Record.load(args.verify)
    config = load_config(args.config if kept is None else kept.config)
    if kept is not None:
        policies = kept.policies
        now = config.digest, sources_digest()
        if (kept.config_digest, kept.sources) != now:
            text = "sources or configuration have changed since the record; cycles may differ"
            print(text, file=sys.stderr)
    engine = make_engine(args.engine, config)
    check = _check(args, engine, policies)
    kind = f"against {args.against}" if args.against else "lock step"
    first_seed, generator = args.seed, args.generator
    if kept is not None:
        first_seed, generator = kept.first_seed, kept.generator
    record = Record.new(config, policies, kind, first_seed, generator)
    if args.record is not None and args.record.exists():
        old = Record.load(args.record)
        old.check_same(record, args.record)
        record = old
    record.engines = sorted({*record.engines, engine.name})
    count = args.count
    if count is None and args.instructions is None and args.minutes is None:
        count = DEFAULT_COUNT if kept is None else None
    limits = Limits(count, args.instructions, args.minutes)
    if kept is not None:
        outcome = verify(config, check, kept, limits, record)
    else:
        save = (lambda: None) if args.record is None else (lambda: record.save(args.record))
        outcome = run_session(config, check, record, limits, save)
    if isinstance(outcome, Failure):
        _report(args, outcome, check, record)
    print(record.text())
    if isinstance(outcome, str):
        print(f"FAIL: {outcome}", file=sys.stderr)
    elif kept is not None and outcome is None:
        print(f"as recorded in {args.verify}")
    return EXIT_PASS if outcome is None else EXIT_FAIL


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit code."""
    args = parser().parse_args(arguments)
    policies = ISSUE_POLICIES if args.issue == "both" else (args.issue,)
    try:
        return _replay(args, policies) if args.replay is not None else _session(args, policies)
    except (ConfigError, RecordError, CompilerError, OSError) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return EXIT_USAGE


if __name__ == "__main__":
    leave_with(main)
