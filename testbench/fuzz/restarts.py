"""Programs that go on behind their traps: the host starts them again at the next instruction."""

from isa.traps import Trap
from sim.engine import Engine
from sim.lockstep import Lockstep
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.run import MAX_CYCLES

MAX_RESTARTS = 5_000


def goes_on(cause: Trap, precise: bool, *, through_traps: bool) -> bool:
    """Whether a run is started again at the next instruction after it has halted."""
    if cause is Trap.BREAK:
        return True
    return through_traps and precise and cause not in (Trap.NONE, Trap.DONE, Trap.WATCHDOG)


def run_through(case: FuzzCase, engine: Engine) -> list[RunResult]:
    """Run in lock step to the program's end, through breakpoints and precise traps.

    Raises:
        LockstepError: the hardware and the machine differ.
    """
    hbm = case.hbm()
    simulation = Simulation(case.config, case.image(), hbm, engine=engine, issue=case.issue)
    case.contents.load(simulation.memories, hbm)
    lockstep = Lockstep()
    results = [simulation.run(max_cycles=MAX_CYCLES, observers=[lockstep])]
    while len(results) < MAX_RESTARTS and goes_on(
        results[-1].cause, results[-1].precise, through_traps=True
    ):
        entry = results[-1].pc + 1
        results.append(simulation.run(entry=entry, max_cycles=MAX_CYCLES, observers=[lockstep]))
    return results
