"""Profiles for a person: the tables, and how the time splits between the branches."""

import io
from typing import Any

import pytest

from isa.stages import BRANCH_OF, Branch, Stage
from sim.profile import (
    branch_split,
    build_profile,
    report_console,
    stage_table,
)
from sim.profile.tables import share, short_bytes, short_count
from tests.sim.test_sim_profile_example import NOTE, example, scaled
from tests.sim.test_sim_profile_files import version_4


def rendered(profile: dict[str, Any]) -> str:
    out = io.StringIO()
    report_console(out).print(stage_table(profile))
    return out.getvalue()


def row(text: str, label: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [label])


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
