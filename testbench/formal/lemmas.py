"""What makes the proof go through, and what shows that it is about something."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value

from rtl.dispatch.events import RunState, Stall
from testbench.formal.machine import CONFIG, AbstractMachine
from testbench.formal.shadow import TRACKED, Program, Unfinished


def lemmas(
    machine: AbstractMachine, program: Program, unfinished: Unfinished
) -> list[tuple[str, Value]]:
    """How the scoreboard's registers and the list belong together: with these, all of it
    follows from cycle to cycle."""
    registers, slots = machine.scoreboard_registers, range(CONFIG.INFLIGHT)
    fetched = (machine.dispatch.word == program.word) & (machine.dispatch.stage == program.stage)
    found: list[tuple[str, Value]] = [
        (
            "the word at dispatch is the program's",
            fetched | (machine.state != RunState.RUNNING),
        ),
        ("the list fits", unfinished.count <= CONFIG.INFLIGHT),
    ]
    entries = list(enumerate(unfinished.entries))
    here = {(i, s): (unfinished.count > i) & (e.slot == s) for i, e in entries for s in slots}
    for i, entry in entries:
        known = [here[i, s] for s in slots]
        found.append((f"entry {i} has a slot", Cat(*known).any() | (unfinished.count <= i)))
        for s in slots:
            same = registers[f"stage_{s}"] == entry.stage
            if s:
                older = Cat(*(Cat(*(here[j, o] for j in range(i)), 0).any() for o in slots[:s]))
                same &= registers[f"older_{s}"] == older
            found.append((f"slot {s} is entry {i}", ~here[i, s] | same))
    for s in slots:
        mine = Cat(*(here[i, s] for i, _ in entries))
        found.append((f"slot {s} is one entry", (mine & (mine - 1))[: len(entries)] == 0))
        found.append((f"slot {s} is valid", registers["valid"][s] == mine.any()))
        for unit in TRACKED:
            of_unit = Cat(*(here[i, s] & (e.unit == unit) for i, e in entries))
            member = registers[f"members_{unit.name.lower()}"][s]
            found.append((f"slot {s} is a member of {unit.name}", member == of_unit.any()))
    return found


def covers(m: Module, machine: AbstractMachine, unfinished: Unfinished) -> list[tuple[str, Value]]:
    """What must be reachable, or the proof would be about nothing."""
    profile: Any = machine.profile
    earlier, runs = Signal.like(machine.pc, name="earlier_pc"), Signal(2)
    m.d.sync += earlier.eq(machine.pc)
    with m.If(machine.start & (runs != 3)):
        m.d.sync += runs.eq(runs + 1)
    running = machine.state == RunState.RUNNING
    stopping = machine.state == RunState.STOPPING
    differs = machine.bill_stage != machine.dispatch.stage
    wanted: list[tuple[str, Value]] = [
        ("every slot taken", unfinished.count == CONFIG.INFLIGHT),
        ("one overtakes an older one", unfinished.overtaken),
        ("billed to another than the one at dispatch", machine.counting & differs),
        ("a loop goes back", running & (machine.pc < earlier)),
        ("draining after a memory error", stopping & (unfinished.count > 1)),
        ("a second run", (runs == 2) & machine.dispatch.valid),
        ("overlap", profile.overlap_en),
    ]
    for reason in (r for r in Stall if r not in (Stall.NONE, Stall.FETCH)):
        en = getattr(profile, f"stall_{reason.name.lower()}_en")
        wanted.append((f"stall {reason.name}", Value.cast(en)))
    return wanted
