"""The comparison of engines: what it measures, what it concludes, what it leaves when stopped."""

import copy
import json
from typing import Any

import pytest

from isa.config import PRESETS
from sim.compiled.toolchain import CompilerError
from testbench.bench import compare as comparing
from testbench.bench.__main__ import main
from testbench.bench.report import bounds, disagreements, engine_table, picture
from testbench.bench.workloads import WORKLOADS, rate
from tests.conftest import engine_for, needs_compiler

TINY = PRESETS["tiny"]


def figures(engine: str, speed: float, nothing: float, **changes: Any) -> dict[str, Any]:
    """What a measurement of an engine gives."""
    return {
        "engine": engine,
        "has_cache": engine != "pysim",
        "from_nothing_seconds": nothing,
        "elaborate_seconds": nothing / 2,
        "build_seconds": nothing / 2,
        "cached_start_seconds": None if engine == "pysim" else 0.5,
        **{w.name: {"cycles_per_second": speed, "cycles": 9, "busy": 1.0} for w in WORKLOADS},
        "shared_expert": {"cycles": 1431, "cycles_per_second": speed, "exact": True},
        "peak_mebibytes": 100.0,
        **changes,
    }


def everything() -> list[dict[str, Any]]:
    long = {"cycles": 90, "seconds": 4.0, "exact": True}
    return [
        figures("pysim", 100, 50),
        figures(
            "compiled", 300_000, 15, long={**long, "cycles_per_second": 3e5, "host_share": 0.1}
        ),
        figures(
            "verilator", 50_000, 60, long={**long, "cycles_per_second": 5e4, "host_share": 0.1}
        ),
    ]


def test_bounds_compare_the_engines_that_were_measured():
    found = bounds(everything())
    assert len(found) == 8
    assert all(bound.holds for bound in found), [bound.line for bound in found]
    slower = copy.deepcopy(everything())
    slower[1]["long"]["cycles_per_second"] = 140_000
    missed = [bound.line for bound in bounds(slower) if not bound.holds]
    assert missed == [
        "MISSED: compiled / verilator, shared expert: 2.80 (at least 3.00)",
        "MISSED: compiled / pysim, shared expert: 1,400 (at least 2,000)",
    ]
    assert len(bounds(everything()[1:2])) == 5
    assert bounds(everything()[:1]) == []


def test_a_wrong_result_and_other_cycle_counts_are_problems():
    assert disagreements(everything()) == []
    wrong = copy.deepcopy(everything())
    wrong[0]["shared_expert"]["exact"] = False
    wrong[2]["shared_expert"]["cycles"] = 1432
    first, second = disagreements(wrong)
    assert first == "pysim: a result is not exact"
    assert "shared_expert" in second
    assert "1432" in second


def test_the_table_has_a_column_per_engine_and_the_picture_is_one():
    table = engine_table("tiny", everything())
    assert [column.header for column in table.columns[1:]] == ["pysim", "compiled", "verilator"]
    rows = {cells[0]: cells[1:] for cells in zip(*(c.cells for c in table.columns), strict=True)}
    assert rows["times pysim"] == ("1.0", "3,000.0", "500.0")
    assert rows["long run, cycles/s"] == ("-", "300,000", "50,000")
    assert picture("tiny", everything()).startswith(b"\x89PNG")


def test_an_interrupted_run_leaves_what_it_has(tmp_path, monkeypatch, capsys):
    measured = everything()

    def measure(name: str, *_: object) -> dict[str, Any]:
        if name == "verilator":
            raise KeyboardInterrupt
        return next(f for f in measured if f["engine"] == name)

    monkeypatch.setattr(comparing, "measure_engine", measure)
    arguments = ["--engines", "--config", "tiny", "--output", str(tmp_path)]
    for name in ("pysim", "compiled", "verilator"):
        arguments += ["--engine", name]
    assert main(arguments) == 130
    document = json.loads((tmp_path / "engines.json").read_text())
    assert [f["engine"] for f in document["engines"]] == ["pysim", "compiled"]
    assert (tmp_path / "engines.png").exists()
    assert "compiled" in capsys.readouterr().out


def test_an_engine_that_cannot_be_built_is_left_out_with_the_reason(monkeypatch, capsys):
    def measure(name: str, *_: object) -> dict[str, Any]:
        if name != "compiled":
            raise CompilerError("install something")
        return everything()[1]

    monkeypatch.setattr(comparing, "measure_engine", measure)
    chosen = ["--engine", "compiled", "--engine", "verilator"]
    assert main(["--engines", "--config", "tiny", *chosen]) == 0
    assert "verilator was left out: install something" in capsys.readouterr().out
    assert main(["--engines", "--config", "tiny", "--engine", "verilator"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--engines", "--config", "tiny", "--config", "small"],
        ["--engines", "--engine", "auto"],
        ["--engines", "--seconds", "0"],
        ["--engine", "pysim", "--engine", "compiled"],
        ["--config", "nope"],
    ],
)
def test_a_request_that_makes_no_sense_is_refused(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


@needs_compiler
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_a_workload_keeps_busy_what_it_is_named_after(workload):
    found = rate(workload, engine_for(TINY, "compiled"), 0.02)
    assert found.cycles >= 64
    assert found.busy == (0.0 if workload.counter is None else pytest.approx(1.0, abs=0.15))


@pytest.mark.slow
@needs_compiler
def test_two_engines_are_measured_and_agree(tmp_path):
    chosen = ["--engine", "pysim", "--engine", "compiled", "--seconds", "0.2"]
    assert main(["--engines", "--config", "tiny", *chosen, "--output", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "engines.json").read_text())
    compiled = document["engines"][1]
    assert compiled["build_seconds"] > 0
    assert compiled["cached_start_seconds"] < compiled["from_nothing_seconds"]
    assert 0 < compiled["long"]["host_share"] < 1
    assert document["problems"] == []
