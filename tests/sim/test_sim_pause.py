"""A run that `until` pauses goes on as if nothing had happened."""

import pytest

from isa.traps import Trap

SOURCE = """
S_ADDI_INT gp1, gp0, 8
H_PREFETCH_V gp1, gp0, a0, 0, 0
C_LOOP_START gp3, 3
V_EXP_V gp0, gp1
V_ADD_VV gp1, gp0, gp1, 0
C_LOOP_END gp3
S_LD_FP f1, gp0, 9
"""


def state(sim) -> list:
    memories = sim.memories
    return [memories.read_vector(0, 8).tolist(), memories.read_gp().tolist()]


@pytest.mark.parametrize("issue", ["overlap", "serial"])
@pytest.mark.parametrize("every", [1, 7])
def test_pauses_change_neither_cycles_nor_results(program, issue, every):
    def loaded():
        sim = program(SOURCE, issue=issue)
        sim.hbm.write(0, bytes(range(64)))
        return sim

    sim = loaded()
    whole, want = sim.run(), state(sim)
    sim = loaded()
    asked = 0

    def until() -> bool:
        nonlocal asked
        asked += 1
        return asked % every == 0

    result, pauses = sim.run(until=until), 0
    while result.cause is Trap.NONE:
        assert result.ok
        assert 0 <= result.pc <= len(sim.image)
        pauses += 1
        asked = 0
        result = sim.resume(result, until=until if every > 1 else _after_one_cycle())
    assert pauses > 5
    assert result.cause is Trap.DONE
    assert result.cycles == whole.cycles
    assert result.counters == whole.counters
    assert state(sim) == want


def _after_one_cycle():
    answers = iter([False])
    return lambda: next(answers, True)


def test_a_pause_before_the_first_cycle_has_done_nothing(program):
    sim = program("S_ADDI_INT gp1, gp0, 1\n")
    result = sim.run(until=lambda: True)
    assert (result.cause, result.pc, result.cycles) == (Trap.NONE, 0, 0)
    assert sim.memories.read_gp()[1] == 0
    assert sim.resume(result).cause is Trap.DONE
    assert sim.memories.read_gp()[1] == 1


def test_a_pause_wins_over_the_cycle_limit_and_a_finished_run_cannot_go_on(program):
    sim = program("S_ADDI_INT gp1, gp1, 1\n" * 20)
    cycles = iter(range(100))
    result = sim.run(max_cycles=5, until=lambda: next(cycles) == 5)
    assert (result.cause, result.cycles, result.pc) == (Trap.NONE, 5, 5)
    result = sim.resume(result)
    with pytest.raises(ValueError, match="C_BREAK or paused"):
        sim.resume(result)
