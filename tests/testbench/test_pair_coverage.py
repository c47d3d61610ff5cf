"""Dependencies between neighbours: derived from the table, measured, and made when missing."""

import json
from pathlib import Path

import pytest

from isa.assembler import assemble
from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC
from isa.traps import Trap
from sim.hbm import HbmDevice
from sim.machine import Machine
from testbench.fuzz.coverage import PairCoverage
from testbench.fuzz.dependencies import ADJACENT, Dependency, between, possible
from testbench.fuzz.directed import directed_case
from testbench.pair_coverage import main
from tests.conftest import needs_compiler

TINY = PRESETS["tiny"]


def measured(text: str, setup: int = 0) -> set[str]:
    """What occurs on the machine behind the first `setup` instructions, without adjacency."""
    image = assemble(text, config=TINY)
    machine, coverage = Machine(TINY, image, HbmDevice(TINY)), PairCoverage()
    while machine.pc < len(image.words):
        if machine.pc == setup:
            coverage.begin()
            coverage.counts.clear()
        coverage.saw(machine, int(image.words[machine.pc]))
        assert machine.step() is None
    return {str(d) for d in coverage.counts if d.hazard != ADJACENT}


def test_the_table_says_what_two_neighbours_can_have():
    assert len([d for d in possible() if d.hazard == ADJACENT]) == len(BY_MNEMONIC) ** 2
    found = {str(d) for d in between("S_LD_INT", "M_MM_WO")}
    assert found == {
        "S_LD_INT; M_MM_WO",
        "S_LD_INT.rd; M_MM_WO.rd: RAW through gp",
        "S_LD_INT.rd; M_MM_WO.rs1: RAW through gp",
    }
    accumulator = {d.hazard for d in between("M_MM", "M_MM_WO") if d.resource == "m_acc"}
    assert accumulator == {"RAW", "WAR", "WAW"}
    assert not [d for d in between("V_ADD_VF", "S_ADD_FP") if d.resource == "vector SRAM"]


BASES = "S_ADDI_INT gp1, gp0, 8\nS_ADDI_INT gp2, gp0, 16\nS_ADDI_INT gp3, gp0, 4\n"


@pytest.mark.parametrize(
    ("pair", "found"),
    [
        ("V_EXP_V gp1, gp2\nV_EXP_V gp2, gp1", {"RAW", "WAR"}),
        ("V_EXP_V gp1, gp2\nV_EXP_V gp1, gp2", {"WAW"}),
        ("V_EXP_V gp0, gp1\nV_EXP_V gp2, gp1", set()),
        ("V_EXP_V gp2, gp0\nM_MM 0, gp0, gp0", {"RAW"}),
        ("M_MV_WO gp1, 4\nM_MV_WO gp1, 0", {"WAR v", "RAW v", "WAW v"}),
        ("M_MV_WO gp1, 4\nV_EXP_V gp2, gp1", {"RAW"}),
        ("M_MM_WO gp0, gp3, 0\nV_EXP_V gp2, gp1", set()),
        ("M_MM_WO gp0, gp0, 0\nV_EXP_V gp2, gp1", {"RAW", "WAW"}),
    ],
)
def test_ranges_and_lanes_decide_whether_accesses_meet(pair: str, found: set[str]):
    words = {text.split(": ")[1] for text in measured(BASES + pair, setup=3)}
    short = {w.replace(" through vector SRAM", "").replace(" through v_acc", " v") for w in words}
    assert short == found


def test_flags_decide_what_is_read():
    mask = "S_ADDI_INT gp1, gp0, 1\nC_SET_V_MASK_REG gp1\nV_EXP_V gp0, gp0, "
    assert measured(mask + "1", setup=1) == {"C_SET_V_MASK_REG; V_EXP_V: RAW through V_MASK"}
    assert measured(mask + "0", setup=1) == set()
    zero = measured("S_ADDI_INT gp0, gp0, 1\nS_ADDI_INT gp1, gp0, 1")
    assert zero == set()  # gp0 is nobody's


def made(dependencies: list[Dependency]) -> list[Dependency]:
    """Those that the directed programs do not make, on the machine."""
    coverage = PairCoverage()
    for i in range(0, len(dependencies), 24):
        case = directed_case(TINY, dependencies[i : i + 24], i)
        hbm, image = case.hbm(), case.image()
        machine = Machine(TINY, image, hbm)
        case.contents.load(machine.memories, hbm)
        coverage.begin()
        while machine.pc < len(image.words):
            coverage.saw(machine, int(image.words[machine.pc]))
            halt = machine.step()
            if halt is not None:
                assert halt.cause is Trap.BREAK, halt
                machine.step_over()
    return [d for d in dependencies if not coverage.counts[d]]


def test_a_directed_program_makes_what_it_is_for():
    sample = possible()[::9]
    assert {d.resource for d in sample} >= {"gp", "f", "vector SRAM", "V_MASK", "hm_acc", ""}
    rare = ("a", "HBM", "matrix SRAM", "TOPK", "loop stack", "SCALE", "STRIDE", "INT_MEM", "FP_MEM")
    assert made(sample + [d for d in possible() if d.resource in rare]) == []


@needs_compiler
def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "coverage.json"
    command = ["--engine", "compiled", "--programs", "2", "--no-directed", "--json", str(file)]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "missing: " in out
    assert "FAIL: incomplete" in out
    report = json.loads(file.read_text())
    assert len(report["dependencies"]) == len(possible())
    seen = sum(bool(d["all"]) for d in report["dependencies"])
    assert 0 < seen == len(possible()) - len(report["missing"])


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("config", ["tiny", "small"])
def test_every_dependency_runs_in_lock_step(config: str, capsys: pytest.CaptureFixture[str]):
    assert main(["--engine", "compiled", "--config", config, "--programs", "10"]) == 0
    assert capsys.readouterr().out.endswith("complete\n")
