"""The command `python -m testbench.shared_moe`: output, artefacts, exit codes and errors."""

import json

import numpy as np
import pytest

from isa.image import ProgramImage
from sim.profile import read_profile
from testbench import shared_case, shared_moe
from testbench.artefacts import FILES

TINY = ["--config", "tiny", "--rows", "3", "--engine", "pysim"]


def run(tmp_path, *arguments):
    return shared_moe.main([*arguments, "--build-dir", str(tmp_path / "out")])


def test_a_passing_run_prints_one_table_and_leaves_every_artefact(tmp_path, capsys):
    assert run(tmp_path, *TINY, "--arch", "qwen2") == 0
    text = capsys.readouterr().out
    assert text.rstrip().endswith("PASS")
    for word in (
        "shared_expert_gate",
        "shared_expert_projection",
        "cycles",
        "engine pysim",
        "sigmoid gate",
    ):
        assert word in text
    out = tmp_path / "out"
    assert {p.name for p in out.iterdir()} == set(FILES.values())
    image = ProgramImage.load(out / "image.json")
    listing = (out / "listing.txt").read_text()
    assert "M_MM 0, " in listing
    assert "shared_expert_projection" in listing
    assert f"{int(image.words[5]):08X}" in listing.upper()
    profile = read_profile(out / "stage_profile.json")
    report = json.loads((out / "report.json").read_text())
    assert profile["total_simulation_cycles"] == report["cycles"]
    assert report["verdict"] == "PASS"
    result, reference = (np.load(out / name) for name in ("result.npy", "reference.npy"))
    assert result.shape == reference.shape == (3, 8)
    assert np.array_equal(result, reference)
    assert np.any(result)


def test_json_is_the_only_output(tmp_path, capsys):
    assert run(tmp_path, *TINY, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "PASS"
    assert report["stages"]["shared_expert_gate"]["instructions"] == 0
    assert {c["name"] for c in report["comparisons"]} >= {
        "x",
        "activation",
        "output",
        "accumulator",
    }


def test_serial_and_routed_accumulator(tmp_path, capsys):
    assert run(tmp_path, *TINY, "--issue", "serial", "--with-routed-accumulator", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["issue"] == "serial"
    assert report["overlap_cycles"] == 0
    assert report["stages"]["accumulator_init"]["instructions"] == 0


def test_a_wrong_result_fails_with_the_report(tmp_path, capsys, monkeypatch):
    build = shared_case.build_case

    def wrong(*args, **options):
        case = build(*args, **options)
        case.total[2, 5] = -case.total[2, 5]
        return case

    monkeypatch.setattr(shared_moe, "build_case", wrong)
    assert run(tmp_path, *TINY, "--data", "random") == 1
    text = capsys.readouterr().out
    assert text.rstrip().endswith("FAIL")
    assert "row 2 column 5" in text
    assert "want 0x" in text
    assert "V_ADD_VV" in text


def test_a_saturated_gate_fails(tmp_path, capsys, monkeypatch):
    make = shared_case.shared_expert_data

    def saturating(*args, **options):
        data = make(*args, **options)
        data.gate_weight[:] = data.gate_weight * 256
        return data

    monkeypatch.setattr(shared_case, "shared_expert_data", saturating)
    assert run(tmp_path, *TINY, "--arch", "qwen2") == 1
    assert "sigmoid gate of token" in capsys.readouterr().err


def toml(tmp_path, name, text) -> str:
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return str(path)


ERRORS = {
    "bad TOML value": (
        lambda tmp: ["--config", toml(tmp, "bad", "MLEN = 12\n")],
        ["MLEN = 12", "power of two", "bad.toml"],
    ),
    "unknown configuration": (lambda _: ["--config", "huge"], ["huge", "tiny, small, default"]),
    "shape not a multiple": (lambda _: [*TINY, "--hidden", "12"], ["hidden = 12", "MLEN", "16"]),
    "unknown arch": (lambda _: [*TINY, "--arch", "deepsek"], ["deepsek", "deepseek", "qwen2"]),
    "no rows": (lambda _: ["--config", "tiny", "--rows", "0"], ["rows = 0", "at least 1"]),
    "too many rows for FP_MEM": (
        lambda tmp: [
            *("--config", toml(tmp, "narrow", 'base = "tiny"\nFP_MEM_WORDS = 32\n')),
            *("--arch", "qwen2", "--rows", "40"),
        ],
        ["40", "FP_MEM"],
    ),
    "too many rows for vector SRAM": (
        lambda _: ["--config", "tiny", "--rows", "600"],
        ["vector SRAM", "600"],
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_request_that_cannot_run_says_why_and_leaves_nothing(tmp_path, capsys, name):
    arguments, words = ERRORS[name]
    assert run(tmp_path, *arguments(tmp_path)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "out").exists()


def test_the_watchdog_fails_the_run_and_names_who_waits(tmp_path, capsys):
    assert run(tmp_path, *TINY, "--max-cycles", "60") == 1
    text = capsys.readouterr().out
    assert "WATCHDOG at cycle 60" in text
    assert "raise the cycle limit" in text
    assert "unfinished, oldest first:" in text
    left = {p.name for p in (tmp_path / "out").iterdir()}
    assert FILES["result"] not in left
    assert not any("tmp" in name for name in left)


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        shared_moe.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "bit for bit" in text
    assert "Exit code" in text
