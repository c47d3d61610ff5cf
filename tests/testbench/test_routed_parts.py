"""The parts of a routed expert, each alone, and the command that runs them."""

import json

import numpy as np
import pytest

from compiler.routed_spec import RoutedSpec
from isa.config import PRESETS
from isa.traps import Trap
from sim.simulation import Simulation
from testbench import routed_moe, running
from testbench.routed_parts import PARTS, Request

FORMS = {
    "swiglu": {},
    "gpt-oss": {"activation": "gpt_oss_clamp_gated", "biases": True},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_bit_exact(fast_engine, part, tokens, form):
    config = PRESETS["tiny"]
    spec = RoutedSpec(experts=6, top_k=3, hidden=24, intermediate=16, **FORMS[form])
    _, build = PARTS[part]
    case = build(Request(config=config, spec=spec, tokens=tokens, kind="random", seed=tokens))
    simulation = Simulation(config, case.image, case.hbm(), engine=fast_engine(config))
    case.load(simulation)
    result = simulation.run(max_cycles=100_000)
    assert result.cause is Trap.DONE, result.report(simulation.image)
    checks = case.check(simulation)
    wrong = [str(c) for c in checks if not c.ok] + case.check_stages(result)
    assert not wrong, "\n".join(wrong)
    assert checks
    assert np.array_equal(case.result(simulation).shape, case.reference.shape)


def test_the_command_runs_a_part_alone(fast_engine, monkeypatch, tmp_path, capsys):
    simulation = running.Simulation

    def reused(config, image, hbm, *, engine, issue):
        assert engine == "auto"
        return simulation(config, image, hbm, engine=fast_engine(config), issue=issue)

    monkeypatch.setattr(running, "Simulation", reused)
    arguments = ["--config", "tiny", "--tokens", "3", "--json", "--build-dir", str(tmp_path)]
    for part in PARTS:
        assert routed_moe.main([part, *arguments]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["verdict"] == "PASS"
        assert report["cycles"] > 0
    assert routed_moe.main(["expert", *arguments, "--hidden", "12"]) == 2
    assert "hidden = 12: must be a positive multiple of MLEN = 8" in capsys.readouterr().err
