"""Profiles for a person: tables, differences, sums, the branch split and the command line."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from isa.assembler import assemble
from isa.config import PRESETS
from isa.stages import BRANCH_OF, Branch, Stage
from rtl.profile import COUNTERS
from sim.profile import (
    MixedProfilesError,
    ProfileError,
    branch_split,
    build_profile,
    check_profile,
    diff_profiles,
    merge_profiles,
    read_profile,
    report_console,
    stage_table,
    write_profile,
)
from sim.profile.__main__ import main
from sim.profile.tables import share, short_bytes, short_count
from tests.sim.test_sim_profile_example import CONFIG, NOTE, example, pair_counts, scaled
from tests.sim.test_sim_profile_files import version_4


def rendered(profile: dict[str, Any]) -> str:
    out = io.StringIO()
    report_console(out).print(stage_table(profile))
    return out.getvalue()


def row(text: str, label: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [label])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_profile(example(), tmp_path / "p.json")
    return tmp_path / "p.json"


# Tables


def test_the_table_has_a_row_per_stage_and_totals() -> None:
    text = rendered(example())
    assert "100 cycles" in text
    assert "engine pysim" in text
    for stage in Stage:
        assert row(text, stage.label)
    busy = ["0", "0", "0", "2", "30", "0"]
    assert row(text, "shared_expert_projection") == [
        *("shared_expert_projection", "25", "25.0%", "5", "512", "B", "0", "B"),
        *busy,
    ]
    assert row(text, "total") == [
        *("total", "100", "100.0%", "20", "512", "B", "64", "B"),
        *("1", "4", "6", "47", "30", "7"),
    ]


def test_the_table_is_plain_and_fits_120_columns_with_the_largest_numbers() -> None:
    text = rendered(build_profile(**scaled(90_000_003)))
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 120
    assert row(text, "total")[1] == "9000000300"  # exactly
    assert "…" not in text
    assert row(text, "shared_expert_projection")[1] == "2250000075"
    assert len(text.splitlines()) < 30  # nothing is folded


def test_a_terminal_narrower_than_the_table_loses_no_digit() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    console = report_console(out)
    console.width = 70
    console.print(stage_table(build_profile(**scaled(90_000_003))))
    assert "…" not in out.getvalue().replace("shared_exper…", "")


def test_a_profile_of_version_4_is_shown_without_units() -> None:
    assert row(rendered(version_4()), "router_topk") == [
        *("router_topk", "20", "20.0%", "4", "0", "B", "0", "B")
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999_999, "999999"),
        (1_000_000, "1.00M"),
        (12_345_678, "12.3M"),
        (999_400_000, "999M"),
        (999_600_000, "1000M"),
        (2_000_000_000, "2.00G"),
        (1 << 48, "281T"),
    ],
)
def test_short_counts(number: int, text: str) -> None:
    assert short_count(number) == text
    assert len(text) <= 6


def test_short_bytes_and_shares() -> None:
    numbers = [0, 1023, 1024, 1536, 10 << 20, 1010 << 20, 1 << 34]
    assert [short_bytes(n) for n in numbers] == [
        *("0 B", "1023 B", "1.00 KiB", "1.50 KiB", "10.0 MiB", "1010 MiB", "16.0 GiB")
    ]
    parts = [0.0, 1e-9, 0.25, 1 - 1e-9, 1.0]
    assert [share(part) for part in parts] == ["0.0%", "<0.1%", "25.0%", ">99.9%", "100.0%"]


# Branches


def test_the_branch_split_of_the_example() -> None:
    split = branch_split(example())
    assert (split.shared_picos, split.routed_picos) == (37_500, 105_000)
    assert split.shared_fraction == 37_500 / 142_500
    assert (split.plumbing_picos, split.outside_picos) == (0, 7_500)
    assert split.note == NOTE


def test_the_branch_split_of_the_specification() -> None:
    picos = {"shared_expert_projection": 300, "router_topk": 200, "expert_projection": 500}
    picos |= {"accumulator_init": 1000, "gather": 1000}
    split = branch_split({"stages": {name: {"wall_picos": p} for name, p in picos.items()}})
    assert (split.shared_picos, split.routed_picos, split.shared_fraction) == (300, 700, 0.3)
    assert split.plumbing_picos == 2000


def test_none_is_not_zero() -> None:
    silent = branch_split({"stages": {"router_topk": {"wall_picos": 5}}})
    assert (silent.shared_picos, silent.routed_picos, silent.shared_fraction) == (None, None, None)
    assert branch_split({"stages": None}).routed_picos is None
    assert branch_split({}).shared_fraction is None
    known = {"shared_expert_gate": {"wall_picos": 0}, "router_topk": {"wall_picos": 5}}
    split = branch_split({"stages": known})
    assert (split.shared_picos, split.routed_picos, split.shared_fraction) == (0, 5, 0.0)
    known["router_topk"]["wall_picos"] = 0
    split = branch_split({"stages": known})
    assert (split.shared_picos, split.routed_picos, split.shared_fraction) == (0, 0, None)


def test_every_stage_counts_in_its_own_branch() -> None:
    zeros = {stage.label: {"wall_picos": 0} for stage in Stage}
    for stage in Stage:
        split = branch_split({"stages": {**zeros, stage.label: {"wall_picos": 7}}})
        picos = {
            Branch.SHARED: split.shared_picos,
            Branch.ROUTED: split.routed_picos,
            Branch.PLUMBING: split.plumbing_picos,
            Branch.OUTSIDE: split.outside_picos,
        }
        assert picos == {branch: 7 if branch is BRANCH_OF[stage] else 0 for branch in Branch}


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


# Sums and differences


def test_the_sum_of_two_runs() -> None:
    unmarked = assemble("; @stage=gather pair=2\nS_ADDI_INT gp1, gp0, 1 ; gather pair\n")
    first, second = example(), example(image=unmarked, engine="compiled")
    merged = merge_profiles([first, second], ["a", "b"])
    check_profile(merged)
    assert merged["total_simulation_picos"] == 300_000
    assert merged["total_simulation_cycles"] == 200
    assert merged["total_instructions_executed"] == 40
    assert merged["total_resource_proxy_cycles"]["matrix"] == 94
    stage = merged["stages"]["shared_expert_projection"]
    assert (stage["wall_cycles"], stage["physical_hbm_bytes_read"]) == (50, 1024)
    assert stage["time_fraction"] == 0.25
    assert list(merged["pairs"]) == ["2", "10"]
    assert merged["pairs"]["2"]["instructions"] == 10
    assert merged["pairs"]["2"]["stages"]["expert_projection"]["wall_cycles"] == 60
    assert merged["pairs"]["2"]["resource_proxy_picos"]["matrix"] == 2 * 21 * 1500
    dispatch = merged["dispatch"]
    assert (dispatch["runs"], dispatch["total_overlap_cycles"]) == (2, 18)
    assert dispatch["engine"] == "pysim, compiled"
    assert dispatch["stages"]["expert_projection"]["busy_cycles"]["matrix"] == 90
    assert dispatch["stages"]["expert_projection"]["stall_cycles"]["hazard"] == 50
    found = merged["classification"]
    assert merged["label_count"] == found["label_count"] == 7
    assert found["moe_region_terminated"] is False  # not in the second program
    assert (found["trailing_stage"], found["trailing_labels"]) == ("gather", 1)
    assert found["vocabulary_terms_present"] == ["router token", "gather pair"]
    assert (found["vocabulary_terms_total"], len(found["vocabulary_terms_absent"])) == (27, 25)
    assert found["stage_instruction_counts"]["expert_projection"] == 20
    assert found["attribution_notes"]["shared_vs_routed"] == NOTE


def test_a_sum_of_one_is_itself_and_sums_of_sums_agree() -> None:
    one = example()
    assert merge_profiles([one], ["a"]) == one
    three = merge_profiles([one, one, one], ["a", "b", "c"])
    assert merge_profiles([merge_profiles([one, one], ["a", "b"]), one], ["ab", "c"]) == three
    assert three["dispatch"]["runs"] == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"config": CONFIG.replace(HBM_LATENCY=25, name="slow")}, "configuration digest"),
        ({"config": PRESETS["tiny"]}, "configuration digest"),
        ({"issue": "serial"}, "issue policy overlap"),
        ({"image": assemble("S_ADDI_INT gp1, gp0, 1\n")}, "origin of tags"),
    ],
)
def test_mixed_profiles_are_not_added(change: dict[str, Any], what: str) -> None:
    with pytest.raises(MixedProfilesError, match=f"cannot merge first and second: {what}"):
        merge_profiles([example(), example(**change)], ["first", "second"])


def test_a_foreign_vocabulary_version_4_and_nothing_are_not_added() -> None:
    foreign = example()
    foreign["stages"]["else"] = foreign["stages"].pop("other")
    with pytest.raises(MixedProfilesError, match="first and second: vocabulary"):
        merge_profiles([example(), foreign], ["first", "second"])
    with pytest.raises(ProfileError, match="old: schema version 4 does not say"):
        merge_profiles([version_4()], ["old"])
    with pytest.raises(ProfileError, match="nothing to merge"):
        merge_profiles([], [])


def slower() -> dict[str, Any]:
    """The example with 10 cycles more of memory stalls and bus use in the shared projection."""
    run = scaled(1)
    shared = Stage.SHARED_EXPERT_PROJECTION
    for name in ("wall", "stall_memory", "busy_hbm"):
        run["counters"][name][shared] += 10
    run["counters"]["busy_matrix"][shared] -= 1
    return build_profile(**{**run, "cycles": 110})


def test_the_difference_says_what_moved() -> None:
    deltas = {delta.label: delta for delta in diff_profiles(example(), slower())}
    assert list(deltas) == [stage.label for stage in Stage]
    shared = deltas["shared_expert_projection"]
    assert (shared.before_picos, shared.after_picos, shared.delta_picos) == (37_500, 52_500, 15_000)
    assert shared.moved == (("busy hbm", 10), ("stall memory", 10), ("busy matrix", -1))
    assert [d.label for d in deltas.values() if d.changed] == ["shared_expert_projection"]


def test_the_difference_with_version_4_compares_what_both_have() -> None:
    deltas = {delta.label: delta for delta in diff_profiles(version_4(), slower())}
    assert deltas["shared_expert_projection"].moved == ()
    assert deltas["non_moe"].before_picos == 0
    assert deltas["non_moe"].moved == (("instructions", 1),)


# Command line


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


def test_pairs_of_different_runs_keep_what_only_one_has() -> None:
    other = example(pair_stats={3: {"gather": pair_counts(0, 0, 0, 0)}})
    merged = merge_profiles([example(), other], ["a", "b"])
    assert list(merged["pairs"]) == ["2", "3", "10"]
    assert merged["pairs"]["3"]["stages"]["gather"]["instructions"] == 0
