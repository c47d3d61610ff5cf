"""The table of injected defects fits the code; `python -m testbench.defects --all` injects them."""

import re

import pytest

from testbench import defects
from testbench.defect_table import DEFECTS, Defect, Edit

#: attribution.md, "Injected defects that the tests must catch", and where it is in the table.
REQUIRED = {
    *("topk_packing_shift", "markers_not_emitted", "gate_multiply_dropped"),
    *("shared_marked_as_routed", "stage_typo", "call_site_removed", "unclassified_stage"),
    *("guard_unwired", "tag_dropped_in_dispatcher", "tag_off_by_one", "counter_counts_issue"),
    "topk_reads_128",
}


def test_every_required_defect_is_there_once():
    names = [defect.name for defect in DEFECTS]
    assert len(names) == len(set(names))
    assert set(names) >= REQUIRED


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: d.name)
def test_the_defect_fits_the_code(defect):
    for edit in defect.edits:
        text = (defects.ROOT / edit.path).read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{edit.path}: {edit.old!r}"
        assert edit.old != edit.new
        assert edit.path.split("/")[0] in defects.COPIED
    path, _, test = defect.check.partition("::")
    text = (defects.ROOT / path).read_text(encoding="utf-8")
    name = re.sub(r"\[.*", "", test)
    assert not name or f"def {name}(" in text


def test_a_defect_that_no_longer_fits_is_an_error():
    stale = Defect("stale", "nothing", (Edit("isa/stages.py", "no such text", ""),), "tests")
    with pytest.raises(ValueError, match=r"stale: its text occurs 0 times in isa/stages.py"):
        defects.run_defect(stale)


def test_the_command_lists_and_refuses(capsys):
    assert defects.main(["--list"]) == 0
    assert "unclassified_stage" in capsys.readouterr().out
    assert defects.main(["--run", "nothing"]) == 2
    assert "known: markers_not_emitted" in capsys.readouterr().err
