"""The proof about stage tags holds, is about something, and notices broken machines."""

import importlib.util

import pytest

from testbench.formal import __main__ as command
from testbench.formal.builder import FormalToolsMissing
from testbench.formal.mutants import MUTANTS, ROOT, run_mutant

INSTALL = "the package bitwuzla is not installed: pip install 'plena-sim[formal]'"


def test_list_names_every_check_and_mutant(capsys):
    assert command.main(["--list"]) == 0
    text = capsys.readouterr().out
    for name in (*command.CHECKS, *(mutant.name for mutant in MUTANTS)):
        assert name in text


def test_an_unknown_name_is_a_usage_error(capsys):
    assert command.main(["--run", "nothing"]) == 2
    assert "'nothing': see --list" in capsys.readouterr().err


def test_a_missing_solver_is_named(capsys, monkeypatch):
    def missing():
        raise FormalToolsMissing("the package bitwuzla is not installed")

    monkeypatch.setattr(command, "solver_module", missing)
    assert command.main(["--run", "proof"]) == 2
    assert "error: the package bitwuzla is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_source(mutant):
    for edit in mutant.edits:
        text = (ROOT / edit.path).read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{edit.path}: {edit.old!r}"
        compile(text.replace(edit.old, edit.new), edit.path, "exec")


@pytest.mark.slow
def test_the_solver_is_installed():
    assert importlib.util.find_spec("bitwuzla") is not None, INSTALL


@pytest.mark.slow
@pytest.mark.parametrize("name", ["proof", "bounded", "reachable"])
def test_it_holds(name):
    assert importlib.util.find_spec("bitwuzla") is not None, INSTALL
    held, said = command.CHECKS[name](command.DEPTH)
    assert held, said


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_machine_has_a_counterexample_in_the_simulator_too(mutant):
    assert importlib.util.find_spec("bitwuzla") is not None, INSTALL
    caught, said = run_mutant(mutant, command.DEPTH)
    assert caught, said
    assert "and in the simulator" in said
