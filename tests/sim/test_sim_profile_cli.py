"""The command `python -m sim.profile`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from isa.assembler import assemble
from isa.config import PRESETS
from rtl.profile import COUNTERS
from sim.profile import (
    read_profile,
    write_profile,
)
from sim.profile.__main__ import main
from tests.sim.test_sim_profile_example import NOTE, example
from tests.sim.test_sim_profile_files import version_4
from tests.sim.test_sim_profile_sums import slower
from tests.sim.test_sim_profile_tables import row


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_profile(example(), tmp_path / "p.json")
    return tmp_path / "p.json"


def test_show_lists_the_dearest_pairs(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*options: str) -> list[list[str]]:
        assert main(["show", str(saved), *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split() for line in lines if line.split()[-2:-1] == ["expert_projection"]]

    both = [
        ["2", "30", "30.0%", "5", "0", "B", "64", "B", "expert_projection", "100.0%"],
        ["10", "20", "20.0%", "4", "0", "B", "0", "B", "expert_projection", "100.0%"],
    ]
    assert shown() == both
    assert shown("--pairs", "1") == both[:1]
    assert shown("--pairs", "0") == []


def test_the_printed_schema_accepts_the_profile_and_nothing_more(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema"]) == 0
    validator = Draft202012Validator(json.loads(capsys.readouterr().out))
    profile = json.loads(saved.read_text())
    validator.validate(profile)
    assert not validator.is_valid({**profile, "extra": 1})
    del profile["stages"]["gather"]
    assert not validator.is_valid(profile)


def test_every_counter_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["counters"]) == 0
    words = capsys.readouterr().out.split()
    assert set(COUNTERS) <= set(words)


def test_show(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(saved)]) == 0
    text = capsys.readouterr().out
    assert "dispatches and stalls" in text
    assert "accounting: profiled_time_matches_total" in text
    assert "shared 37500, routed 105000, plumbing 0, outside 7500" in text
    assert "0.2632" in text
    stalls = row(text.partition("dispatches and stalls")[2], "expert_projection")
    assert stalls[1:] == ["10", "10", "10", "25", "0", "0", "0", "40"]
    stalls = row(text.partition("dispatches and stalls")[2], "total")
    assert stalls[1:] == ["20", "20", "10", "25", "30", "3", "12", "40"]
    assert f"note: {NOTE}" in text
    assert "no non_moe marker" not in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_show_warns_of_what_the_tags_do_not_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "S_ADDI_INT gp1, gp0, 1\n; @stage=expert_bias\nS_ADDI_INT gp1, gp0, 1\n; @stage=typo\n"
    write_profile(example(image=assemble(source, strict=False)), tmp_path / "p.json")
    assert main(["show", str(tmp_path / "p.json")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 instructions of the program have no stage" in text
    assert "stage names not in the vocabulary: typo" in text
    assert "the last 1 instructions of the program count as expert_bias" in text


def test_show_reads_version_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_text(json.dumps(version_4()), encoding="utf-8")
    assert main(["show", str(tmp_path / "p.json")]) == 0
    assert "dispatches and stalls" not in capsys.readouterr().out


def test_diff(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_profile(slower(), tmp_path / "b.json")
    assert main(["diff", str(saved), str(tmp_path / "b.json")]) == 1
    text = capsys.readouterr().out
    assert row(text, "shared_expert_projection")[1:] == [
        *("37500", "52500", "+15000", "+40.0%"),
        *["busy", "hbm", "+10,", "stall", "memory", "+10,", "busy", "matrix", "-1"],
    ]
    assert row(text, "total")[1:] == ["150000", "165000", "+15000", "+10.0%"]
    assert "stages that differ: 1; most: shared_expert_projection by +15000 ps" in text
    assert "not the same experiment" not in text
    assert main(["diff", str(saved), str(saved)]) == 0
    assert "no stage differs" in capsys.readouterr().out


def test_diff_names_what_makes_it_another_experiment(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(example(issue="serial", config=PRESETS["tiny"]), tmp_path / "b.json")
    assert main(["diff", str(saved), str(tmp_path / "b.json")]) == 1
    text = capsys.readouterr().out
    assert "not the same experiment: issue policy: overlap and serial" in text
    assert "not the same experiment: clock period in ps: 1500 and 1000" in text


def test_merge(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sum.json"
    assert main(["merge", str(saved), str(saved), "-o", str(out)]) == 0
    assert "2 runs, 300000 ps, 40 instructions" in capsys.readouterr().out
    assert read_profile(out)["dispatch"]["runs"] == 2


def test_merge_refuses_mixed_profiles(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(example(issue="serial"), tmp_path / "b.json")
    out = tmp_path / "sum.json"
    assert main(["merge", str(saved), str(tmp_path / "b.json"), "-o", str(out)]) == 1
    error = capsys.readouterr().err
    assert str(saved) in error
    assert str(tmp_path / "b.json") in error
    assert not out.exists()


@pytest.mark.parametrize("content", [None, "{}", "nonsense"])
def test_files_that_cannot_be_read(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    for command in (["show"], ["diff", str(path)], ["merge", "-o", str(tmp_path / "o.json")]):
        assert main([*command, str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ")
        assert str(path) in captured.err


def test_as_a_program(saved: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sim.profile", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    shown = run("show", str(saved))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "router_topk" in shown.stdout
    assert "\x1b" not in shown.stdout
    usage = run()
    assert usage.returncode == 2
    assert "COMMAND" in usage.stderr


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["show"], ["diff"], ["merge"]):
        with pytest.raises(SystemExit) as caught:
            main([*arguments, "--help"])
        assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "exit code" in text
    assert "oldest unfinished instruction" in text
