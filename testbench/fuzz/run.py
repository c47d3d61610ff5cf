"""One case on the hardware, in lock step."""

import time
from collections import Counter
from dataclasses import dataclass, field

from isa.traps import Trap
from sim.engine import Engine
from sim.lockstep import Lockstep
from sim.machine import Machine
from sim.observers import Dispatched, Observer
from sim.simulation import Simulation
from testbench.fuzz.case import FuzzCase

MAX_CYCLES = 60_000
MAX_INSTRUCTIONS = 4_000
MAX_RESUMES = 50


class _Opcodes(Observer):
    accepts_late_events = True

    def __init__(self) -> None:
        self.codes: Counter[int] = Counter()

    def dispatched(self, event: Dispatched) -> None:
        self.codes[event.word & 0x3F] += 1


@dataclass(frozen=True)
class Outcome:
    """What happened: `failure` is empty when hardware and machine agree."""

    failure: str
    cause: Trap
    instructions: int
    cycles: int
    seconds: float
    codes: Counter[int] = field(repr=False)


def is_runnable(case: FuzzCase) -> bool:
    """Whether the program ends, soon enough, and uses only what the datapath has."""
    hbm = case.hbm()
    machine = Machine(case.config, case.image(), hbm)
    case.contents.load(machine.memories, hbm)
    halt = machine.run(max_instructions=MAX_INSTRUCTIONS)
    while halt.cause is Trap.BREAK:
        halt = machine.resume(max_instructions=MAX_INSTRUCTIONS)
    return halt.cause is not Trap.WATCHDOG


def run_case(case: FuzzCase, engine: Engine) -> Outcome:
    """Run to the end, through breakpoints.

    Whatever is raised on the way counts as the case's failure, since a program must not be able to
    make the simulation raise.
    """
    started = time.process_time()
    lockstep, opcodes = Lockstep(), _Opcodes()
    hbm = case.hbm()
    failure, cause, cycles = "", Trap.NONE, 0
    try:
        simulation = Simulation(case.config, case.image(), hbm, engine=engine, issue=case.issue)
        case.contents.load(simulation.memories, hbm)
        observers = (lockstep, opcodes)
        result = simulation.run(max_cycles=MAX_CYCLES, observers=observers)
        for _ in range(MAX_RESUMES):
            cycles += result.cycles
            if result.cause is not Trap.BREAK:
                break
            result = simulation.resume(result, max_cycles=MAX_CYCLES, observers=observers)
        cause = result.cause
        if cause is Trap.WATCHDOG:
            failure = result.report(simulation.image)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    seconds = time.process_time() - started
    return Outcome(failure, cause, lockstep.executed, cycles, seconds, opcodes.codes)
