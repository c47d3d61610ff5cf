"""The compiled engine on the whole machine: equal to pysim in cycles, counters, memories and
traps."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from isa.assembler import assemble
from isa.config import PRESETS, PlenaConfig
from isa.traps import Trap
from sim.compiled import cache
from sim.compiled.engine import CompiledEngine
from sim.engine import Engine
from sim.hbm import HbmDevice
from sim.observers import EventLog, TagError
from sim.simulation import Simulation
from testbench.shared_case import build_case, spec_of
from tests.conftest import needs_compiler

pytestmark = needs_compiler

_COMPILED: dict[str, Engine] = {}


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Engines that are built here do not change what `auto` takes elsewhere; workers share them."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "engines"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "cache_root", lambda: root)
        yield


def compiled(config: PlenaConfig) -> Engine:
    if config.digest not in _COMPILED:
        _COMPILED[config.digest] = CompiledEngine(config)
    return _COMPILED[config.digest]


def state(simulation: Simulation) -> dict[str, Any]:
    """Everything that a program leaves behind."""
    memories, hbm = simulation.memories, simulation.hbm
    return {
        "vector": memories.read_vector().tobytes(),
        "matrix": [memories.read_matrix(t).tobytes() for t in range(simulation.config.MRAM_TILES)],
        "fp": memories.read_fp().tobytes(),
        "int": memories.read_int().tobytes(),
        "registers": [
            memories.read_gp().tolist(),
            memories.read_f().tolist(),
            memories.read_a().tolist(),
        ],
        "state": memories.read_state(),
        "hbm": hbm.image(),
        "traffic": [hbm.bytes_read, hbm.bytes_written, hbm.under_way],
        "writers": simulation.last_writer.pc.tobytes(),
    }


def outcome(result: Any) -> dict[str, Any]:
    fields = dict(vars(result))
    del fields["engine"], fields["wall_seconds"]
    return fields


def compare(config: PlenaConfig, engine: Engine, prepare: Any, **options: Any) -> Simulation:
    """Runs the same on both engines; `prepare(engine)` makes a simulation."""
    want, got = prepare(engine), prepare(compiled(config))
    expected, actual = want.run(**options), got.run(**options)
    assert outcome(actual) == outcome(expected)
    assert actual.engine == "compiled"
    after, before = state(got), state(want)
    for name in before:
        assert after[name] == before[name], name
    return got


@pytest.mark.parametrize(
    ("name", "arch", "rows", "issue"),
    [
        ("tiny", "deepseek", 5, "overlap"),
        ("tiny", "qwen2", 8, "serial"),
        ("small", "llama4", 4, "overlap"),
    ],
)
def test_a_shared_expert_is_equal_to_pysim_in_everything(engine, name, arch, rows, issue):
    config = PRESETS[name]
    case = build_case(
        config, spec_of(arch, hidden=2 * config.MLEN, intermediate=config.MLEN), rows=rows
    )

    def prepare(chosen: Engine) -> Simulation:
        simulation = Simulation(config, case.program.image, case.hbm(), engine=chosen, issue=issue)
        case.load(simulation)
        return simulation

    compare(config, engine(config), prepare)


@pytest.mark.parametrize("slow_memory", [False, True])
def test_a_slow_and_disturbed_memory_is_the_same_device(engine, slow_memory):
    config = PRESETS["tiny"]
    case = build_case(config, spec_of("deepseek", hidden=8, intermediate=8), rows=4)

    def prepare(chosen: Engine) -> Simulation:
        plain = case.hbm()
        options: dict[str, Any] = (
            {"seed": 5, "extra_latency": 9, "backpressure": 0.4} if slow_memory else {}
        )
        hbm = HbmDevice(config, capacity=3, **options)
        for address, page in plain.image().items():
            hbm.write(address, page)
        simulation = Simulation(config, case.program.image, hbm, engine=chosen)
        case.load(simulation)
        return simulation

    compare(config, engine(config), prepare)


PROGRAMS = {
    "end without a start": "C_LOOP_END gp1",
    "loop": "C_LOOP_START gp1, 3\nS_ADDI_INT gp3, gp3, 1\nC_LOOP_END gp1",
    "misaligned": "S_ADDI_INT gp1, gp0, 4\nV_EXP_V gp0, gp1",
    "past the end": "S_ADDI_INT gp1, gp0, 8192\nV_EXP_V gp1, gp0",
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_short_programs_and_traps_are_equal(engine, text):
    config = PRESETS["tiny"]
    image = assemble(text, config=config)
    compare(config, engine(config), lambda chosen: Simulation(config, image, engine=chosen))


def test_the_watchdog_stops_in_the_same_cycle(engine):
    config = PRESETS["tiny"]
    case = build_case(config, spec_of("deepseek", hidden=8, intermediate=8), rows=4)

    def prepare(chosen: Engine) -> Simulation:
        return Simulation(config, case.program.image, case.hbm(), engine=chosen)

    for limit in (1, 2, 57):
        simulation = compare(config, engine(config), prepare, max_cycles=limit)
        assert simulation.run(entry=0, max_cycles=1).cause is Trap.WATCHDOG


def test_a_memory_error_is_equal(engine):
    config = PRESETS["tiny"]
    case = build_case(config, spec_of("deepseek", hidden=8, intermediate=8), rows=4)

    def prepare(chosen: Engine) -> Simulation:
        hbm = case.hbm()
        hbm.inject_fault(next(iter(hbm.image())) + 64, 200)
        simulation = Simulation(config, case.program.image, hbm, engine=chosen)
        case.load(simulation)
        return simulation

    compare(config, engine(config), prepare)


class PromptLog(EventLog):
    """The same, event by event: the loop in C cannot be used."""

    accepts_late_events = False


def test_events_are_the_same_from_the_log_and_cycle_by_cycle(engine):
    config = PRESETS["tiny"]
    case = build_case(config, spec_of("deepseek", hidden=8, intermediate=8), rows=4)
    logs = []
    for chosen, log in (
        (engine(config), PromptLog()),
        (compiled(config), PromptLog()),
        (compiled(config), EventLog()),
    ):
        simulation = Simulation(config, case.program.image, case.hbm(), engine=chosen)
        case.load(simulation)
        simulation.run(observers=[log])
        logs.append(log.events)
    assert logs[0]
    assert logs[1] == logs[0]
    assert logs[2] == logs[0]


def test_a_wrong_tag_is_found_in_the_fast_loop():
    config = PRESETS["tiny"]
    image = assemble("S_ADDI_INT gp1, gp1, 1\n" * 5, config=config)
    simulation = Simulation(config, image, engine=compiled(config))
    stages = np.array(image.stages)
    stages[3] = (int(stages[3]) + 1) % 4
    object.__setattr__(image, "stages", stages)
    with pytest.raises(TagError, match="pc 3 was dispatched with stage"):
        simulation.run()


def test_values_asked_for_together_are_those_asked_for_one_by_one():
    config = PRESETS["tiny"]
    simulation = Simulation(
        config, assemble("S_ADDI_INT gp1, gp1, 1\n" * 5, config=config), engine=compiled(config)
    )
    simulation.run()
    chosen, top = compiled(config), simulation.engine.top
    counts = [c for counter in top.profile.counters.values() for c in counter.counts]
    together = chosen.get_all(counts)
    assert any(together)
    assert together == [chosen.get(c) for c in counts]
    mixed = [top.pc, top.halt.cause, counts[0], top.state]  # not all of one size
    assert chosen.get_all(mixed) == [chosen.get(value) for value in mixed]


def test_pages_that_programs_write_are_their_own():
    config = PRESETS["tiny"]
    case = build_case(config, spec_of("deepseek", hidden=8, intermediate=8), rows=4)
    devices = []
    for _ in range(3):
        device = HbmDevice(config)  # empty: the page of the stored result is a new one
        simulation = Simulation(config, case.program.image, device, engine=compiled(config))
        simulation.run()
        devices.append(device)
    images = [device.image() for device in devices]
    assert images[0] == images[1] == images[2]
    page = next(iter(images[0]))
    devices[0].write(page, bytes([0x5A]) * 64)
    assert devices[1].image() == images[1]
    assert devices[2].image() == images[2]
