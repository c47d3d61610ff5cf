"""The command `python -m testbench.moe_layer`: output, traces, exit codes and errors."""

import json

import numpy as np
import pytest

from compiler.models import MODELS
from sim.profile import read_profile
from testbench import moe_layer, running
from testbench.artefacts import FILES
from testbench.reference.routed_data import routing

TINY = ["--config", "tiny", "--scale"]
MODEL = MODELS["qwen2-moe-a14b"]


@pytest.fixture(autouse=True)
def one_engine(fast_engine, monkeypatch):
    """The command takes the engine that the other tests use."""
    simulation = running.Simulation

    def reused(config, image, hbm, *, engine, issue):
        assert engine == "auto"
        return simulation(config, image, hbm, engine=fast_engine(config), issue=issue)

    monkeypatch.setattr(running, "Simulation", reused)


def run(tmp_path, *arguments):
    return moe_layer.main([*arguments, "--build-dir", str(tmp_path / "out")])


def trace_of(tokens=3, **changes) -> dict:
    """A trace of the model at its public size; `changes` by field, as model__num_experts."""
    experts = routing("random", tokens, MODEL.experts, MODEL.top_k, seed=1)
    trace = {
        "schema_version": 2,
        "trace_id": "t",
        "model": {
            "name": "any name",
            "hidden_size": MODEL.hidden,
            "intermediate_size": MODEL.intermediate,
            "num_experts": MODEL.experts,
            "top_k": MODEL.top_k,
            "shared_experts": MODEL.shared.count,
            "shared_intermediate_size": MODEL.shared.width,
            "shared_gate": "sigmoid",
        },
        "workload": {"token_count": tokens},
        "routing": {
            "topk_indices": experts.tolist(),
            "topk_weights": np.full(experts.shape, 0.3).tolist(),
        },
    }
    for field, value in changes.items():
        section, name = field.split("__")
        trace[section][name] = value
    return trace


def trace_file(tmp_path, trace) -> str:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    return str(path)


def test_a_passing_run_shows_stages_branches_and_the_note(tmp_path, capsys):
    assert run(tmp_path, *TINY, "--tokens", "3", "--lowering", "pair") == 0
    text = capsys.readouterr().out
    assert text.rstrip().endswith("PASS")
    for word in ("router_topk", "branches: routed ", "shared / (shared + routed)", "pair-major"):
        assert word in text
    out = tmp_path / "out"
    assert {p.name for p in out.iterdir()} == set(FILES.values())
    profile = read_profile(out / "stage_profile.json")
    note = profile["classification"]["attribution_notes"]["shared_vs_routed"]
    assert "lowered pair-major" in note
    assert profile["classification"]["moe_region_terminated"]
    assert set(profile["pairs"]) == {str(pair) for pair in range(3 * MODEL.top_k)}
    report = json.loads((out / "report.json").read_text())
    assert (report["verdict"], report["lowering"], report["routing"]) == ("PASS", "pair", "device")


def test_auto_says_what_it_took(tmp_path, capsys):
    assert run(tmp_path, *TINY, "--tokens", "6", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["lowering"] == "expert"
    assert report["accumulation"] == "expert"


@pytest.mark.parametrize("lowering", ["pair", "expert"])
def test_a_trace_keeps_its_experts(tmp_path, capsys, lowering):
    path = trace_file(tmp_path, trace_of())
    arguments = ["--routing", "trace", path, "--lowering", lowering, "--json"]
    assert run(tmp_path, *TINY, *arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["experts"], report["tokens"], report["routing"]) == (MODEL.experts, 3, "trace")
    assert report["stages"]["router_topk"]["instructions"] == 0


CONTRADICTIONS = {
    "model__num_experts": (60, f"model.num_experts = 60: the model table has {MODEL.experts}"),
    "model__top_k": (4, f"model.top_k = 4: the model table has {MODEL.top_k}"),
    "model__hidden_size": (64, f"model.hidden_size = 64: the model table has {MODEL.hidden}"),
    "model__intermediate_size": (1, "model.intermediate_size = 1: the model table has"),
    "model__shared_experts": (0, "model.shared_experts = 0: the model table has 1"),
    "model__shared_gate": ("none", "model.shared_gate = 'none': the model table has 'sigmoid'"),
    "workload__token_count": (2, "routing.topk_indices: must be 2 rows"),
    "routing__topk_weights": ([[0.5] * 8] * 2, "routing.topk_weights: must be 3 rows"),
    "routing__topk_indices": ([[0] * 8] * 3, "routing.topk_indices[0][1] = 0: token 0 already"),
}


@pytest.mark.parametrize("field", CONTRADICTIONS)
def test_a_trace_that_contradicts_the_table_is_refused_by_field(tmp_path, capsys, field):
    value, message = CONTRADICTIONS[field]
    path = trace_file(tmp_path, trace_of(**{field: value}))
    assert run(tmp_path, *TINY, "--routing", "trace", path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{path}: {message}" in captured.err
    assert not (tmp_path / "out").exists()


ERRORS = {
    "unknown model": (["--model", "mixtral"], ["mixtral", "mixtral-8x7b", "deepseek-v3"]),
    "no tokens": (["--tokens", "0"], ["tokens = 0", "at least 1"]),
    "routing without a file": (["--routing", "trace"], ["--routing trace", "device"]),
    "missing trace": (["--routing", "trace", "nowhere.json"], ["nowhere.json"]),
    "order of pair-major": (
        ["--lowering", "pair", "--accumulate", "expert"],
        ["pair-major adds in pair order"],
    ),
    "too many tokens": (["--tokens", "400", "--lowering", "pair"], ["INT_MEM", "tokens"]),
    "no layers": (["--layers", "0"], ["layers = 0", "at least 1"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_request_that_cannot_run_says_why(tmp_path, capsys, name):
    arguments, words = ERRORS[name]
    assert run(tmp_path, *TINY, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "out").exists()


def test_a_model_at_its_public_size_is_told_to_scale(tmp_path, capsys):
    assert run(tmp_path, "--model", "mixtral-8x7b", "--config", "tiny") == 2
    error = capsys.readouterr().err
    assert "vector SRAM" in error
    assert "mixtral-8x7b is at its public size (add --scale)" in error


def test_the_trace_says_how_many_tokens_there_are(tmp_path, capsys):
    path = trace_file(tmp_path, trace_of())
    assert run(tmp_path, *TINY, "--routing", "trace", path, "--tokens", "4") == 2
    assert "--tokens 4: the trace t has 3" in capsys.readouterr().err
