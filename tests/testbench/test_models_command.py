"""The command `python -m testbench.models`."""

import json

from compiler import MODELS
from isa.config import PRESETS
from testbench import models


def test_the_table_has_a_row_for_every_model(capsys) -> None:
    assert models.main([]) == 0
    text = capsys.readouterr().out
    for name, model in MODELS.items():
        assert f"{name} " in text
        assert f"{model.top_k} of {model.experts}" in text
    words = " ".join(text.replace("\u2502", " ").split())
    assert "exact in real" in words
    assert "1, width 512, gated" in words


def test_one_model_shows_the_source_of_every_value(capsys) -> None:
    assert models.main(["--model", "llama4-scout"]) == 0
    text = capsys.readouterr().out
    assert "meta-llama/Llama-4-Scout-17B-16E" in text
    for field in MODELS["llama4-scout"].sources:
        assert field in text
    assert "text_config.num_local_experts" in text


def test_json_at_the_scaled_size(capsys) -> None:
    assert models.main(["--scale", "tiny", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.keys() == MODELS.keys()
    small = MODELS["deepseek-v2"].scaled(PRESETS["tiny"])
    row = shown["deepseek-v2"]
    assert (row["experts"], row["hidden"]) == (small.experts, small.hidden)
    assert row["rule"]["group_score"] == "the best score in the group"
    assert row["shared"] == {"count": 2, "width": 2 * small.intermediate, "gated": False}
    assert row["v_topk_alone"] == "no"


def test_an_unknown_model_is_refused(capsys) -> None:
    assert models.main(["--model", "gpt-oss"]) == 2
    assert "did you mean gpt-oss-20b" in capsys.readouterr().err
