"""The conditions for an instruction for shared experts: what they measure, what they say."""

import json

import pytest

from isa.config import PRESETS
from testbench import triggers
from testbench.defect_table import DEFECTS
from testbench.shared_case import spec_of


@pytest.fixture
def one_engine(engine, monkeypatch):
    """The command takes the engines that the other tests use: elaboration is slow."""
    monkeypatch.setattr(triggers, "make_engine", lambda _name, config: engine(config))


@pytest.mark.parametrize("name", ["tiny", "small", "default"])
def test_the_gate_does_not_unroll_over_tokens(name):
    config = PRESETS[name]
    spec = spec_of("qwen2", hidden=config.MLEN, intermediate=config.MLEN)
    words = {
        rows: triggers.gate_words(triggers.fitting(config, spec, rows), spec, rows)
        for rows in (64, 128, 512)
    }
    assert words[64] == words[128] == words[512] > 0


def test_the_gate_is_a_small_part_of_the_instruction_memory():
    config = PRESETS["default"]
    spec = spec_of("qwen2", hidden=config.MLEN, intermediate=config.MLEN)
    assert triggers.gate_words(config, spec, 64) < triggers.THRESHOLD * config.IMEM_WORDS


def test_vector_sram_grows_only_when_it_must():
    config = PRESETS["tiny"]
    spec = spec_of("qwen2", hidden=config.MLEN, intermediate=config.MLEN)
    assert triggers.fitting(config, spec, 64) is config
    assert triggers.fitting(config, spec, 512).VRAM_ROWS > config.VRAM_ROWS


def test_every_defect_is_placed():
    names = {defect.name for defect in DEFECTS}
    placed = triggers.ATTRIBUTION_DEFECTS | triggers.OTHER_DEFECTS
    assert not triggers.ATTRIBUTION_DEFECTS & triggers.OTHER_DEFECTS
    assert placed == names, f"place in testbench/triggers.py: {sorted(placed ^ names)}"


@pytest.mark.usefixtures("one_engine")
def test_cost_is_a_share_of_the_moe_cycles():
    trigger = triggers.measure_cost(PRESETS["tiny"], "auto", (4, 8))
    for row in trigger.rows:
        assert 0 < row["gate_cycles"] < row["moe_cycles"]
        assert row["cycle_share"] == row["gate_cycles"] / row["moe_cycles"]
    shares = [row[key] for row in trigger.rows for key in ("cycle_share", "word_share")]
    assert trigger.measured == max(shares)
    assert trigger.fires == (trigger.measured >= 0.10)


@pytest.mark.usefixtures("one_engine")
def test_every_variant_lowers_exactly():
    trigger = triggers.lower_variants("auto")
    wrong = [row for row in trigger.rows if not row["exact"]]
    assert not wrong
    assert not trigger.fires
    seen = {(row["gate"], row["bias"]) for row in trigger.rows}
    assert seen == {(False, False), (True, False), (False, True), (True, True)}
    assert {row["count"] for row in trigger.rows} == {1, 2, 3}


@pytest.mark.usefixtures("one_engine")
def test_a_variant_that_is_not_exact_fires(monkeypatch):
    monkeypatch.setattr(triggers, "_run", lambda *_: ([0] * 16, ["x differs"]))
    trigger = triggers.lower_variants("auto")
    assert trigger.fires
    assert trigger.measured == len(triggers.VARIANTS)
    assert trigger.rows[0]["wrong"] == ["x differs"]


def test_a_defect_that_goes_unnoticed_fires(monkeypatch):
    from testbench.defects import Outcome

    survivor = "tag_off_by_one"
    monkeypatch.setattr(triggers, "run_defect", lambda d: Outcome(d, d.name != survivor, "a test"))
    trigger = triggers.count_misattributions(run=True)
    assert trigger.fires
    assert trigger.measured == 1
    assert [r["defect"] for r in trigger.rows if not r["caught"]] == [survivor]


def test_defects_that_were_not_run_are_not_called_caught():
    trigger = triggers.count_misattributions(run=False)
    assert not trigger.fires
    assert {row["caught"] for row in trigger.rows} == {None}
    assert "not run (--run-defects)" in trigger.remark


@pytest.mark.parametrize("fires", [False, True])
def test_the_exit_code_and_the_document_say_what_fired(capsys, monkeypatch, fires):
    def made(name):
        fired = fires and name == "T1"
        return triggers.Trigger(
            name, "q", 0.5 if fired else 0.0, 0.1, fired, "share", "", [{"a": 1}]
        )

    monkeypatch.setattr(triggers, "measure_cost", lambda *_: made("T1"))
    monkeypatch.setattr(triggers, "count_misattributions", lambda **_: made("T2"))
    monkeypatch.setattr(triggers, "lower_variants", lambda _: made("T3"))
    assert triggers.main(["--json"]) == int(fires)
    document = json.loads(capsys.readouterr().out)
    assert document["fired"] == (["T1"] if fires else [])
    assert [t["name"] for t in document["triggers"]] == ["T1", "T2", "T3"]
    assert triggers.main([]) == int(fires)
    text = capsys.readouterr().out
    assert ("T1 FIRES: 50.0%, fires from 10%" if fires else "no trigger fires") in text


def test_a_request_that_cannot_be_run_is_not_a_verdict(capsys):
    assert triggers.main(["--config", "nothing"]) == 2
    assert "error: " in capsys.readouterr().err
