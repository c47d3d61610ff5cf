"""`python -m testbench.router` and `python -m testbench.router_policy`: output, artefacts, exit
codes, errors, and defects that they must see."""

import dataclasses
import json
import re

import numpy as np
import pytest

from compiler.models import MODELS
from isa.config import PRESETS
from isa.image import ProgramImage
from sim.profile import read_profile
from testbench import policy_case, policy_workload, router, router_case, router_policy
from testbench.artefacts import FILES
from testbench.policy_case import POLICIES, encoding_problems, policy_data, policy_program
from tests.conftest import needs_compiler

TINY = PRESETS["tiny"]
ON_TINY = ["--config", "tiny", "--engine", "compiled"]

pytestmark = needs_compiler


@pytest.fixture
def run(tmp_path):
    """Runs a command into `tmp_path`; its exit code."""
    return lambda command, *arguments: command.main([*arguments, "--build-dir", str(tmp_path)])


def test_the_six_policies_pass_and_each_leaves_its_artefacts(run, tmp_path, capsys) -> None:
    assert run(router_policy, "--all", *ON_TINY, "--lockstep") == 0
    text = capsys.readouterr().out
    assert text.rstrip().endswith("PASS")
    for words in ("fixed, rmask 0", "fixed, rmask 1", "register, policy 15364", "255 "):
        assert words in text
    assert {p.name for p in tmp_path.iterdir()} == set(POLICIES)
    shapes = {name: (s.experts, s.top_k) for name, s in POLICIES.items()}
    assert shapes == {
        "gpt_oss": (32, 4),
        "qwen3_moe": (128, 8),
        "llama4_scout": (16, 1),
        "qwen2_moe": (60, 4),
        "deepseek_v2_lite": (64, 6),
        "deepseek_v3": (256, 8),
    }
    for name, (experts, top_k) in shapes.items():
        out = tmp_path / name
        assert {p.name for p in out.iterdir()} == set(FILES.values())
        report = json.loads((out / "report.json").read_text())
        assert (report["verdict"], report["experts"]) == ("PASS", experts)
        assert report["indices"][0][0] == experts - 1
        result, reference = (np.load(out / f"{n}.npy") for n in ("result", "reference"))
        assert result.shape == (3, top_k)
        assert np.array_equal(result, reference)
        profile = read_profile(out / "stage_profile.json")
        assert profile["stages"]["router_topk"]["instructions"] == report["instructions"]


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (9, 3), (64, 16), (1023, 2), (1024, 1), (33, 4)])
def test_any_other_shape(run, capsys, shape: tuple[int, int]) -> None:
    experts, top_k = map(str, shape)
    assert run(router_policy, "--experts", experts, "--top-k", top_k, *ON_TINY, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["encoding"] == f"register, policy {shape[0] << 8 | shape[1]}"
    assert report["verdict"] == "PASS"


def test_policy_data_is_what_the_page_asks_for() -> None:
    data = policy_data(TINY, 60, 4)
    assert data.logits.shape == (3, 64)
    for row in data.logits.astype(np.float32):
        winners = np.sort(row[:60][row[:60] != -100])[::-1]
        assert len(winners) == 6
        assert winners[0] == 8
        steps = -np.diff(winners)
        assert (steps == 0).sum() == 1
        assert set(steps) <= {0, 0.5, 1}
        assert row[59] != -100
    # Garbage behind the last expert that would win, or be NaN.
    assert not (data.logits[:, 60:].astype(np.float32) <= 8).any()
    assert data.indices[0, 0] == 59
    # The second token's two best are equal: the smaller index comes first, with the same weight.
    first, second = data.indices[1, :2]
    assert first < second
    assert data.weights[1, 0] == data.weights[1, 1]


def test_a_wrong_encoding_is_seen(run, capsys, monkeypatch) -> None:
    """The fallback to a fixed code gives right results for 32/4, and must fail all the same."""
    right = policy_program(TINY, 32, 4)
    words = right.image.words.copy()
    words[3] = words[3] & ~np.uint32(0xF << 18) | np.uint32(15 << 18)
    wrong = dataclasses.replace(right, image=dataclasses.replace(right.image, words=words))
    assert (
        "V_TOPK gp1, gp2, gp3, 15 instead of V_TOPK gp1, gp2, gp3, 0" in encoding_problems(wrong)[0]
    )
    fixed = {0: (60, 4)}
    monkeypatch.setattr(policy_case, "FIXED_SHAPES", fixed)
    assert run(router_policy, "--policy", "qwen2_moe", *ON_TINY) == 1
    assert "encoding of 4 of 60: word 3" in capsys.readouterr().out


def test_a_wrong_weight_or_index_fails(run, capsys, monkeypatch) -> None:
    made = policy_workload.policy_data

    def wrong(*arguments, **options):
        data = made(*arguments, **options)
        data.indices[1, 0] += 1
        data.weights[2, 1] = data.weights[2, 0]
        return data

    monkeypatch.setattr(policy_workload, "policy_data", wrong)
    assert run(router_policy, "--policy", "deepseek_v3", *ON_TINY) == 1
    text = capsys.readouterr().out
    assert "indices: 1 of 24 elements differ" in text
    assert "weights: 1 of 24 elements differ" in text
    assert "token 2, rank 1: weight" in text
    assert text.rstrip().endswith("FAIL")


def test_all_routers_pass_with_a_line_each(run, tmp_path, capsys) -> None:
    assert run(router, "--all", *ON_TINY, "--tokens", "5") == 0
    text = capsys.readouterr().out
    assert text.rstrip().endswith("PASS")
    assert {p.name for p in tmp_path.iterdir()} == set(MODELS)
    for name in MODELS:
        assert name in text
        report = json.loads((tmp_path / name / "report.json").read_text())
        assert report["definition"]["unexplained"] == []
        assert report["definition"]["tokens"] == 5


def test_one_router_shows_the_definition_and_each_difference(run, tmp_path, capsys) -> None:
    assert run(router, "--model", "glm-4.5", "--scale", "--tokens", "30", *ON_TINY) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "definition in float32: 29 of 30 tokens get the same experts" in text
    assert "a tie in BF16" in text
    assert "explained by rounding" in text
    image = ProgramImage.load(tmp_path / "image.json")
    assert image.stage_counts() == {"router_topk": len(image.words)}


def test_what_rounding_does_not_explain_fails(run, capsys, monkeypatch) -> None:
    """Two tokens that get each other's experts."""
    right = router_case.route

    def exchanged(spec, logits, **options):
        routing = right(spec, logits, **options)
        return dataclasses.replace(routing, indices=routing.indices[[1, 0, 2, 3]])

    monkeypatch.setattr(router_case, "route", exchanged)
    assert run(router, "--model", "deepseek-v3", "--scale", "--tokens", "4", *ON_TINY) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "indices: 16 of 32 elements differ" in text
    assert "NOT explained by rounding" in text


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (router, ["--model", "deepseek-v3"], r"needs 28672 rows.*--scale runs deepseek-v3"),
        (router, ["--model", "mixtral"], "model 'mixtral': unknown; did you mean mixtral-8x7b"),
        (router, ["--all", "--tokens", "0"], "tokens = 0: must be at least 1"),
        (router, ["--all", "--timeline", "t.json"], "--timeline writes one file"),
        (router_policy, [], "give one of --policy NAME, --all"),
        (router_policy, ["--all", "--policy", "gpt_oss"], "give one of"),
        (router_policy, ["--experts", "4"], "a shape is --experts N and --top-k K: give both"),
        (router_policy, ["--experts", "4", "--top-k", "5"], "top_k = 5: must be 1 to experts = 4"),
        (router_policy, ["--policy", "gptoss"], "policy 'gptoss': unknown; did you mean gpt_oss"),
    ],
)
def test_requests_that_cannot_be_run(run, capsys, tmp_path, command, arguments, message) -> None:
    config = [] if "deepseek-v3" in arguments else ["--config", "tiny"]
    assert run(command, *arguments, *config, "--engine", "compiled") == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert re.search(message, error)
    assert list(tmp_path.iterdir()) == []
