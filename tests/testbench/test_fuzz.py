"""Random programs: a short run agrees, a broken machine is caught, made small and saved."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import testbench.fuzz as records
from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC, OPCODES, Extent
from isa.operands import IMM18
from isa.traps import Trap
from sim.engine import Engine
from sim.hbm import HbmDevice
from sim.machine import Halt, Machine
from sim.machine.registry import BUILDERS, Step
from sim.observers import Observer
from sim.simulation import Simulation
from testbench.fuzz.__main__ import main
from testbench.fuzz.addresses import AddressRules, Known
from testbench.fuzz.case import Contents, Device, FuzzCase, Line, Loop
from testbench.fuzz.emitter import Emitter
from testbench.fuzz.final import Final
from testbench.fuzz.generator import Generator
from testbench.fuzz.record import BLOCK, Record, RecordError
from testbench.fuzz.run import Outcome, is_runnable, on_both, run_case, under
from testbench.fuzz.session import EVERY_OPCODE as EVERY
from testbench.fuzz.session import GENERATORS, case_of
from testbench.fuzz.shrink import shrink
from tests.conftest import engine_for, needs_compiler

TINY, SMALL = PRESETS["tiny"], PRESETS["small"]
BOTH = ("overlap", "serial")


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


def test_addresses_beyond_an_immediate_are_built_in_two_steps():
    config = PRESETS["default"]
    emitter = Emitter(config, random.Random(0))
    register = emitter.set_gp(config.vram_elements)
    image = FuzzCase(config, tuple(emitter.items), small_case(()).contents).image()
    machine = Machine(config, image, HbmDevice(config))
    assert machine.run().cause is Trap.DONE
    assert machine.memories.gp[register] == config.vram_elements > IMM18.largest


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


def test_a_few_programs_agree_with_the_hardware_and_under_both_policies():
    check = under(BOTH, engine_for(TINY))
    for seed in (3, 7):
        case = case_of(TINY, seed)
        assert is_runnable(case)
        outcomes = check(case)
        assert [o.failure for o in outcomes] == ["", ""]
        assert all(o.instructions > 10 for o in outcomes)
        assert outcomes[0].cycles < outcomes[1].cycles


@needs_compiler
@pytest.mark.parametrize("config", ["tiny", "small"])
def test_more_programs_agree_on_the_compiled_engine(
    config: str, capsys: pytest.CaptureFixture[str]
):
    count = "60" if config == "tiny" else "25"
    assert main(["--engine", "compiled", "--config", config, "--count", count]) == 0
    assert "never executed: no opcode" in capsys.readouterr().out


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("config", ["tiny", "small"])
def test_many_programs_agree_on_the_compiled_engine(config: str):
    command = ["--engine", "compiled", "--config", config, "--seed", "100000"]
    assert main([*command, "--instructions", "100000" if config == "tiny" else "60000"]) == 0


def agree_in_every_event(seeds: range, policies: tuple[str, ...]) -> None:
    check = on_both((engine_for(TINY, "compiled"), engine_for(TINY)), policies)
    for seed in seeds:
        failures = [o.failure for o in check(case_of(TINY, seed))]
        assert failures == [""] * len(policies), f"seed {seed}"


@needs_compiler
def test_engines_agree_in_every_event():
    agree_in_every_event(range(5000, 5003), BOTH)


@pytest.mark.slow
@needs_compiler
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_engines_agree_in_every_event_of_a_thousand_programs(first: int):
    agree_in_every_event(range(first, first + 100, 2), ("overlap",))
    agree_in_every_event(range(first + 1, first + 100, 2), ("serial",))


@needs_compiler
def test_engines_that_differ_are_found(monkeypatch: pytest.MonkeyPatch):
    engine = engine_for(TINY, "compiled")
    case = small_case((Line("V_MUL_VV gp0, gp0, gp0"), Line("H_PREFETCH_V gp0, gp0, a0, 0, 0")))
    check = on_both((engine, engine), ("overlap",))
    assert check(case)[-1].failure == ""
    calls = []

    def later(case: FuzzCase, engine: Engine, *observers: Observer) -> Outcome:
        calls.append(case)
        device = Device() if len(calls) % 2 else Device(seed=1, extra_latency=9)
        return run_case(replace(case, device=device), engine, *observers)

    monkeypatch.setattr("testbench.fuzz.run.run_case", later)
    failure = check(case)[-1].failure
    assert "event " in failure
    assert "Written(cycle=" in failure


def test_policies_that_leave_different_states_are_found(monkeypatch: pytest.MonkeyPatch):
    original, engine = Final.of, engine_for(TINY)

    def changed(simulation: Simulation) -> Final:
        if simulation.issue == "serial":
            simulation.memories.write_fp(5, np.array([0x1234], np.uint16))
        return original(simulation)

    check = under(BOTH, engine)
    case = small_case((Line("V_MUL_VV gp0, gp0, gp0"),))
    assert check(case)[-1].failure == ""
    monkeypatch.setattr(Final, "of", changed)
    failure = check(case)[-1].failure
    assert failure == (
        "overlap and serial leave different states: FP_MEM, byte 10: 00 00 00 00 | 34 12 00 00"
    )


def broken_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    code = BY_MNEMONIC["V_MUL_VV"].code
    original = BUILDERS[code]

    def builder(state, instruction, pc) -> Step:
        step = original(state, instruction, pc)

        def wrong() -> None:
            step()
            if state.log is not None:
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
    monkeypatch.setattr("testbench.fuzz.session.case_of", lambda *_: case)
    command = ["--seed", "42", "--count", "1", "--build-dir", str(tmp_path)]
    assert main(command) == 0
    assert "1 programs (seeds 42 to 42, generator all), 2 instructions" in capsys.readouterr().out
    broken_multiplication(monkeypatch)
    assert main([*command, "--no-shrink"]) == 1
    printed = capsys.readouterr()
    assert "lane 3" in printed.err
    folder = tmp_path / "tiny-plain-42"
    assert f"--replay {folder}" in printed.out
    assert main(["--replay", str(folder)]) == 1
    assert "lane 3" in capsys.readouterr().out
    loaded = FuzzCase.load(folder)
    assert loaded.source() == case.source()
    assert loaded.device == case.device
    assert main(["--config", "none"]) == 2


@needs_compiler
def test_a_record_goes_on_and_verifies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for module in ("record", "session"):
        monkeypatch.setattr(f"testbench.fuzz.{module}.BLOCK", 10)
    file = tmp_path / "record.json"
    command = ["--engine", "compiled", "--seed", "70", "--record", str(file)]
    assert main([*command, "--count", "3"]) == 0
    first = Record.load(file)
    assert (first.next_seed, first.programs) == (73, 3)
    assert main([*command, "--count", "12"]) == 0
    second = Record.load(file)
    assert second.next_seed == 82
    assert [(b.first_seed, b.seeds) for b in second.blocks] == [(70, 10), (80, 2)]
    assert second.total > first.total > 0
    capsys.readouterr()
    assert main(["--engine", "compiled", "--verify", str(file)]) == 0
    assert "as recorded" in capsys.readouterr().out
    second.blocks[0].digest = "0" * 16
    second.save(file)
    assert main(["--engine", "compiled", "--verify", str(file), "--count", "5"]) == 1
    assert "seeds 70 to 79 came out differently" in capsys.readouterr().err
    assert main([*command, "--issue", "serial", "--count", "1"]) == 2
    assert "another issue policies" in capsys.readouterr().err
    file.write_text("{}")
    with pytest.raises(RecordError, match="not a record of"):
        Record.load(file)


RECORDS = sorted((Path(records.__file__).parent / "records").iterdir())
#: Least number of instructions under each policy.
RECORDED = {"plain": 1_000_000, "crowded": 100_000}


@pytest.mark.parametrize("path", RECORDS, ids=[path.stem for path in RECORDS])
def test_the_kept_records_are_whole_and_readable(path: Path):
    record = Record.load(path)
    config, _, generator = path.stem.partition("-")
    assert (record.config, record.generator) == (config, generator or "plain")
    assert (record.policies, record.failures) == (BOTH, [])
    assert min(record.instructions[issue] for issue in BOTH) >= RECORDED[record.generator]
    assert record.executed.keys() == EVERY
    seeds = [block.first_seed for block in record.blocks]
    assert seeds == list(range(record.first_seed, record.next_seed, BLOCK))


def test_both_sizes_are_recorded_with_both_generators():
    names = {"tiny", "small", "tiny-crowded", "small-crowded"}
    assert {path.stem for path in RECORDS} == names


@needs_compiler
def test_every_generator_has_its_seeds_and_a_record_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def source(seed: int, generator: str) -> str:
        return case_of(TINY, seed, generator).source()

    for seed, name in ((6, "plain"), (7, "crowded"), (8, "plain")):
        assert source(seed, "all") == source(seed, name)
        assert source(seed, name) == GENERATORS[name](TINY, seed, EVERY).case("overlap").source()
    assert source(7, "all") != source(7, "plain")

    file = tmp_path / "record.json"
    command = ["--engine", "compiled", "--seed", "7", "--count", "1", "--record", str(file)]
    assert main([*command, "--generator", "crowded"]) == 0
    assert Record.load(file).generator == "crowded"
    assert main(command) == 2
    assert "another generator (crowded, now all)" in capsys.readouterr().err
    assert main(["--engine", "compiled", "--verify", str(file)]) == 0
    content = json.loads(file.read_text())
    content["generator"] = "plain"
    file.write_text(json.dumps(content))
    assert main(["--engine", "compiled", "--verify", str(file)]) == 1
    del content["generator"]
    file.write_text(json.dumps(content))
    assert Record.load(file).generator == "plain"
