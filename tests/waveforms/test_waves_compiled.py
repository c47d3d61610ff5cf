"""The waveform file of the compiled engine is that of pysim, to the last character."""

import random
from pathlib import Path
from typing import Any

import pytest

from isa.config import PRESETS
from sim.simulation import Simulation
from testbench.shared_case import build_case, spec_of
from tests.conftest import engine_for, needs_compiler
from tests.waveforms.conftest import SOURCE
from waveforms.vcd import VcdWriter

pytestmark = needs_compiler


def text_of(path: Path) -> str:
    """All but the comment, which names the engine."""
    lines = path.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("$comment")]
    assert len(kept) == len(lines) - 1
    return "\n".join(kept)


def shared(engine: str, config: str, path: Path, **options: Any) -> str:
    machine = PRESETS[config]
    case = build_case(
        machine, spec_of("qwen2", hidden=machine.MLEN, intermediate=machine.MLEN), rows=3
    )
    chosen = engine_for(machine, engine)
    simulation = Simulation(machine, case.program.image, case.hbm(), engine=chosen)
    case.load(simulation)
    writer = VcdWriter(path, simulation, **options)
    assert simulation.run(observers=[writer]).ok
    return text_of(path)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ("tiny", {}),
        ("tiny", {"lanes": True, "window": (40, None), "memory_rows": range(4, 40)}),
        ("tiny", {"window": (100, 180), "units": ["matrix", "hbm"]}),
        ("tiny", {"window": (3, 9), "units": ["registers"], "memory_rows": 0}),
        pytest.param("small", {"window": (150, 400)}, marks=pytest.mark.slow),
    ],
)
def test_a_shared_expert_leaves_the_same_file_on_both_engines(config, options, tmp_path):
    want = shared("pysim", config, tmp_path / "pysim.vcd", **options)
    assert want.count("\n") > 100
    assert shared("compiled", config, tmp_path / "compiled.vcd", **options) == want
    for suffix in (".gtkw", ".sucl"):
        views = [
            (tmp_path / name).with_suffix(suffix).read_text() for name in ("pysim", "compiled")
        ]
        assert views[0].replace("pysim.vcd", "compiled.vcd") == views[1]


def test_every_unit_and_a_run_that_hits_the_watchdog(program, tmp_path):
    def left(engine: str) -> str:
        simulation = program(SOURCE, engine=engine)
        path = tmp_path / f"{engine}.vcd"
        simulation.run(max_cycles=60, observers=[VcdWriter(path, simulation)])
        return text_of(path)

    assert left("compiled") == left("pysim")


def test_the_clock_stays_in_the_compiled_loop(program, tmp_path, monkeypatch):
    simulation = program(SOURCE, engine="compiled")
    monkeypatch.setattr(Simulation, "_one_cycle", None)
    writer = VcdWriter(tmp_path / "waves.vcd", simulation, window=(5, None))
    assert simulation.run(observers=[writer]).ok


def test_a_log_that_is_full_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.compiled.samples._MOST", random.Random(5).randrange(2, 9))
    want = shared("pysim", "tiny", tmp_path / "pysim.vcd", units=["scalar"])
    assert shared("compiled", "tiny", tmp_path / "compiled.vcd", units=["scalar"]) == want
