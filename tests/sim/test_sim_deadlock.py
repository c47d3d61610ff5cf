"""The watchdog ends a run that has come to a stand, and says who waits for whom."""

from collections.abc import Callable

import pytest
from amaranth.hdl import Module

from isa.assembler import assemble
from isa.config import PRESETS
from isa.topk import EXPERTS_LIMIT, pack_policy
from isa.traps import Trap
from rtl.dispatch.events import Stall
from rtl.scalar import ScalarUnit
from sim.deadlock import STALLS, patience
from sim.hbm import HbmDevice
from sim.lockstep import Lockstep
from sim.pysim import PysimEngine
from sim.result import RunResult
from sim.simulation import Simulation
from tests.conftest import needs_compiler

TINY = PRESETS["tiny"]
ENGINES = ("pysim", pytest.param("compiled", marks=needs_compiler))
Load = Callable[..., Simulation]

FETCH_AND_USE = """
    S_ADDI_INT gp1, gp0, 8
    H_PREFETCH_V gp1, gp0, a0, 0, 0
    V_EXP_V gp0, gp0, 0
    V_EXP_V gp0, gp1, 0
"""


class Mute(HbmDevice):
    """Takes every request and answers none."""

    def response(self, cycle: int) -> tuple[int, bool] | None:
        return None


def lines(result: RunResult, simulation: Simulation) -> list[str]:
    assert result.cause is Trap.WATCHDOG
    return [line.strip() for line in result.report(simulation.image).splitlines()]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["mute", "late"])
@pytest.mark.parametrize("watched", [False, True])
def test_a_memory_that_never_answers(program: Load, engine: str, kind: str, watched: bool):
    late = HbmDevice(TINY, extra_latency=1 << 40, seed=3)
    simulation = program(FETCH_AND_USE, hbm=Mute(TINY) if kind == "mute" else late, engine=engine)
    observers = [Lockstep()] if watched else []
    result = simulation.run(max_idle=100, observers=observers)
    report = lines(result, simulation)
    prefetch = "pc 1 (line 3, stage other): H_PREFETCH_V gp1, gp0, a0, 0, 0"
    assert report[0].startswith("WATCHDOG at cycle 1")
    assert result.cycles < 130
    assert report[1] == f"nothing has happened since cycle {result.cycles - 101}, for 101 cycles"
    assert report[2] == "dispatch: pc 3 (line 5, stage other): V_EXP_V gp0, gp1, 0"
    assert report[3].startswith("RUNNING, MEMORY: it waits for an unfinished H_* instruction")
    assert report[4] == "it reads row 1; writes row 0"
    assert report[5] == "unfinished, oldest first:"
    assert report[6] == f"slot 0, HBM: {prefetch}; writes rows 1 to 4  <- dispatch waits for it"
    assert "VECTOR idle, takes more; MATRIX idle, takes more; HBM busy" in report[7]
    due = "" if kind == "late" else "; it holds at most 64"
    assert report[8].startswith("memory: 2 requests without an answer, the next answer is due")
    assert report[8].endswith(due)
    assert result.deadlock
    assert "allow more cycles without an event" in report[-1]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_memory_that_accepts_nothing(program: Load, engine: str):
    simulation = program(FETCH_AND_USE, hbm=HbmDevice(TINY, backpressure=0.9999999), engine=engine)
    report = lines(simulation.run(max_idle=100), simulation)
    assert report[8].startswith(
        "memory: 0 requests without an answer; the read of beat 0x0 for pc 1 is not accepted"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_instruction_that_a_unit_has_lost(program: Load, engine: str):
    simulation = program(
        "V_EXP_V gp0, gp0, 0\nS_LD_FP f3, gp0, 5\nV_RED_SUM f1, gp0, 0\nV_ADD_VF gp0, gp0, f1, 0",
        engine=engine,
    )
    vector = simulation.engine.top.vector

    def lose() -> bool:
        if simulation.engine.get(vector.write.en):
            simulation.engine.set(vector.write.en, 0)
            return True
        return False

    paused = simulation.run(until=lose)
    assert paused.cause is Trap.NONE
    report = lines(simulation.resume(paused, max_idle=60), simulation)
    assert report[2].startswith("dispatch: pc 2 ")
    assert report[3] == "RUNNING, HAZARD: it conflicts with an older unfinished instruction"
    assert report[4] == "it reads row 0"
    assert report[6] == (
        "slot 0, VECTOR: pc 0 (line 1, stage other): V_EXP_V gp0, gp0, 0; "
        "reads row 0; writes row 0  <- dispatch waits for it"
    )
    assert "SCALAR idle" in report[7]
    assert "VECTOR busy, takes more" in report[7]


def test_a_unit_that_takes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ScalarUnit, "elaborate", lambda *_: Module())
    engine = PysimEngine(TINY)
    image = assemble("S_ADDI_INT gp1, gp0, 1\nS_LD_FP f1, gp1, 0\nS_ADD_FP f2, f1, f1", config=TINY)
    simulation = Simulation(TINY, image, engine=engine)
    report = lines(simulation.run(max_idle=30), simulation)
    assert report[2].startswith("dispatch: pc 1 ")
    assert report[3].startswith("RUNNING, NO_UNIT: its unit, or every slot, is taken")
    assert report[4] == "it reads FP_MEM"
    assert report[5] == "no instruction is unfinished"
    assert "SCALAR idle, takes no more" in report[6]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_register_that_is_never_written(program: Load, engine: str):
    simulation = program("V_RED_SUM f1, gp0, 0\nS_ADD_FP f2, f1, f1", engine=engine)
    top = simulation.engine.top

    def completes() -> bool:
        return bool(simulation.engine.get(top.vector.reduce_done.valid))

    paused = simulation.run(until=completes)
    paused = simulation.resume(paused, until=iter([False, True]).__next__)
    simulation.engine.set(top.dispatcher.f.pending, 1 << 1)
    report = lines(simulation.resume(paused, max_idle=40), simulation)
    assert report[3].startswith("RUNNING, HAZARD")
    assert "a unit has still to write f1" in report
    assert "no instruction is unfinished" in report


@needs_compiler
def test_the_longest_silence_is_borne(program: Load):
    small = PRESETS["small"]
    text = f"""
        S_LUI_INT gp1, {pack_policy(EXPERTS_LIMIT, 1) >> 12}
        S_ADDI_INT gp1, gp1, {pack_policy(EXPERTS_LIMIT, 1) & 0xFFF}
        C_SET_TOPK_REG gp1
        V_TOPK gp0, gp0, gp0, 15
    """
    simulation = program(text, config=small, engine="compiled")
    result = simulation.run()
    assert result.cause is Trap.DONE
    assert result.cycles > 16_000
    simulation = program(text, config=small, engine="compiled")
    assert simulation.run(max_idle=result.cycles - 60).cause is Trap.WATCHDOG
    assert patience(small) > 3 * result.cycles


def test_every_stall_reason_has_a_meaning():
    assert STALLS.keys() == set(Stall)


def test_no_unit_keeps_an_instruction(program: Load):
    text = """
        S_LD_FP f1, gp0, 0
        V_EXP_V gp0, gp0, 0
        V_RED_SUM f1, gp0, 0
        M_MM 0, gp0, gp0
        M_MM_WO gp0, gp0, 0
        H_PREFETCH_V gp0, gp0, a0, 0, 0
        V_TOPK gp0, gp0, gp0, 0
    """
    simulation = program(text)
    result = simulation.run(max_idle=400)
    assert result.cause is Trap.DONE, result.report(simulation.image)
