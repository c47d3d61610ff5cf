"""All testbenches on pysim and the compiled engine; and that a difference would be found."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from isa.config import PRESETS, PlenaConfig
from sim.engine import Engine
from testbench import agreement
from testbench.agreement import agree, main
from testbench.catalogue import Entry, catalogue
from tests.conftest import engine_for, needs_compiler

TESTBENCHES = list(dict.fromkeys(entry.name.partition("/")[0] for entry in catalogue()))
ENTRIES = {entry.name: entry for entry in catalogue()}
CHEAP = "routed_moe/gather-scatter"


def both(config: str) -> list[Engine]:
    return [engine_for(PRESETS[config], name) for name in ("pysim", "compiled")]


@pytest.mark.slow
@needs_compiler
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("config", ["tiny", "small"])
@pytest.mark.parametrize("testbench", TESTBENCHES)
def test_every_workload_is_equal_on_both_engines(testbench: str, config: str):
    for name, entry in ENTRIES.items():
        if name.startswith(f"{testbench}/"):
            found = agree(entry, both(config), "overlap", seed=1)
            assert not found.difference, f"{name}: {found.difference}"
            assert found.events > 0


@needs_compiler
@pytest.mark.parametrize("issue", ["overlap", "serial"])
@pytest.mark.parametrize("name", [CHEAP, "router_policy/gpt_oss", "utilisation/shared"])
def test_a_few_workloads_are_equal_on_both_engines(name: str, issue: str):
    found = agree(ENTRIES[name], both("tiny"), issue, seed=0)
    assert not found.difference
    assert found.engines == ("pysim", "compiled")


def test_the_catalogue_has_every_testbench_that_runs_workloads():
    assert set(TESTBENCHES) == {
        "shared_moe",
        "router_policy",
        "router",
        "routed_moe",
        "moe_layer",
        "utilisation",
    }
    assert len(ENTRIES) == len(catalogue())


class Disturbed:
    """A workload of which the second run differs from the first in one thing."""

    def __init__(self, case: Any, disturb: Callable[[Any], None]) -> None:
        self._case, self._disturb, self._runs = case, disturb, 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name == "load":
            return super().__getattribute__(name)
        return getattr(self._case, name)

    def load(self, simulation: Any) -> None:
        self._case.load(simulation)
        self._runs += 1
        if self._runs > 1:
            self._disturb(simulation)


def _other_bit(simulation: Any) -> None:
    word = simulation.config.INT_MEM_WORDS - 1
    simulation.memories.write_int(word, [1])


def _other_value(simulation: Any) -> None:
    simulation.memories.write_vector(0, simulation.memories.read_vector(0, 1) ^ 1)


@pytest.mark.parametrize(
    ("disturb", "text"),
    [
        (_other_bit, r"pysim \| pysim: the final states differ: INT_MEM, byte \d+"),
        (_other_value, r"pysim \| pysim: event \d+ differs:"),
    ],
)
def test_a_difference_is_found_and_named(disturb: Callable[[Any], None], text: str):
    def build(config: PlenaConfig, seed: int) -> Any:
        return Disturbed(ENTRIES[CHEAP].build(config, seed), disturb)

    engine = engine_for(PRESETS["tiny"])
    found = agree(Entry("disturbed", build), [engine, engine], "overlap", 0)
    assert re.match(text, found.difference), found.difference


def test_other_cycles_and_results_are_differences(monkeypatch: pytest.MonkeyPatch):
    real = agreement._run
    runs: list[str] = []

    def later(case: Any, engine: Engine, issue: str) -> Any:
        ended, wrong = real(case, engine, issue)
        runs.append(engine.name)
        if len(runs) > 1:
            (result,) = ended.results
            ended = replace(ended, results=(replace(result, cycles=result.cycles + 1),))
        return ended, wrong

    monkeypatch.setattr(agreement, "_run", later)
    engine = engine_for(PRESETS["tiny"])
    found = agree(ENTRIES[CHEAP], [engine, engine], "overlap", 0)
    assert found.difference.startswith("pysim | pysim: the results differ:")
    assert f"cycles={found.cycles + 1}" in found.difference


@needs_compiler
def test_the_command_tells_and_keeps_what_it_found(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(agreement, "make_engine", lambda name, config: engine_for(config, name))
    file = tmp_path / "agreement.json"
    wanted = ["--config", "tiny", "--only", CHEAP, "--json", str(file)]
    assert main(wanted) == 0
    assert "routed_moe" in capsys.readouterr().out
    (kept,) = json.loads(file.read_text())["agreements"]
    assert kept["engines"] == ["pysim", "compiled"]
    assert kept["difference"] == ""
    assert main(["--only", "nothing"]) == 2
    assert main(["--engine", "pysim"]) == 2
    assert "name another one" in capsys.readouterr().err
