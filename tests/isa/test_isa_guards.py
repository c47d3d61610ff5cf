"""Continuous integration runs every guard, and stops at the first that fails."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: What must run, and a text that its command has.
GUARDS = {
    "lint": "ruff check .",
    "format": "ruff format --check .",
    "stage arguments": "-m isa.stage_lint",
    "types": "basedpyright",
    "tests": "-m pytest",
    "slow tests": "-m pytest -m slow",
    "shared expert": "-m testbench.shared_moe",
}
#: Guards of the script itself, besides those that make runs for it.
DIRECT = ("-m isa.stage_lint",)


def recipes(makefile: str) -> dict[str, list[str]]:
    """Target to the lines of its recipe."""
    found: dict[str, list[str]] = {}
    target = ""
    for line in makefile.splitlines():
        head = re.match(r"([\w.$()-]+)\s*:(?!=)", line)
        if line.startswith("\t"):
            found[target].append(line.strip())
        elif head:
            target = head.group(1)
            found.setdefault(target, [])
    return found


def steps(script: str) -> list[str]:
    """The commands of the script, without comments."""
    lines = [line.split(" #")[0].strip() for line in script.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def commands(script: str, makefile: str) -> list[str]:
    """Every command that the script runs, those of its make targets in their place."""
    targets, ran = recipes(makefile), []
    for step in steps(script):
        words = step.split()
        ran += (
            [line for w in words[1:] for line in targets.get(w, [w])]
            if words[0] == "make"
            else [step]
        )
    return ran


def missing(script: str, makefile: str) -> list[str]:
    """Guards that do not run, or whose failure would be let pass."""
    ran = commands(script, makefile)
    problems = [
        name
        for name, text in GUARDS.items()
        if not any(c.endswith(text) or f"{text} " in c for c in ran)
    ]
    # "-m pytest" must also run without a marker: the default run is no part of the slow one.
    if not any(c.endswith("-m pytest") for c in ran):
        problems.append("default tests")
    problems += [text for text in DIRECT if not any(text in step for step in steps(script))]
    if "-m isa.stage_lint" not in " ".join(recipes(makefile).get("lint", [])):
        problems.append("stage arguments in make lint")
    if not any(step.startswith("set -e") for step in steps(script)[:1]):
        problems.append("set -e at the top")
    # Whatever hides a failure: `make types || true`, `-command` in a recipe, a background job.
    problems += [c for c in (*steps(script), *ran) if re.search(r"\|\||[;&]|^-", c)]
    return problems


SCRIPT = (ROOT / ".ci" / "run").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def test_continuous_integration_runs_every_guard():
    assert missing(SCRIPT, MAKEFILE) == []


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("make lint\n", "", "lint"),
        ("make lint\n", "# make lint\n", "lint"),
        ("make types\n", "", "types"),
        ("make types\n", "make types || true\n", "types || true"),
        ("make test\n", "", "default tests"),
        ("make test-slow\n", "", "slow tests"),
        ("make shared-moe\n", "", "shared expert"),
        (".venv/bin/python -m isa.stage_lint\n", "", "-m isa.stage_lint"),
        ("set -euo pipefail\n", "set -uo pipefail\n", "set -e at the top"),
    ],
)
def test_a_guard_that_is_unwired_in_the_script_is_noticed(old, new, named):
    assert SCRIPT.count(old) == 1
    problems = missing(SCRIPT.replace(old, new), MAKEFILE)
    assert any(named in problem for problem in problems), problems


@pytest.mark.parametrize("line", ["-m isa.stage_lint", "ruff check .", "basedpyright --warnings"])
def test_a_guard_that_is_unwired_in_the_makefile_is_noticed(line):
    kept = [text for text in MAKEFILE.splitlines() if not text.endswith(line)]
    assert len(kept) == len(MAKEFILE.splitlines()) - 1
    assert missing(SCRIPT, "\n".join(kept))
