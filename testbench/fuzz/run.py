"""One case on the hardware, in lock step; and the same case under both policies or on two
engines."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from isa.traps import Trap
from sim.engine import Engine
from sim.lockstep import Lockstep
from sim.machine import Machine
from sim.observers import Dispatched, EventLog, Observer
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.ended import Ended, difference
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.final import Final

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
    """What happened: `failure` is empty when hardware and machine agree.

    `results` has one record for each time that the machine halted: C_BREAK is gone on behind.
    """

    failure: str
    results: tuple[RunResult, ...]
    instructions: int
    seconds: float
    final: Final | None = field(repr=False)
    codes: Counter[int] = field(repr=False)

    @property
    def cause(self) -> Trap:
        """Why the program ended."""
        return self.results[-1].cause if self.results else Trap.NONE

    @property
    def cycles(self) -> int:
        """Of the whole run."""
        return self.results[-1].cycles if self.results else 0

    @property
    def precise(self) -> bool:
        """Whether the program ended where serial execution ends too."""
        return bool(self.results) and self.results[-1].precise


def is_runnable(case: FuzzCase) -> bool:
    """Whether the program ends, soon enough."""
    hbm = case.hbm()
    machine = Machine(case.config, case.image(), hbm)
    case.contents.load(machine.memories, hbm)
    halt = machine.run(max_instructions=MAX_INSTRUCTIONS)
    while halt.cause is Trap.BREAK:
        halt = machine.resume(max_instructions=MAX_INSTRUCTIONS)
    return halt.cause is not Trap.WATCHDOG


Before = Callable[[Machine, int], None]
"""What `Lockstep` calls before each instruction."""


def run_case(
    case: FuzzCase, engine: Engine, *observers: Observer, before: Before | None = None
) -> Outcome:
    """Run to the end, through breakpoints, in lock step.

    Whatever is raised on the way counts as the case's failure, since a program must not be able to
    make the simulation raise.
    """
    started = time.process_time()
    lockstep, opcodes = Lockstep(before), _Opcodes()
    hbm = case.hbm()
    failure, results, final = "", [], None
    try:
        simulation = Simulation(case.config, case.image(), hbm, engine=engine, issue=case.issue)
        case.contents.load(simulation.memories, hbm)
        watching = (lockstep, opcodes, *observers)
        results.append(simulation.run(max_cycles=MAX_CYCLES, observers=watching))
        while results[-1].cause is Trap.BREAK and len(results) <= MAX_RESUMES:
            results.append(
                simulation.resume(results[-1], max_cycles=MAX_CYCLES, observers=watching)
            )
        if results[-1].cause is Trap.WATCHDOG:
            failure = results[-1].report(simulation.image)
        final = Final.of(simulation)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    seconds = time.process_time() - started
    return Outcome(failure, tuple(results), lockstep.executed, seconds, final, opcodes.codes)


Check = Callable[[FuzzCase], list[Outcome]]
"""Runs a case in some ways; the outcomes, of which the last has a failure when they disagree."""


def under(policies: Sequence[str], engine: Engine, before: Before | None = None) -> Check:
    """A case under each issue policy: the same final state, unless the memory's error ended it.

    `before` is called in the run under the first policy.
    """

    def check(case: FuzzCase) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for issue in policies:
            watch = None if outcomes else before
            outcome = run_case(replace(case, issue=issue), engine, before=watch)
            if not outcome.failure and outcomes:
                outcome = replace(outcome, failure=_disagreement(outcomes[0], outcome, policies))
            outcomes.append(outcome)
            if outcome.failure:
                break
        return outcomes

    return check


def _disagreement(first: Outcome, second: Outcome, policies: Sequence[str]) -> str:
    if not (first.precise and second.precise and first.final and second.final):
        return ""
    ends = [(r.cause, r.pc, r.word, r.operand) for r in (first.results[-1], second.results[-1])]
    if ends[0] != ends[1]:
        return f"{policies[0]} ends with {ends[0]}, {policies[1]} with {ends[1]}"
    difference = first.final.difference(second.final)
    return difference and f"{' and '.join(policies)} leave different states: {difference}"


def on_both(engines: Sequence[Engine], policies: Sequence[str]) -> Check:
    """A case on two engines: the same events in the same cycles, counters, halts, final state."""

    def check(case: FuzzCase) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for issue in policies:
            logs = [EventLog(), EventLog()]
            both = [
                run_case(replace(case, issue=issue), engine, log)
                for engine, log in zip(engines, logs, strict=True)
            ]
            names = [engine.name for engine in engines]
            failure = both[0].failure or both[1].failure or _unequal(both, logs, names)
            outcomes.append(replace(both[0], failure=failure))
            if failure:
                break
        return outcomes

    return check


def _unequal(both: Sequence[Outcome], logs: Sequence[EventLog], names: Sequence[str]) -> str:
    ended: list[Ended] = []
    for outcome, log in zip(both, logs, strict=True):
        assert outcome.final is not None
        ended.append(Ended(log.events, outcome.results, outcome.final))
    found = difference(*ended)
    return found and f"{names[0]} | {names[1]}: {found}"
