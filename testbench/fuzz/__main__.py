"""Runs random programs in lock step until a count, a time or a difference.

python -m testbench.fuzz --minutes 10 --config small
python -m testbench.fuzz --seed 1234 --count 1
python -m testbench.fuzz --replay build/fuzz/tiny-1234-overlap
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from isa.config import ISSUE_POLICIES, PRESETS, ConfigError, PlenaConfig, load_config
from isa.opcodes import OPCODES
from isa.traps import Trap
from sim.engine import Engine
from sim.engines import ENGINES, make_engine
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.generator import Generator
from testbench.fuzz.run import Outcome, is_runnable, run_case
from testbench.fuzz.shrink import shrink

EXIT_PASS, EXIT_FAIL, EXIT_USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.fuzz",
        description="Generate random programs, dense in hazards, run them on the hardware in lock "
        "step with the architectural machine, and shrink and save the first that differs.",
        epilog="Exit code: 0 no difference; 1 a difference (the case is saved); 2 wrong usage.",
    )
    p.add_argument("--seed", type=int, default=0, help="of the first program (default: 0)")
    p.add_argument("--count", type=int, metavar="N", help="programs (default: 20, or by --minutes)")
    p.add_argument("--minutes", type=float, metavar="M", help="stop after this wall time")
    p.add_argument("--config", default="tiny", help=f"{', '.join(PRESETS)}, or a TOML file")
    p.add_argument("--issue", choices=(*ISSUE_POLICIES, "both"), default="both")
    p.add_argument("--engine", choices=("auto", *ENGINES), default="auto")
    p.add_argument("--replay", type=Path, metavar="DIR", help="run a saved case again")
    p.add_argument("--no-shrink", action="store_true", help="save a failing case as it is")
    p.add_argument(
        "--build-dir", type=Path, default=Path("build/fuzz"), metavar="DIR", help="for saved cases"
    )
    return p


def supported() -> frozenset[str]:
    """The mnemonics that the hardware executes."""
    return frozenset(op.mnemonic for op in OPCODES.values())


@dataclass
class Totals:
    """What a session has run."""

    programs: int = 0
    instructions: int = 0
    cycles: int = 0
    seconds: float = 0.0
    causes: Counter[Trap] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.programs += 1
        self.instructions += outcome.instructions
        self.cycles += outcome.cycles
        self.seconds += outcome.seconds
        self.causes[outcome.cause] += 1
        self.codes += outcome.codes

    def text(self) -> str:
        """Runs, instructions, speed, causes, and the opcodes that never ran."""
        causes = ", ".join(f"{cause.name} {n}" for cause, n in self.causes.most_common())
        missing = [op.mnemonic for code, op in OPCODES.items() if not self.codes[code]]
        rate = self.instructions / max(self.seconds, 1e-9)
        return (
            f"{self.programs} runs, {self.instructions} instructions, {self.cycles} cycles, "
            f"{self.seconds:.1f} s of CPU ({rate:.0f} instructions/s)\n"
            f"ended by: {causes or 'nothing'}\nnever executed: {', '.join(missing) or 'no opcode'}"
        )


def cases(args: argparse.Namespace, config: PlenaConfig) -> Iterator[tuple[int, FuzzCase]]:
    """Seeds and cases, until the count or the time is over."""
    count = args.count or (None if args.minutes else 20)
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else None
    policies = ISSUE_POLICIES if args.issue == "both" else (args.issue,)
    seed, mnemonics = args.seed, supported()
    while count is None or seed < args.seed + count:
        case = Generator(config, seed, mnemonics).case(policies[0])
        if is_runnable(case):
            for issue in policies:
                if deadline is not None and time.monotonic() > deadline:
                    return
                yield seed, replace(case, issue=issue)
        seed += 1


def report_failure(
    args: argparse.Namespace, seed: int, case: FuzzCase, outcome: Outcome, engine: Engine
) -> None:
    """Shrink, save and print a failing case."""
    if not args.no_shrink:
        case = shrink(case, lambda c: is_runnable(c) and bool(run_case(c, engine).failure))
        outcome = run_case(case, engine)
    folder = args.build_dir / f"{case.config.name}-{seed}-{case.issue}"
    case.save(folder, outcome.failure)
    print(f"seed {seed}, issue {case.issue}:\n{outcome.failure}\n", file=sys.stderr)
    print(
        f"{case.source()}\nsaved; run it again with\n  python -m testbench.fuzz --replay {folder}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit code."""
    args = parser().parse_args(arguments)
    try:
        if args.replay is not None:
            case = FuzzCase.load(args.replay)
            outcome = run_case(case, make_engine(args.engine, case.config))
            print(outcome.failure or f"no difference; {outcome.cause.name}")
            return EXIT_FAIL if outcome.failure else EXIT_PASS
        config = load_config(args.config)
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    engine, totals = make_engine(args.engine, config), Totals()
    for seed, case in cases(args, config):
        outcome = run_case(case, engine)
        totals.add(outcome)
        if outcome.failure:
            report_failure(args, seed, case, outcome, engine)
            print(totals.text())
            return EXIT_FAIL
    print(totals.text())
    return EXIT_PASS


if __name__ == "__main__":
    sys.exit(main())
