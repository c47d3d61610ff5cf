"""Broken copies of the project, each of which must have a counterexample."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from testbench.defect_table import DEFECTS, Edit

ROOT = Path(__file__).resolve().parents[2]
#: What a copy needs to run a proof.
COPIED = ("isa", "rtl", "sim", "compiler", "testbench", "waveforms")

TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Mutant:
    """The edits that break a copy, and what that means for attribution."""

    name: str
    summary: str
    edits: tuple[Edit, ...]


def _as_defect(name: str) -> Mutant:
    (defect,) = (d for d in DEFECTS if d.name == name)
    return Mutant(defect.name, defect.summary, defect.edits)


MUTANTS: tuple[Mutant, ...] = (
    _as_defect("tag_dropped_in_dispatcher"),
    _as_defect("tag_off_by_one"),
    Mutant(
        "bill_the_youngest",
        "a cycle is billed to the instruction at dispatch, not to the oldest unfinished one",
        (
            Edit(
                "rtl/dispatch/dispatcher.py",
                "Mux(scoreboard.empty, front.stage, scoreboard.oldest_stage)",
                "front.stage",
            ),
        ),
    ),
    Mutant(
        "ages_forgotten",
        "the scoreboard forgets who was there before an instruction",
        (
            Edit(
                "rtl/dispatch/scoreboard.py",
                "older[i].eq(valid[:i] & ~freed[:i])",
                "older[i].eq(0)",
            ),
        ),
    ),
    Mutant(
        "stall_cycles_not_billed",
        "the wall counter misses the cycles without a dispatch",
        (Edit("rtl/top.py", '"wall": (counting,', '"wall": (dispatch.valid,'),),
    ),
    Mutant(
        "stage_of_a_slot_overwritten",
        "an instruction's stage in the scoreboard changes when another one is dispatched",
        (
            Edit(
                "rtl/dispatch/scoreboard.py",
                "m.d.sync += [stages[i].eq(self.stage), prints[i].eq(self.candidate)]",
                "m.d.sync += prints[i].eq(self.candidate)\n"
                "            with m.If(self.allocate):\n"
                "                m.d.sync += stages[i].eq(self.stage)\n"
                "            with m.If(taken[i]):",
            ),
        ),
    ),
)


def run_mutant(mutant: Mutant, depth: int) -> tuple[bool, str]:
    """Whether the bounded proof finds a counterexample in a broken copy, and its last words.

    Raises ValueError when an edit's `old` does not occur exactly once.
    """
    with tempfile.TemporaryDirectory(prefix="plena_mutant_") as folder:
        copy = Path(folder)
        for name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        for edit in mutant.edits:
            target = copy / edit.path
            text = target.read_text(encoding="utf-8")
            if text.count(edit.old) != 1:
                raise ValueError(
                    f"mutant {mutant.name}: its text occurs {text.count(edit.old)} times in "
                    f"{edit.path}, not once; update it"
                )
            target.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        run = subprocess.run(
            [sys.executable, "-m", "testbench.formal", "--run", "bounded", "--depth", str(depth)],
            cwd=copy,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")]),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    said = [line for line in run.stdout.splitlines() if line.startswith("FAIL: ")]
    if run.returncode == 1 and said:
        return True, said[0].removeprefix("FAIL: ")
    return False, (run.stdout + run.stderr).strip().splitlines()[-1]
