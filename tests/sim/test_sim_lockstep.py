"""Lock step: agrees with the hardware, and finds every kind of difference."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC
from isa.traps import Trap
from sim.lockstep import Lockstep, LockstepError
from sim.machine import HbmWrite, MachineState, RegisterWrite, RowWrite, WordWrite
from sim.machine.registry import BUILDERS, Step
from sim.observers import Completed, Dispatched, HbmWritten, Stored, Written
from sim.simulation import Simulation
from testbench.shared_case import build_case, spec_of
from testbench.shared_moe import main
from tests.conftest import engine_for, needs_compiler
from tests.sim.machine_bench import bits

TINY = PRESETS["tiny"]
ISSUES = ("overlap", "serial")


@pytest.mark.parametrize("issue", ISSUES)
@pytest.mark.parametrize("arch", ["deepseek", "qwen2"])
def test_a_shared_expert_runs_in_lock_step(arch: str, issue: str):
    spec = spec_of(arch, hidden=8, intermediate=8, n_shared=1)
    case = build_case(TINY, spec, rows=4, kind="random")
    engine = engine_for(TINY)
    simulation = Simulation(engine.config, case.program.image, case.hbm(), engine=engine)
    simulation.issue = issue
    case.load(simulation)
    lockstep = Lockstep()
    result = simulation.run(observers=[lockstep])
    assert result.cause is Trap.DONE
    assert lockstep.executed == sum(result.counters["dispatched"])
    assert all(comparison.ok for comparison in case.check(simulation))


#: One instruction of every unit, each with an effect of its own.
EVERY_EFFECT = """
    S_ADDI_INT gp1, gp0, 8
    S_ADDI_INT gp2, gp0, 64
    S_ADDI_INT gp3, gp0, 1024
    C_SET_ADDR_REG a1, gp0, gp3
    C_SET_V_MASK_REG gp1
    H_PREFETCH_M gp0, gp0, a0, 0, 0
    H_PREFETCH_V gp2, gp0, a0, 0, 0
    V_EXP_V gp1, gp2, 0
    M_MM 0, gp0, gp1
    M_MM_WO gp1, gp0, 4
    V_RED_SUM f1, gp1, 0
    S_EXP_FP f2, f1
    S_ST_FP f2, gp0, 3
    S_ST_INT gp2, gp0, 5
    S_LD_INT gp4, gp0, 5
    S_MAP_V_FP gp2, gp0, 0
    H_STORE_V gp1, gp0, a1, 0, 0
"""


ENGINES = ("pysim", pytest.param("compiled", marks=needs_compiler))


def load(
    program: Callable[..., Simulation],
    text: str,
    issue: str | None = None,
    engine: str = "pysim",
) -> Simulation:
    simulation = program(text, issue=issue, engine=engine)
    simulation.hbm.write(0, bytes(range(64)) + bytes([127] * 64))
    simulation.memories.write_vector(0, bits(np.arange(64.0).reshape(8, 8)))
    return simulation


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("issue", ISSUES)
def test_every_effect_agrees(program: Callable[..., Simulation], issue: str, engine: str):
    simulation = load(program, EVERY_EFFECT, issue, engine)
    lockstep = Lockstep()
    assert simulation.run(observers=[lockstep]).cause is Trap.DONE
    assert lockstep.executed == 17


def tampered(mnemonic: str, monkeypatch: pytest.MonkeyPatch, *, drop: bool = False) -> None:
    """A machine that is wrong in the last effect of `mnemonic`."""
    code = BY_MNEMONIC[mnemonic].code
    original = BUILDERS[code]

    def builder(state, instruction, pc) -> Step:
        step = original(state, instruction, pc)

        def wrong() -> int | None:
            after = step()
            log = state.log
            if log is None:
                return after
            effect = log.pop()
            if isinstance(effect, RowWrite):
                lane = effect.lanes.bit_length() - 1
                data = effect.data.copy()
                data[lane] ^= 1
                changed = replace(effect, data=data)
            elif isinstance(effect, HbmWrite):
                state.hbm.write(effect.address, bytes([effect.content[0] ^ 1]))
                changed = effect
            else:
                assert isinstance(effect, RegisterWrite | WordWrite)
                changed = replace(effect, value=effect.value ^ 1)
            if not drop:
                log.append(changed)
            return after

        return wrong

    monkeypatch.setitem(BUILDERS, code, builder)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("mnemonic", "what"),
    [
        ("S_ADDI_INT", "the result differs"),
        ("S_LD_INT", "the result differs"),
        ("C_SET_ADDR_REG", "the result differs"),
        ("C_SET_V_MASK_REG", "the result differs"),
        ("V_RED_SUM", "the result differs"),
        ("S_EXP_FP", "the result differs"),
        ("S_ST_FP", "the result differs"),
        ("S_ST_INT", "the result differs"),
        ("H_PREFETCH_M", "the row differs in lane 7"),
        ("H_PREFETCH_V", "the row differs in lane 7"),
        ("V_EXP_V", "the row differs in lane 7"),
        ("M_MM_WO", "the row differs in lane 7"),
        ("S_MAP_V_FP", "the row differs in lane 7"),
        ("H_STORE_V", "of HBM differs"),
    ],
)
def test_a_wrong_effect_is_found_at_its_instruction(
    program: Callable[..., Simulation],
    monkeypatch: pytest.MonkeyPatch,
    mnemonic: str,
    what: str,
    engine: str,
):
    tampered(mnemonic, monkeypatch)
    simulation = load(program, EVERY_EFFECT, engine=engine)
    with pytest.raises(LockstepError) as caught:
        simulation.run(observers=[Lockstep()])
    text = str(caught.value)
    assert what in text.splitlines()[0]
    assert mnemonic in text.splitlines()[1]
    for part in ("hardware:", "machine:", "the last", "<- S_ADDI_INT gp1, gp0, 8", "  gp1: "):
        assert part in text


@pytest.mark.parametrize(
    ("mnemonic", "tagged"),
    [
        *((m, True) for m in ("H_PREFETCH_M", "V_EXP_V", "M_MM_WO", "S_MAP_V_FP", "H_STORE_V")),
        *((m, False) for m in ("S_ADDI_INT", "S_LD_INT", "S_EXP_FP", "V_RED_SUM")),
        *((m, False) for m in ("C_SET_ADDR_REG", "S_ST_FP", "S_ST_INT")),
    ],
)
def test_a_write_that_the_machine_does_not_make_is_found(
    program: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, mnemonic: str, tagged: bool
):
    tampered(mnemonic, monkeypatch, drop=True)
    with pytest.raises(LockstepError, match=r"a write that the machine does not") as caught:
        load(program, EVERY_EFFECT).run(observers=[Lockstep()])
    text = str(caught.value)
    assert mnemonic in (text.splitlines()[0] if tagged else text)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda state: state.set_rows(5, state.rows(6).copy()), "completed without a row"),
        (lambda state: state.set_gp(9, 7), "completed without its result"),
        (lambda state: state.set_hbm(2048, b"\x01"), "byte 0x800 of HBM differs"),
        (lambda state: state.set_state("SCALE", 3), "the result differs"),
    ],
)
def test_what_the_hardware_does_not_write_is_found(
    program: Callable[..., Simulation],
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    change: Callable[[MachineState], None],
    what: str,
):
    code = BY_MNEMONIC["S_EXP_FP"].code
    original = BUILDERS[code]

    def builder(state, instruction, pc) -> Step:
        step = original(state, instruction, pc)

        def also_this() -> None:
            step()
            change(state)

        return also_this

    monkeypatch.setitem(BUILDERS, code, builder)
    with pytest.raises(LockstepError, match=what) as caught:
        load(program, EVERY_EFFECT, engine=engine).run(observers=[Lockstep()])
    assert "S_EXP_FP f2, f1" in str(caught.value).splitlines()[1]


@needs_compiler
def test_the_compiled_loop_stops_soon_with_the_registers_of_the_difference(
    program: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch
):
    tampered("S_LD_INT", monkeypatch)
    text = "C_LOOP_START gp1, 100000\nS_ADDI_INT gp2, gp2, 1\nS_LD_INT gp3, gp0, 0\nC_LOOP_END gp1"
    simulation = program(text, engine="compiled")
    with pytest.raises(LockstepError) as caught:
        simulation.run(observers=[Lockstep()])
    assert simulation.engine.get(simulation.engine.top.pc) < 4
    assert simulation.memories.read_gp()[2] > 100  # the machine has gone on, but not far
    assert simulation.memories.read_gp()[2] < 5000
    text = str(caught.value)
    assert "lock step, cycle 3" in text
    assert "  gp2: 00000001 | 00000001" in text
    assert "  gp1: 0001869F | 0001869F" in text


def test_another_path_through_the_program_is_found(
    program: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch
):
    code = BY_MNEMONIC["C_LOOP_END"].code
    original = BUILDERS[code]

    def builder(state, instruction, pc) -> Step:
        step = original(state, instruction, pc)

        def never_again() -> None:
            step()

        return never_again

    monkeypatch.setitem(BUILDERS, code, builder)
    text = "C_LOOP_START gp1, 2\nV_EXP_V gp0, gp0\nC_LOOP_END gp1\nC_LOOP_START gp1, 2\n"
    with pytest.raises(LockstepError, match="the next instruction differs"):
        program(text + "C_LOOP_END gp1").run(observers=[Lockstep()])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("M_MM 0, gp0, gp0", "m_acc"),
        ("M_MV 0, gp0, gp0", "v_acc"),
        ("M_BMM gp0, gp0, gp0", "hm_acc"),
        ("M_BMV gp0, gp0, gp0", "hv_acc"),
    ],
)
def test_accumulators_that_differ_are_found_at_the_end(
    program: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, text: str, name: str
):
    code = BY_MNEMONIC[text.split()[0]].code
    original = BUILDERS[code]

    def builder(state, instruction, pc) -> Step:
        step = original(state, instruction, pc)

        def more() -> None:
            step()
            getattr(state, name).flat[3] += 1.0

        return more

    load(program, text).run(observers=[Lockstep()])
    monkeypatch.setitem(BUILDERS, code, builder)
    with pytest.raises(LockstepError, match="state at the end differs") as caught:
        load(program, text).run(observers=[Lockstep()])
    assert f"{name}[3] = 0x3F800000" in str(caught.value)


class Altered(Lockstep):
    """Hardware that shows something else than it does: what `alter` makes of an event, by name."""

    def __init__(self, event: str, alter: Callable[[Any], Any]) -> None:
        super().__init__()
        self._alter = {event: alter}

    def _pass(self, name: str, event: Any) -> None:
        for each in self._alter.get(name, lambda e: [e])(event):
            getattr(super(), name)(each)

    def dispatched(self, event: Dispatched) -> None:
        self._pass("dispatched", event)

    def completed(self, event: Completed) -> None:
        self._pass("completed", event)

    def written(self, event: Written) -> None:
        self._pass("written", event)

    def stored(self, event: Stored) -> None:
        self._pass("stored", event)

    def hbm_written(self, event: HbmWritten) -> None:
        self._pass("hbm_written", event)


@pytest.mark.parametrize(
    ("event", "alter", "what"),
    [
        ("dispatched", lambda e: [e._replace(pc=e.pc ^ 1)], "the next instruction differs"),
        ("dispatched", lambda e: [e._replace(word=e.word ^ 1 << 31)], "the word differs"),
        ("dispatched", lambda e: [e._replace(unit=e.unit ^ 1)], "dispatched to another unit"),
        ("dispatched", lambda e: [e._replace(state=(9, *e.state[1:]))], "the result differs"),
        ("completed", lambda e: [e, e], "completed on"),
        ("completed", lambda e: [e] * (e.port != "vector"), "never completed"),
        ("written", lambda e: [e._replace(stage=e.stage ^ 1)], "under another stage"),
        ("written", lambda e: [e._replace(pc=0)], "a write that the machine does not"),
        ("written", lambda e: [e._replace(row=e.row + 100)], "a write that the machine does not"),
        ("written", lambda e: [e, e], "a write that the machine does not"),
        ("written", lambda _: [], "completed without a row"),
        ("stored", lambda e: [e._replace(number=e.number ^ 1)], "a write that the machine does"),
        ("stored", lambda e: [e] * (e.file != "f"), "completed without its result"),
        ("hbm_written", lambda e: [e._replace(address=e.address + 1)], "a write that the machine"),
        ("hbm_written", lambda e: [e._replace(strobe=e.strobe & ~1)], "of HBM differs"),
        ("hbm_written", lambda _: [], "of HBM differs"),
    ],
)
def test_every_field_of_every_event_counts(
    program: Callable[..., Simulation], event: str, alter: Callable[[Any], Any], what: str
):
    with pytest.raises(LockstepError, match=what):
        load(program, EVERY_EFFECT).run(observers=[Altered(event, alter)])


def test_hardware_state_that_no_instruction_wrote_is_found_at_the_end(
    program: Callable[..., Simulation],
):
    class Meddling(Lockstep):
        def stop(self) -> None:
            self._simulation.memories.write_vector(77, bits([np.ones(8)]))
            super().stop()

    with pytest.raises(LockstepError, match="state at the end differs") as caught:
        program("S_ADDI_INT gp1, gp0, 1").run(observers=[Meddling()])
    assert "vram row 77 lane[0] = 0x3F80" in str(caught.value)


def test_a_run_that_was_paused_goes_on(program: Callable[..., Simulation]):
    simulation = load(program, EVERY_EFFECT)
    lockstep, pauses = Lockstep(), iter([False] * 6 + [True] + [False] * 7 + [True])
    result = simulation.run(observers=[lockstep], until=lambda: next(pauses, False))
    while result.cause is Trap.NONE:
        result = simulation.run(observers=[lockstep], entry=None, until=lambda: next(pauses, False))
    assert result.cause is Trap.DONE
    assert lockstep.executed == 17


def test_the_shared_moe_command_runs_in_lock_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        "sim.simulation.make_engine", lambda _name, config, _image: engine_for(config)
    )
    command = ["--config", "tiny", "--rows", "4", "--lockstep", "--build-dir", str(tmp_path)]
    assert main(command) == 0
    tampered("V_EXP_V", monkeypatch)
    capsys.readouterr()
    assert main(command) == 1
    assert "FAIL: lock step" in capsys.readouterr().err
