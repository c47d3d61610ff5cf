"""The directed programs, and those that fill the scoreboard: the hardware agrees with the machine,
and each reaches what it is for."""

from collections import Counter
from itertools import chain

import pytest

from isa.config import PRESETS
from isa.stages import Stage
from isa.traps import Trap
from sim.lockstep import LockstepError
from sim.machine import Machine
from sim.machine.addresses import Stop
from sim.observers import Completed, Dispatched, Observer
from testbench.fuzz.accumulators import accumulators
from testbench.fuzz.bursts import bursts
from testbench.fuzz.case import FuzzCase, Line
from testbench.fuzz.crowded import CrowdedGenerator
from testbench.fuzz.dense import dense
from testbench.fuzz.errors import errors
from testbench.fuzz.far import far
from testbench.fuzz.faults import faults
from testbench.fuzz.meetings import meetings
from testbench.fuzz.nests import nests
from testbench.fuzz.restarts import run_through
from testbench.fuzz.run import is_runnable, run_case, under
from testbench.fuzz.session import EVERY_OPCODE
from testbench.fuzz.sweeps import contents, sweeps
from testbench.fuzz.tiles import tiles
from testbench.fuzz.traffic import traffic
from testbench.fuzz.weights import weights
from tests.conftest import engine_for, needs_compiler

CONFIG = PRESETS["tiny"].replace(name="two heads", HLEN=4)


def directed() -> dict[str, FuzzCase]:
    """All that run to their end."""
    matrix = accumulators(CONFIG, 3)
    kinds = (meetings(CONFIG), dense(CONFIG), bursts(CONFIG, 3), weights(CONFIG, 1), far(CONFIG))
    return dict(chain(*kinds, matrix, traffic(CONFIG, 6), tiles(CONFIG)))


DIRECTED = directed()
*IN_SLOTS, ONE_BY_ONE = faults(CONFIG)
FAULTY = dict(chain(errors(CONFIG, 6), IN_SLOTS))
SWEEPS = dict(sweeps(CONFIG))
#: Sweeps that are over in a second or two; all of them take two minutes.
SHORT = ("loops", "opcodes", "bases of H_STORE_V")

pytestmark = needs_compiler


class InFlight(Observer):
    """The most instructions that were unfinished at once, and the stages that were dispatched."""

    accepts_late_events = True

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.stages: set[int] = set()

    def dispatched(self, event: Dispatched) -> None:
        self.now += 1
        self.stages.add(event.stage)

    def completed(self, event: Completed) -> None:
        self.most = max(self.most, self.now)
        self.now -= 1


class Crowds(Observer):
    """How many instructions were unfinished whenever one completed."""

    accepts_late_events = True

    def __init__(self) -> None:
        self.now = 0
        self.counts: Counter[int] = Counter()

    def dispatched(self, event: Dispatched) -> None:
        self.now += 1

    def completed(self, event: Completed) -> None:
        self.counts[self.now] += 1
        self.now -= 1


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_programs_agree_under_both_policies(name: str):
    check = under(("overlap", "serial"), engine_for(CONFIG, "compiled"))
    outcomes = check(DIRECTED[name])
    assert outcomes[-1].failure == ""
    assert [o.cause for o in outcomes] == [Trap.DONE, Trap.DONE]


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_beat_ends_one_transfer_of_many(name: str):
    check = under(("overlap", "serial"), engine_for(CONFIG, "compiled"))
    outcomes = check(FAULTY[name])
    assert outcomes[-1].failure == ""
    assert [o.cause for o in outcomes] == [Trap.HBM_ADDRESS, Trap.HBM_ADDRESS]
    assert not outcomes[0].precise


def test_serial_execution_goes_on_behind_faults():
    results = run_through(ONE_BY_ONE[1], engine_for(CONFIG, "compiled"))
    causes = Counter(result.cause for result in results)
    assert causes == {Trap.HBM_ADDRESS: len(results) - 1, Trap.DONE: 1}
    assert len(results) > CONFIG.INFLIGHT
    assert all(result.precise for result in results)


@pytest.mark.slow
def test_loops_at_pcs_with_every_bit():
    ((_, case),) = nests(CONFIG)
    outcome = run_case(case, engine_for(CONFIG, "compiled"))
    assert (outcome.failure, outcome.cause) == ("", Trap.DONE)
    assert len(case.image()) > CONFIG.IMEM_WORDS - 4 * CONFIG.LOOP_DEPTH


def test_traffic_keeps_most_slots_taken():
    engine, watch = engine_for(CONFIG, "compiled"), Crowds()
    for name in (name for name in DIRECTED if name.startswith("traffic")):
        assert run_case(DIRECTED[name], engine, watch).failure == "", name
    assert watch.counts.keys() >= set(range(1, CONFIG.INFLIGHT + 1))
    most = sum(n for count, n in watch.counts.items() if count > CONFIG.INFLIGHT // 2)
    assert most > watch.counts.total() // 2


def test_crowded_programs_agree_and_fill_the_scoreboard():
    engine, watch = engine_for(CONFIG, "compiled"), InFlight()
    for seed in range(12):
        case = CrowdedGenerator(CONFIG, seed, EVERY_OPCODE).case("overlap")
        if is_runnable(case):
            watch.now = 0
            assert run_case(case, engine, watch).failure == "", seed
    assert watch.most > CONFIG.INFLIGHT  # with the one at dispatch
    assert watch.stages == set(Stage)


@pytest.mark.parametrize("name", SHORT)
def test_a_sweep_goes_on_behind_its_traps(name: str):
    check_sweep(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SWEEPS if name not in SHORT])
def test_every_sweep(name: str):
    check_sweep(name)


def check_sweep(name: str) -> None:
    results = run_through(SWEEPS[name], engine_for(CONFIG, "compiled"))
    assert results[-1].cause is Trap.DONE
    assert len(results) > 20
    words = len(SWEEPS[name].image().words)
    assert results[-1].pc == words


def test_sweeps_meet_every_trap():
    causes: Counter[Trap] = Counter()
    for case in SWEEPS.values():
        machine = Machine(case.config, case.image(), case.hbm())
        case.contents.load(machine.memories, machine.hbm)
        entry = 0
        while entry is not None:
            halt = machine.run(entry=entry)
            causes[halt.cause] += 1
            entry = None if halt.cause in (Trap.DONE, Trap.WATCHDOG) else halt.pc + 1
    assert set(Trap) - causes.keys() == {Trap.NONE, Trap.WATCHDOG}


def test_a_wrong_limit_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """A machine whose INT_MEM is one word shorter than the hardware's."""
    original = Machine.step

    def step(self, log=None):
        words = self.memories.config.INT_MEM_WORDS
        if self._words[self.pc] & 0x3F == 0x26 and self.memories.gp[2] == words - 1:
            self.halt = self._record(self.pc, Stop(Trap.INT_MEM_ADDRESS, words - 1))
            return self.halt
        return original(self, log)

    monkeypatch.setattr(Machine, "step", step)
    with pytest.raises(LockstepError, match="dispatched, but the machine traps"):
        run_through(SWEEPS["addresses of S_LD_INT"], engine_for(CONFIG, "compiled"))


def test_programs_are_the_same_every_time():
    again = directed()
    assert {n: c.source() for n, c in again.items()} == {n: c.source() for n, c in DIRECTED.items()}
    assert len({case.source() for case in DIRECTED.values()}) == len(DIRECTED)


def test_a_program_goes_on_at_the_next_instruction():
    case = FuzzCase(CONFIG, (Line("C_LOOP_END gp1"), Line("C_BREAK")), contents(CONFIG, 0))
    results = run_through(case, engine_for(CONFIG, "compiled"))
    assert [r.cause for r in results] == [Trap.LOOP_MISMATCH, Trap.BREAK, Trap.DONE]
