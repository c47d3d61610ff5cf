"""The warning about routed programs that mostly have no stage, and where a person sees it."""

import pytest

from isa.assembler import assemble
from sim.profile import coverage_warning, write_profile
from sim.profile.__main__ import main
from sim.profile.classification import classify
from tests.sim.test_sim_profile_example import NOTE, example

WORD = "S_ADDI_INT gp1, gp0, 1\n"
ROUTED = f"; @stage=expert_projection\n{WORD}"


@pytest.mark.parametrize(
    ("source", "share"),
    [
        (WORD + ROUTED, None),  # one half is no more than one half
        (WORD * 2 + ROUTED, "66.7%"),
        (WORD * 3 + f"; router token 1\n{WORD}", "75.0%"),
        (WORD * 3 + f"; step6_pair3\n{WORD}", "100.0%"),
        (WORD * 9, None),  # nothing is routed
        (f"{WORD * 9}; @stage=shared_expert_projection\n{WORD}", None),
        ("", None),
    ],
)
def test_when_it_warns(source: str, share: str | None) -> None:
    warning = coverage_warning({"classification": classify(assemble(source), {}, NOTE)})
    if share is None:
        assert warning is None
    else:
        assert warning is not None
        assert share in warning
        assert "; @stage=NAME" in warning


def test_show_has_the_warning_and_the_branches(tmp_path, capsys) -> None:
    profile = example()
    path = tmp_path / "profile.json"
    write_profile(profile, path)
    assert main(["show", str(path)]) == 0
    text = capsys.readouterr().out
    assert "branches in ps: shared 37500, routed 105000" in text
    assert "warning" not in text
    classification = profile["classification"]
    classification["unclassified_labels"] = classification["label_count"]
    classification["unclassified_fraction"] = 1.0
    write_profile(profile, path)
    assert main(["show", str(path)]) == 0
    assert "warning: 100.0% of this routed program's instructions" in capsys.readouterr().out
