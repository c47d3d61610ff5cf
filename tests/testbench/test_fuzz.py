"""Random programs: a short run agrees, a broken machine is caught, made small and saved."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC, OPCODES, Extent
from isa.traps import Trap
from sim.machine import Halt, Machine
from sim.machine.registry import BUILDERS, Step
from testbench.fuzz.__main__ import main, supported
from testbench.fuzz.addresses import AddressRules, Known
from testbench.fuzz.case import Contents, Device, FuzzCase, Line, Loop
from testbench.fuzz.generator import Generator
from testbench.fuzz.run import is_runnable, run_case
from testbench.fuzz.shrink import shrink
from tests.conftest import engine_for

TINY = PRESETS["tiny"]
EVERY = frozenset(BY_MNEMONIC)


def halt_of(case: FuzzCase) -> Halt:
    hbm = case.hbm()
    machine = Machine(case.config, case.image(), hbm)
    case.contents.load(machine.memories, hbm)
    halt = machine.run(max_instructions=20_000)
    while halt.cause is Trap.BREAK:
        halt = machine.resume(max_instructions=20_000)
    return halt


def test_programs_are_legal_but_for_what_is_meant_to_trap(monkeypatch: pytest.MonkeyPatch):
    codes: set[int] = set()
    for meant in (True, False):
        if not meant:
            monkeypatch.setattr("testbench.fuzz.generator.emit_trap", lambda _: None)
            monkeypatch.setattr("testbench.fuzz.generator.near_limits", lambda *_: None)
        causes: Counter[Trap] = Counter()
        for seed in range(80):
            case = Generator(TINY, seed, EVERY).case("overlap")
            halt = halt_of(replace(case, device=Device()))
            causes[halt.cause] += 1
            codes |= {int(word) & 0x3F for word in case.image().words}
        if meant:
            assert causes[Trap.DONE] > 30
            assert len(causes) >= 8
        else:
            assert causes.keys() == {Trap.DONE, Trap.TOPK_POLICY_UNSET}
            assert causes[Trap.TOPK_POLICY_UNSET] < 8
    assert OPCODES.keys() <= codes


def test_a_seed_is_one_program():
    first, again = (Generator(TINY, 5, EVERY).case("overlap") for _ in range(2))
    assert first.source() == again.source()
    assert first.device == again.device
    assert np.array_equal(first.contents.hbm, again.contents.hbm)
    assert Generator(TINY, 6, EVERY).case("overlap").source() != first.source()


def test_known_ranges_decide_what_may_be_addressed():
    rules = AddressRules(TINY)
    row = Known.exactly(16)
    assert rules.allows(row, Extent.ROW)
    assert not rules.allows(row, Extent.TILE)
    assert rules.allows(row.walked(8, 10), Extent.ROW)
    assert not rules.allows(row.walked(4, 10), Extent.ROW)
    assert not rules.allows(Known.exactly(8192 - 8).walked(8, 1), Extent.ROW)
    for extent in (Extent.BLEN_ROWS, Extent.COLUMN_GROUP, Extent.HEAD_SLICE_COLUMNS):
        for seed in range(50):
            address = rules.pick(random.Random(seed), extent)
            assert address % TINY.BLEN == 0 or extent is not Extent.BLEN_ROWS
            assert address < TINY.vram_elements


def small_case(items: tuple[Line | Loop, ...]) -> FuzzCase:
    contents = Contents(
        vector=np.full((4, 8), 0x4040, np.uint16),
        matrix=np.zeros((1, 8, 8), np.uint16),
        fp=np.zeros(8, np.uint16),
        ints=np.zeros(4, np.uint32),
        hbm=np.zeros(64, np.uint8),
    )
    return FuzzCase(TINY, items, contents, Device(seed=3, extra_latency=5))


@pytest.mark.parametrize("issue", ["overlap", "serial"])
def test_a_few_programs_agree_with_the_hardware(issue: str):
    engine = engine_for(TINY)
    for seed in (3, 7):
        case = replace(Generator(TINY, seed, supported()).case(issue), config=engine.config)
        assert is_runnable(case)
        outcome = run_case(case, engine)
        assert outcome.failure == ""
        assert outcome.instructions > 10


def broken_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    code = BY_MNEMONIC["V_MUL_VV"].code
    original = BUILDERS[code]

    def builder(state, instruction, pc) -> Step:
        step = original(state, instruction, pc)

        def wrong() -> None:
            step()
            state.log[-1].data[3] ^= 1

        return wrong

    monkeypatch.setitem(BUILDERS, code, builder)


def test_a_difference_is_found_and_shrunk_to_its_instruction(monkeypatch: pytest.MonkeyPatch):
    engine = engine_for(TINY)
    setup = tuple(Line(f"S_ADDI_INT gp{i}, gp0, {8 * i}") for i in range(1, 4))
    body = (Line("V_ADD_VV gp1, gp0, gp2"), Line("V_MUL_VV gp3, gp1, gp2"), Line("S_EXP_FP f1, f1"))
    case = replace(small_case((*setup, Loop(9, 3, body), *setup)), config=engine.config)
    assert run_case(case, engine).failure == ""
    broken_multiplication(monkeypatch)
    failure = run_case(case, engine).failure
    assert "the row differs in lane 3" in failure
    small = shrink(case, lambda c: bool(run_case(c, engine).failure))
    assert small.source() == "V_MUL_VV gp3, gp1, gp2\n"
    assert small.device == Device()


def test_the_command_saves_what_runs_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    engine = engine_for(TINY)
    case = replace(small_case((Line("V_MUL_VV gp0, gp0, gp0"),)), config=engine.config)
    monkeypatch.setattr("testbench.fuzz.__main__.make_engine", lambda *_: engine)
    monkeypatch.setattr("testbench.fuzz.__main__.cases", lambda *_: [(42, case)])
    assert main(["--build-dir", str(tmp_path)]) == 0
    assert "1 runs, 1 instructions" in capsys.readouterr().out
    broken_multiplication(monkeypatch)
    assert main(["--build-dir", str(tmp_path), "--no-shrink"]) == 1
    printed = capsys.readouterr()
    assert "lane 3" in printed.err
    folder = tmp_path / "tiny-42-overlap"
    assert f"--replay {folder}" in printed.out
    assert main(["--replay", str(folder)]) == 1
    assert "lane 3" in capsys.readouterr().out
    loaded = FuzzCase.load(folder)
    assert loaded.source() == case.source()
    assert loaded.device == case.device
    assert main(["--config", "none"]) == 2
