"""What each instruction cost: the same on every engine, and in sum what the hardware counted."""

from dataclasses import replace

import numpy as np
import pytest

from isa.assembler import assemble
from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC, Unit
from isa.stages import Stage
from isa.traps import Trap
from sim.hbm import HbmDevice
from sim.observers import Observer, TagChecker, TagError
from sim.pc_accounts import PcAccounts
from sim.profile.errors import ProfileInvariantError
from sim.profile.pairs import pair_stats
from sim.simulation import Simulation
from testbench.fuzz.generator import Generator
from tests.conftest import engine_for, needs_compiler

TINY = PRESETS["tiny"]
EVERY = frozenset(BY_MNEMONIC)
ENGINES = ["pysim", pytest.param("compiled", marks=needs_compiler)]

PAIRS = """\
; @stage=gather pair=4
V_ADD_VV gp0, gp0, gp0, 0
; @stage=expert_weight_prefetch pair=4
C_SET_STRIDE_REG gp2
H_PREFETCH_M gp0, gp0, a0, 1, 0
; @stage=expert_projection pair=4
M_MM 0, gp0, gp0
; @stage=expert_projection pair=7
M_MM 0, gp0, gp0
; @stage=expert_bias pair=9
C_BREAK
; @stage=non_moe
S_ADDI_INT gp1, gp0, 1
"""


class Eager(Observer):
    """An observer that wants its events at once, so that the loop in Python runs."""


def simulate(name: str, source: str, *observers: Observer) -> Simulation:
    image = assemble(source, config=TINY)
    simulation = Simulation(TINY, image, engine=engine_for(TINY, name))
    result = simulation.run(max_cycles=5000, observers=observers)
    while result.cause is Trap.BREAK:
        result = simulation.resume(result, max_cycles=5000)
    assert result.cause is Trap.DONE
    simulation.stats = pair_stats(image, simulation.accounts, result.counters)  # type: ignore[attr-defined]
    return simulation


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pair_costs_what_its_instructions_cost(engine: str):
    found = simulate(engine, PAIRS).stats  # type: ignore[attr-defined]
    assert list(found) == [4, 7, 9]
    assert list(found[4]) == ["gather", "expert_weight_prefetch", "expert_projection"]
    prefetch = found[4]["expert_weight_prefetch"]
    assert (prefetch["instructions"], prefetch["hbm_bytes_read"]) == (2, 2 * 64)  # stride 0
    assert prefetch["busy_cycles"]["hbm"] > TINY.HBM_LATENCY
    assert found[4]["gather"]["busy_cycles"]["vector"] > 1
    assert found[7]["expert_projection"]["busy_cycles"]["matrix"] > 0
    assert found[9] == {
        "expert_bias": {
            "instructions": 1,
            "wall_cycles": found[9]["expert_bias"]["wall_cycles"],
            "hbm_bytes_read": 0,
            "hbm_bytes_written": 0,
            "busy_cycles": {unit.name.lower(): int(unit is Unit.CONTROL) for unit in Unit},
        }
    }


def same(first: PcAccounts, second: PcAccounts) -> bool:
    return all(np.array_equal(getattr(first, n), getattr(second, n)) for n in vars(first))


@needs_compiler
@pytest.mark.parametrize("issue", ["overlap", "serial"])
def test_random_programs_cost_the_same_by_events_and_by_counters(issue: str):
    for seed in range(25):
        case = Generator(TINY, seed, EVERY).case(issue)
        image = case.image()
        accounts: list[PcAccounts] = []
        observers: list[list[Observer]] = [[], [Eager()]]
        for watch in observers:
            hbm = case.hbm()
            simulation = Simulation(
                TINY, image, hbm, engine=engine_for(TINY, "compiled"), issue=issue
            )
            case.contents.load(simulation.memories, hbm)
            result = simulation.run(max_cycles=20_000, observers=watch)
            while result.cause is Trap.BREAK:
                result = simulation.resume(result, max_cycles=20_000, observers=watch)
            if result.cause is not Trap.HBM_ADDRESS:
                pair_stats(image, simulation.accounts, result.counters)
            accounts.append(simulation.accounts)
        assert accounts[0].wall.any()
        assert same(*accounts), seed


def test_a_pause_in_mid_flight_loses_no_cycle():
    image = assemble(PAIRS, config=TINY)
    simulation = Simulation(TINY, image, engine=engine_for(TINY, "pysim"))
    count = iter(range(10**6))
    result = simulation.run(until=lambda: next(count) >= 9)
    assert result.cause is Trap.NONE
    assert simulation.accounts.wall.sum() == result.cycles
    pair_stats(image, simulation.accounts, result.counters)


@pytest.mark.parametrize("name", ["wall", "completions", "bytes_read", "busy"])
def test_accounts_that_differ_from_the_hardware_are_refused(name: str):
    simulation = simulate("pysim", PAIRS)
    array = getattr(simulation.accounts, name)
    array[(int(Unit.MATRIX), 3) if name == "busy" else 3] += 1
    counters = simulation.run(entry=None, max_cycles=1).counters
    with pytest.raises(ProfileInvariantError, match="accounts_equal_counters"):
        pair_stats(simulation.image, simulation.accounts, counters)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dispatch_under_another_tag_is_caught(engine: str):
    image = assemble(PAIRS, config=TINY)
    simulation = Simulation(TINY, image, HbmDevice(TINY), engine=engine_for(TINY, engine))
    stages = image.stages.copy()
    stages[2] = Stage.GATHER
    wrong = replace(image, stages=stages)
    words = [int(w) | int(s) << 32 for w, s in zip(wrong.words, wrong.stages, strict=True)]
    simulation.engine.write_memory(simulation.engine.top.dispatcher.imem, 0, words)
    with pytest.raises(TagError, match="pc 2 was dispatched with stage gather"):
        simulation.run(max_cycles=1000)


def test_a_memory_request_under_another_tag_is_refused():
    checker = TagChecker(assemble(PAIRS, config=TINY))
    checker.requested(2, Stage.EXPERT_WEIGHT_PREFETCH)
    with pytest.raises(TagError, match="pc 2 sent a memory request with stage gather"):
        checker.requested(2, Stage.GATHER)
