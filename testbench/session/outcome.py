"""The end of a user's run, for a person: what stopped it, where, and what is under way."""

from isa.instruction import word_text
from isa.stages import BRANCH_OF, Branch, Stage
from isa.traps import Trap
from sim.engine import Engine
from sim.result import RunResult, describe
from sim.simulation import Simulation
from testbench.session.program import Program
from testbench.session.stops import Stops
from testbench.session.trace import InFlight

#: What to do about the causes that a command line can do something about.
WAYS_OUT: dict[Trap, str] = {
    Trap.WATCHDOG: "the limit is --max-cycles; --trace and --break show what it does",
    Trap.HBM_ADDRESS: "--break with this pc stops before it; --dump a and --dump gp show the "
    "address",
    Trap.VECTOR_ADDRESS: "--break with this pc stops before it; --dump gp shows the address",
    Trap.MATRIX_ADDRESS: "--break with this pc stops before it; --dump gp shows the address",
}
MORE_PATIENCE = "the limit is --max-idle; --trace shows what came before"


def outcome(
    program: Program,
    engine: Engine,
    result: RunResult,
    stops: Stops | None,
    in_flight: InFlight,
) -> list[str]:
    """What stopped the run, the source line, and which instructions have not completed."""
    image = program.image
    way_out = MORE_PATIENCE if result.deadlock else WAYS_OUT.get(result.cause)
    if result.cause is Trap.NONE and stops is not None:
        where = describe(image, result.pc)
        lines = [f"stopped at cycle {result.cycles}, {stops.reason}, before {where}"]
    else:
        lines = result.report(image).splitlines()
    source = program.source_line(result.pc) if result.cause is not Trap.DONE else ""
    if source:
        lines.insert(1, f"  {source}")
    if way_out:
        lines.append(f"  {way_out}")
    lines.append(
        f"{in_flight.dispatches} instructions dispatched, {in_flight.completions} completed in "
        f"{result.cycles} cycles; configuration {program.config.name}, engine {engine.name} "
        f"({engine.reason}), issue {result.issue}"
    )
    unfinished = in_flight.flight.unfinished()
    if result.cause is Trap.NONE:
        lines.append(
            "every instruction before it has completed"
            if not unfinished
            else "under way, effects not all visible yet (--issue serial avoids it):"
        )
    elif unfinished and result.cause is not Trap.DONE:
        lines.append("not completed:")
    lines += [f"  pc {e.pc} since cycle {e.cycle}: {word_text(e.word)}" for e in unfinished]
    return lines


def registers(simulation: Simulation) -> list[str]:
    """Every register that is not zero, and the special ones."""
    memories = simulation.memories
    files = (
        ("gp", memories.read_gp(), 8),
        ("f", memories.read_f(), 4),
        ("a", memories.read_a(), 16),
    )
    lines = []
    for name, values, digits in files:
        shown = [f"{name}{i}={int(v):0{digits}X}" for i, v in enumerate(values.tolist()) if v]
        lines.append(f"{name}: {' '.join(shown) or 'all zero'}")
    state = " ".join(f"{name}={value}" for name, value in memories.read_state().items())
    return [*lines, f"state: {state}"]


def routed_note(program: Program, note: str) -> str:
    """The caveat about shared against routed time: `note` for a program that routes nothing."""
    counts = program.image.stage_counts()
    routed = any(BRANCH_OF[s] is Branch.ROUTED and counts.get(s.label) for s in Stage)
    if not routed:
        return note
    return (
        "A ratio of shared to routed time says at least as much about how the routed experts were "
        "lowered as about the hardware. This program came from outside, so that its routed "
        "lowering is not known here."
    )
