"""Mutation testing: breaks the RTL's netlist in many small ways and reports which check notices.

python -m testbench.mutation --list
python -m testbench.mutation --unit scoreboard
python -m testbench.mutation --all --report build/mutation.json
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from isa.command import leave_with
from sim.compiled.toolchain import CompilerError
from sim.profile import report_console
from testbench.formal.builder import FormalToolsMissing
from testbench.mutation.hunt import CHECKS, Job, hunt
from testbench.mutation.programs import programs
from testbench.mutation.report import UnitReport, as_json, report_of, table
from testbench.mutation.survivors import FILE, SurvivorsError, read
from testbench.mutation.units import CONFIG, LEAF_UNITS, MACHINE_UNITS

EXIT_PASS, EXIT_FAIL, EXIT_USAGE = 0, 1, 2
#: What the file of survivors is about: mutants per unit, seed, and seeds of programs.
_MUTANTS, _SEED, _PROGRAMS = 200, 0, 24
UNITS = {unit.name: unit for unit in (*MACHINE_UNITS, *LEAF_UNITS)}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.mutation",
        description="Change one bit of one cell's input in the netlist (inverted, held at 0 or 1, "
        "or inverted while another bit is 0 or 1) and see which check of the project notices. All "
        "mutants of a unit are in one compiled model; each runs the random and directed programs "
        "of testbench.fuzz, or the operands of the leaf's tests, until a check notices it. An "
        "interrupted hunt goes on where it was.",
        epilog="Exit code: 0 every unit's tests kill at least 95 % of its mutants, and the file "
        "explains each survivor, and says nothing else; 1 they do not; 2 unknown unit, no C "
        "compiler, or no solver.",
    )
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="units, and the checks")
    what.add_argument("--unit", metavar="NAME", action="append", help="one unit; may be repeated")
    what.add_argument("--all", action="store_true", help="every unit; takes about 20 minutes")
    p.add_argument(
        "--mutants", type=int, default=_MUTANTS, metavar="N", help=f"per unit (default: {_MUTANTS})"
    )
    p.add_argument(
        "--seed", type=int, default=_SEED, metavar="S", help=f"of the choice (default: {_SEED})"
    )
    p.add_argument(
        "--programs",
        type=int,
        default=_PROGRAMS,
        metavar="N",
        help=f"seeds of programs (default: {_PROGRAMS})",
    )
    p.add_argument(
        "--survivors", type=Path, default=FILE, metavar="FILE", help="the explanations (TOML)"
    )
    p.add_argument("--report", type=Path, metavar="FILE", help="write the result as JSON, too")
    p.add_argument(
        "--build-dir",
        type=Path,
        default=Path("build/mutation"),
        metavar="DIR",
        help="models and results (default: build/mutation)",
    )
    return p


def _list() -> None:
    console = report_console()
    units = Table("unit", "what", "modules or leaves")
    for unit in UNITS.values():
        parts = getattr(unit, "modules", None) or getattr(unit, "leaves", ())
        units.add_row(unit.name, unit.summary, ", ".join(parts) or "top")
    console.print(units)
    checks = Table("check", "notices")
    for name, meaning in CHECKS.items():
        checks.add_row(name, meaning)
    console.print(checks)


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt; returns the exit code."""
    args = parser().parse_args(arguments)
    if args.list:
        _list()
        return EXIT_PASS
    names = list(UNITS) if args.all else args.unit
    unknown = [name for name in names if name not in UNITS]
    if unknown or args.mutants < 1 or args.programs < 1:
        problem = f"no unit {unknown[0]!r}" if unknown else "--mutants and --programs must be >= 1"
        print(f"error: {problem}; units: {', '.join(UNITS)}", file=sys.stderr)
        return EXIT_USAGE
    try:
        known = read(args.survivors)
        reports = _hunt_all(args, names)
    except (CompilerError, FormalToolsMissing, SurvivorsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    complete = (args.mutants, args.seed, args.programs) == (_MUTANTS, _SEED, _PROGRAMS)
    results = [report_of(n, found, known, complete=complete) for n, found in reports.items()]
    report_console().print(table(results))
    if args.report is not None:
        _write(args.report, json.dumps(as_json(results, args.seed), indent=2) + "\n")
    return _conclude(results, args.survivors)


def _hunt_all(args: argparse.Namespace, names: Sequence[str]) -> dict[str, list]:
    kinds = frozenset(kind for name in names for kind in getattr(UNITS[name], "kinds", ()))
    chosen = list(programs(CONFIG, args.programs, kinds))
    found = {}
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        for name in names:
            task = bar.add_task(name, total=args.mutants)
            job = Job(UNITS[name], args.mutants, args.seed, args.build_dir)

            def advance(done: int, total: int, task=task) -> None:
                bar.update(task, completed=done, total=total)

            found[name] = hunt(job, chosen, advance)
            if not console.is_terminal:
                alive = sum(not v.by for v in found[name])
                print(f"{name}: {len(found[name])} mutants, {alive} alive", file=sys.stderr)
    return found


def _conclude(reports: Sequence[UnitReport], survivors: Path) -> int:
    """Say what is wrong, if anything; the exit code."""
    for r in reports:
        for verdict in r.unexplained:
            m = verdict.mutant
            print(f"unexplained: {m.key}\n  {m.file}:{m.line}: {m.text}", file=sys.stderr)
        for misfit in r.misfits:
            print(f"misfit in {survivors.name}: {misfit}", file=sys.stderr)
    failed = [r.unit for r in reports if not r.ok]
    if failed:
        print(
            f"FAIL: {', '.join(failed)}; write a test that kills the survivors, or say in "
            f"{survivors} why none can",
            file=sys.stderr,
        )
        return EXIT_FAIL
    print("PASS")
    return EXIT_PASS


def _write(path: Path, text: str) -> None:
    """The old file or the new one, no mixture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    leave_with(main)
