"""Injected defects: each breaks a copy of the project in one place and shows which check notices.

python -m testbench.defects --list
python -m testbench.defects --run gate_multiply_dropped
python -m testbench.defects --all
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from isa.command import leave_with
from sim.profile import report_console
from testbench.defect_table import DEFECTS, Defect

ROOT = Path(__file__).resolve().parent.parent
#: What a copy needs to run a check.
COPIED = (
    *("isa", "rtl", "sim", "compiler", "testbench", "waveforms", "tests"),
    *("pyproject.toml", "Makefile", ".ci"),
)
TIMEOUT_SECONDS = 300
#: pytest's exit code for "tests ran and some failed"; any other failure is not a catch but an
#: accident.
TESTS_FAILED = 1


@dataclass(frozen=True)
class Outcome:
    """What happened to one defect."""

    defect: Defect
    caught: bool
    by: str


def run_defect(defect: Defect) -> Outcome:
    """Applies the defect to a copy, runs its check there.

    Raises ValueError when an edit's `old` does not occur exactly once: the defect no longer fits
    the code.
    """
    with tempfile.TemporaryDirectory(prefix="plena_defect_") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy / name)
        for edit in defect.edits:
            target = copy / edit.path
            text = target.read_text(encoding="utf-8")
            found = text.count(edit.old)
            if found != 1:
                raise ValueError(
                    f"defect {defect.name}: its text occurs {found} times in {edit.path}, not "
                    "once; update it"
                )
            target.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-x",
            "-p",
            "no:cacheprovider",
            defect.check,
        ]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    failed = [
        line.split(" - ")[0].removeprefix("FAILED ")
        for line in run.stdout.splitlines()
        if line.startswith("FAILED ")
    ]
    if run.returncode == TESTS_FAILED and failed:
        return Outcome(defect, True, failed[0])
    if run.returncode == 0:
        return Outcome(defect, False, f"{defect.check} passed")
    last = (run.stdout + run.stderr).strip().splitlines()[-1:]
    return Outcome(defect, False, f"the check did not run: {' '.join(last)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Lists or runs defects; 1 when one survives."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.defects",
        description="Break a copy of the project on purpose and report which check catches it.",
        epilog="Exit code: 0 every defect was caught; 1 one survived; 2 unknown name.",
    )
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="names and what each breaks")
    what.add_argument("--run", metavar="NAME", help="inject one")
    what.add_argument("--all", action="store_true", help="inject every one in turn")
    args = p.parse_args(arguments)
    console = report_console()
    if args.list:
        table = Table("name", "what it breaks", "where")
        for defect in DEFECTS:
            table.add_row(
                defect.name, defect.summary, ", ".join(sorted({e.path for e in defect.edits}))
            )
        console.print(table)
        return 0
    chosen = DEFECTS if args.all else tuple(d for d in DEFECTS if d.name == args.run)
    if not chosen:
        print(
            f"error: no defect {args.run!r}; known: {', '.join(d.name for d in DEFECTS)}",
            file=sys.stderr,
        )
        return 2
    outcomes = []
    for number, defect in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {defect.name} ...", file=sys.stderr, flush=True)
        outcomes.append(run_defect(defect))
    table = Table("defect", "caught", "by")
    for outcome in outcomes:
        table.add_row(outcome.defect.name, "yes" if outcome.caught else "NO", outcome.by)
    console.print(table)
    survivors = [o.defect.name for o in outcomes if not o.caught]
    if survivors:
        print(f"FAIL: survived: {', '.join(survivors)}", file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    leave_with(main)
