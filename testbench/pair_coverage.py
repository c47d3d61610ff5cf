"""Whether every ordered pair of opcodes has run back to back with every dependency it can have.

python -m testbench.pair_coverage
python -m testbench.pair_coverage --config small --programs 1000 --json coverage.json

The dependencies follow from the ISA table: read after write, write after read and write after write
through every register file, memory and state, for every two operands that can meet. Random programs
come first; what they leave out is made by directed ones. All run on the hardware, in lock step with
the architectural machine, under both issue policies.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isa.command import error_text, leave_with
from isa.config import ISSUE_POLICIES, PRESETS, ConfigError, PlenaConfig, load_config
from isa.image import write_atomically
from sim.engines import ENGINES, CompilerError, make_engine
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.coverage import PairCoverage, summary
from testbench.fuzz.dependencies import Dependency, possible
from testbench.fuzz.directed import directed_case
from testbench.fuzz.run import Check, is_runnable, under
from testbench.fuzz.session import Failure, case_of, save_failure

EXIT_PASS, EXIT_FAIL, EXIT_USAGE = 0, 1, 2
SCHEMA = 1
#: Dependencies of one directed program.
GROUP = 24
SHOWN = 20


def parser() -> argparse.ArgumentParser:
    """The command line."""
    description, _, more = (__doc__ or "").partition("\n\n")
    p = argparse.ArgumentParser(
        prog="python -m testbench.pair_coverage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=description,
        epilog=f"{more}\nExit code: 0 complete; 1 something is missing, or a program differs (it "
        "is saved); 2 wrong usage.",
    )
    p.add_argument("--config", default="tiny", help=f"{', '.join(PRESETS)}, or a TOML file")
    p.add_argument("--engine", choices=("auto", *ENGINES), default="auto")
    p.add_argument("--programs", type=int, default=200, metavar="N", help="random ones first")
    p.add_argument("--seed", type=int, default=0, help="of the first random program")
    p.add_argument("--no-directed", action="store_true", help="only what random programs reach")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the report for machines too")
    p.add_argument(
        "--build-dir", type=Path, default=Path("build/fuzz"), metavar="DIR", help="for saved cases"
    )
    return p


@dataclass
class Run:
    """A measurement under way."""

    config: PlenaConfig
    check: Check
    coverage: PairCoverage
    random_programs: int = 0
    directed_programs: int = 0
    instructions: int = 0
    by_random: Counter[Dependency] = field(default_factory=Counter)

    def random(self, seeds: Sequence[int]) -> Failure | None:
        """Run the programs of `seeds`."""
        cases = ((seed, case_of(self.config, seed)) for seed in seeds)
        failure = self._cases((s, c) for s, c in cases if is_runnable(c))
        self.random_programs, self.by_random = len(seeds), Counter(self.coverage.counts)
        return failure

    def directed(self) -> Failure | None:
        """Run programs for what is missing."""
        missing = self.coverage.missing()
        groups = [missing[i : i + GROUP] for i in range(0, len(missing), GROUP)]
        self.directed_programs = len(groups)
        return self._cases((i, directed_case(self.config, g, i)) for i, g in enumerate(groups))

    def _cases(self, cases: Iterator[tuple[int, FuzzCase]]) -> Failure | None:
        for seed, case in cases:
            self.coverage.begin()
            outcomes = self.check(case)
            self.instructions += sum(outcome.instructions for outcome in outcomes)
            if outcomes[-1].failure:
                return Failure(seed, case, outcomes[-1])
        return None

    def table(self) -> Table:
        """By resource and hazard: how many there are, and how many were seen."""
        table = Table(
            title=f"{self.config.name}: dependencies between neighbours, by what they go through",
            title_justify="left",
        )
        table.add_column("through")
        table.add_column("hazard")
        for name in ("possible", "random programs", "with directed ones", "missing"):
            table.add_column(name, justify="right")
        rows = summary(possible(), self.by_random, self.coverage.counts)
        for (resource, hazard), (count, by_random, covered) in rows.items():
            numbers = (count, by_random, covered, count - covered)
            table.add_row(resource or "any", hazard, *(f"{n:,}" for n in numbers))
        sums = [sum(column) for column in zip(*rows.values(), strict=True)]
        table.add_section()
        table.add_row("all", "", *(f"{n:,}" for n in (*sums, sums[0] - sums[2])))
        return table

    def report(self) -> dict[str, Any]:
        """The same for machines, with every dependency."""
        counts = self.coverage.counts
        return {
            "schema": SCHEMA,
            "config": self.config.name,
            "config_digest": self.config.digest,
            "policies": list(ISSUE_POLICIES),
            "random_programs": self.random_programs,
            "directed_programs": self.directed_programs,
            "instructions": self.instructions,
            "missing": [str(d) for d in self.coverage.missing()],
            "dependencies": [
                {
                    "pair": [d.first, d.second],
                    "hazard": d.hazard,
                    "through": d.resource,
                    "fields": list(d.fields),
                    "random": self.by_random[d],
                    "all": counts[d],
                }
                for d in possible()
            ],
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns the exit code."""
    args = parser().parse_args(arguments)
    try:
        config = load_config(args.config)
        engine = make_engine(args.engine, config)
        coverage = PairCoverage()
        check = under(ISSUE_POLICIES, engine, coverage.saw)
        run = Run(config, check, coverage)
        failure = run.random(range(args.seed, args.seed + args.programs))
        if failure is None and not args.no_directed:
            failure = run.directed()
        if args.json is not None:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(args.json, json.dumps(run.report(), indent=1).encode() + b"\n")
    except (ConfigError, CompilerError, OSError) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return EXIT_USAGE
    if failure is not None:
        folder = args.build_dir / f"{config.name}-pairs-{failure.seed}"
        save_failure(failure, check, folder, small=True)
        print(f"FAIL: {failure.outcome.failure}\nsaved in {folder}", file=sys.stderr)
        return EXIT_FAIL
    Console(width=100).print(run.table())
    print(
        f"{run.random_programs} random and {run.directed_programs} directed programs, "
        f"{run.instructions:,} instructions in lock step on engine {engine.name}"
    )
    missing = coverage.missing()
    for dependency in missing[:SHOWN]:
        print(f"missing: {dependency}")
    if len(missing) > SHOWN:
        print(f"... and {len(missing) - SHOWN} more (--json FILE names all)")
    print("FAIL: incomplete" if missing else "complete")
    return EXIT_FAIL if missing else EXIT_PASS


if __name__ == "__main__":
    leave_with(main)
