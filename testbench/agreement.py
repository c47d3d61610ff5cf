"""Runs every workload of every testbench on several engines, which must not differ in anything.

python -m testbench.agreement --config tiny --config small
python -m testbench.agreement --only 'moe_layer/*' --engine compiled --engine verilator
"""

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from compiler.errors import CompileError
from isa.command import leave_with
from isa.config import ISSUE_POLICIES, PRESETS, PlenaConfig, load_config
from isa.image import write_atomically
from sim.engine import Engine
from sim.engines import ENGINES, make_engine
from sim.observers import EventLog
from sim.profile import report_console
from sim.simulation import Simulation
from testbench.catalogue import Entry, catalogue
from testbench.ended import Ended, difference
from testbench.fuzz.final import Final
from testbench.running import EXIT_FAIL, EXIT_PASS, RequestError, exit_code
from testbench.workload import Workload

__all__ = ["Agreement", "agree", "main"]


@dataclass(frozen=True)
class Agreement:
    """A workload under one policy on all engines; `difference` is empty when there is none."""

    name: str
    config: str
    issue: str
    seed: int
    engines: tuple[str, ...]
    cycles: int
    events: int
    final: str  #: digest of the final state
    difference: str
    seconds: float


def _run(case: Workload, engine: Engine, issue: str) -> tuple[Ended, list[str]]:
    """A run, and what is wrong with its results."""
    simulation = Simulation(case.config, case.image, case.hbm(), engine=engine, issue=issue)
    case.load(simulation)
    log = EventLog()
    result = simulation.run(observers=[log])
    wrong = [str(c) for c in case.check(simulation) if not c.ok]
    if not result.ok:
        wrong.append(result.report(case.image))
    return Ended(log.events, (result,), Final.of(simulation)), wrong


def agree(entry: Entry, engines: Sequence[Engine], issue: str, seed: int) -> Agreement:
    """Run a workload on all engines; the first one is what the others are compared with.

    Results are also compared with the workload's own reference.

    Raises:
        CompileError: the configuration cannot hold the workload.
    """
    started = time.perf_counter()
    config = engines[0].config
    case = entry.build(config, seed)
    first, wrong = _run(case, engines[0], issue)
    found = [f"{engines[0].name}: {line}" for line in wrong]
    for engine in engines[1:]:
        other, _ = _run(case, engine, issue)
        differs = difference(first, other)
        if differs:
            found.append(f"{engines[0].name} | {engine.name}: {differs}")
    return Agreement(
        name=entry.name,
        config=config.name,
        issue=issue,
        seed=seed,
        engines=tuple(engine.name for engine in engines),
        cycles=first.results[0].cycles,
        events=len(first.events),
        final=first.final.digest,
        difference="\n".join(found),
        seconds=round(time.perf_counter() - started, 2),
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.agreement",
        description="Run every workload of every testbench on several engines: the same events in "
        "the same cycles, the same counters, the same end, and the same bits in every memory and "
        "register; and the results that the workload's reference asks for.",
        epilog="Exit code: 0 no difference; 1 there is one; 2 an engine cannot be had, or the "
        "request cannot be run. With --json, results are written as they come.",
    )
    p.add_argument(
        "--config",
        action="append",
        metavar="NAME|FILE",
        help=f"{', '.join(PRESETS)}, or a TOML file; may be repeated (default: tiny, small)",
    )
    p.add_argument(
        "--engine",
        action="append",
        choices=tuple(ENGINES),
        help="two or more; the first one is the measure (default: pysim, compiled)",
    )
    p.add_argument(
        "--issue",
        action="append",
        choices=ISSUE_POLICIES,
        help="issue policy; may be repeated (default: overlap)",
    )
    p.add_argument("--only", default="*", metavar="PATTERN", help="names like this, as 'router/*'")
    p.add_argument("--seed", type=int, default=0, metavar="S", help="of the data (default: 0)")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE, too")
    p.add_argument("--list", action="store_true", help="names of the workloads, and no run")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _command(args))


def _command(args: argparse.Namespace) -> int:
    entries = [e for e in catalogue() if fnmatch.fnmatchcase(e.name, args.only)]
    if not entries:
        raise RequestError(f"--only {args.only}: no workload is called so (--list names them)")
    if args.list:
        print("\n".join(entry.name for entry in entries))
        return EXIT_PASS
    names = args.engine or ["pysim", "compiled"]
    if len(set(names)) < 2:
        raise RequestError(f"--engine {names[0]}: name another one to compare it with")
    done: list[Agreement] = []
    refused: list[str] = []
    for text in args.config or ["tiny", "small"]:
        config = load_config(text)
        engines = [make_engine(name, config) for name in names]
        for issue in args.issue or ["overlap"]:
            for entry in entries:
                _one(entry, engines, issue, args.seed, done, refused)
                if args.json is not None:
                    _write(args.json, done, refused)
    _print(done, refused, names)
    return EXIT_FAIL if any(a.difference for a in done) else EXIT_PASS


def _one(
    entry: Entry,
    engines: Sequence[Engine],
    issue: str,
    seed: int,
    done: list[Agreement],
    refused: list[str],
) -> None:
    config: PlenaConfig = engines[0].config
    try:
        agreement = agree(entry, engines, issue, seed)
    except CompileError as error:
        refused.append(f"{entry.name}, {config.name}: {error}")
        return
    done.append(agreement)
    verdict = "DIFFERENT" if agreement.difference else "equal"
    print(
        f"{config.name} {issue} {entry.name}: {verdict}, {agreement.cycles:,} cycles, "
        f"{agreement.events:,} events, {agreement.seconds:.1f} s",
        file=sys.stderr,
    )


def _write(path: Path, done: Sequence[Agreement], refused: Sequence[str]) -> None:
    document = {"agreements": [asdict(a) for a in done], "refused": list(refused)}
    write_atomically(path, json.dumps(document, indent=1).encode())


def _print(done: Sequence[Agreement], refused: Sequence[str], engines: Sequence[str]) -> None:
    console = report_console()
    table = Table(title=f"engines {', '.join(engines)}", title_justify="left")
    for column in ("configuration", "issue", "testbench"):
        table.add_column(column)
    for column in ("workloads", "cycles", "events", "different"):
        table.add_column(column, justify="right")
    groups: dict[tuple[str, str, str], list[Agreement]] = {}
    for a in done:
        groups.setdefault((a.config, a.issue, a.name.partition("/")[0]), []).append(a)
    for key, group in groups.items():
        sums = (
            len(group),
            sum(a.cycles for a in group),
            sum(a.events for a in group),
            sum(bool(a.difference) for a in group),
        )
        table.add_row(*key, *(f"{number:,}" for number in sums))
    console.print(table)
    for line in refused:
        console.print(f"not run: {line}", highlight=False)
    for a in done:
        if a.difference:
            console.print(f"{a.name}, {a.config}, {a.issue}: {a.difference}", highlight=False)


if __name__ == "__main__":
    leave_with(main)
