"""The harness: each cycle is billed to exactly one stage, the right one, and no instruction
changes its tag between the instruction memory, its unit and its completion.

What is assumed is what the machine's neighbours promise, and as little of it as possible:

    host    starts the machine and writes the program only while it is idle or halted; registers
            and memories hold anything at first; entry, length, issue policy: anything, anytime
    units   ready: anything; a completion (or memory error) is of an instruction that the unit has;
            its pc and stage, and all other outputs: anything

What is asserted is in `TagProof.elaborate`, each with its name.
"""

from typing import Any

from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    ClockDomain,
    Cover,
    Elaboratable,
    Module,
    Mux,
    Signal,
    Value,
)

from isa.opcodes import Unit
from isa.stages import Stage
from rtl.dispatch.events import COMPLETIONS, RunState, Stall
from testbench.formal.lemmas import covers, lemmas
from testbench.formal.machine import CONFIG, AbstractMachine
from testbench.formal.shadow import PORTS, TRACKED, Program, Unfinished

#: Memories with unknown initial contents, by path; equal names, equal
#: contents.
MEMORIES: dict[tuple[str, ...], str] = {
    ("top", "machine", "dispatcher", "imem"): "program",
    ("top", "program", "copy"): "program",
    ("top", "machine", "dispatcher", "a"): "a",
    ("top", "machine", "dispatcher", "gp", "storage"): "gp",
    ("top", "machine", "dispatcher", "f", "storage"): "f",
}


class TagProof(Elaboratable):
    """The machine beside its model, with assumptions, assertions and covers.

    `shown` are the signals that explain a trace, by name; `properties`, once elaborated, are the
    names of the asserts that are not only lemmas.
    """

    def __init__(self) -> None:
        self.machine = AbstractMachine(CONFIG)
        self.program = Program(CONFIG)
        self.unfinished = Unfinished(CONFIG.INFLIGHT)
        self.properties: list[str] = []
        self.shown: dict[str, Any] = {
            name: getattr(self.machine, name)
            for name in ("state", "pc", "stall", "counting", "bill_stage")
        }
        self.shown |= {
            "word": self.program.word,
            "stage": self.program.stage,
            "dispatched": Signal(name="dispatched"),
            "unfinished": self.unfinished.count,
            "oldest": self.unfinished.oldest,
        }

    def memories(self) -> dict[str, list[Any]]:
        """The storages of each name in `MEMORIES`, for a replay."""
        d = self.machine.dispatcher
        return {
            "program": [d.imem, self.program.contents],
            "a": [d.a],
            "gp": [d.gp.storage],
            "f": [d.f.storage],
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = ClockDomain(reset_less=True)
        m.submodules.machine = machine = self.machine
        m.submodules.program = program = self.program
        m.submodules.unfinished = self.unfinished
        m.d.comb += [
            program.en.eq(machine.imem_write_en),
            program.address.eq(machine.imem_write_address),
            program.write_word.eq(machine.imem_write_word),
            program.write_stage.eq(machine.imem_write_stage),
            program.pc.eq(machine.pc),
            self.shown["dispatched"].eq(machine.dispatch.valid),
        ]
        self._connect_unfinished(m)
        self._assume(m)
        for name, holds in (
            *self._issue_properties(),
            *self._billing_properties(m),
            *self._counter_properties(m),
        ):
            m.d.sync += Assert(holds, name)
            self.properties.append(name)
        for name, holds in lemmas(self.machine, self.program, self.unfinished):
            m.d.sync += Assert(holds, name)
        for name, reached in covers(m, self.machine, self.unfinished):
            m.d.sync += Cover(reached, name)
        return m

    def _connect_unfinished(self, m: Module) -> None:
        for unit in TRACKED:
            issue = getattr(self.machine, unit.name.lower()).issue
            with m.If(issue.valid & issue.ready):
                m.d.comb += [
                    self.unfinished.append.eq(1),
                    self.unfinished.unit.eq(unit),
                    self.unfinished.slot.eq(issue.payload.tag.slot),
                    self.unfinished.stage.eq(self.program.stage),
                ]
        for name in PORTS:
            done = self._completion(name)
            m.d.comb += [
                getattr(self.unfinished, f"{name}_valid").eq(done.valid),
                getattr(self.unfinished, f"{name}_slot").eq(done.tag.slot),
            ]

    def _completion(self, name: str) -> Any:
        d = self.machine.dispatcher
        return d.hbm_error if name == "hbm_error" else getattr(d, f"{name}_done")

    def _assume(self, m: Module) -> None:
        machine = self.machine
        resting = (machine.state == RunState.IDLE) | (machine.state == RunState.HALTED)
        m.d.sync += [
            Assume(~machine.start | resting, "the host starts a machine that rests"),
            Assume(
                ~machine.imem_write_en | (resting & ~machine.start),
                "the host writes the program of a machine that rests, before it starts it",
            ),
        ]
        for name in PORTS:
            own = getattr(self.unfinished, f"owned_{name}")
            m.d.sync += Assume(
                ~self._completion(name).valid | own, f"{name} completes what its unit has"
            )

    def _issue_properties(self) -> list[tuple[str, Value]]:
        """The tag from the instruction memory to the units."""
        machine, program, unfinished = self.machine, self.program, self.unfinished
        issues = [getattr(machine, unit.name.lower()).issue for unit in TRACKED]
        dispatch, immediate = machine.dispatch, machine.immediate_done
        properties: list[tuple[str, Value]] = []
        for unit, issue in zip(TRACKED, issues, strict=True):
            tag = issue.payload.tag
            right = (tag.pc == machine.pc) & (tag.stage == program.stage)
            properties += [
                (f"the tag issued to {unit.name} is the program's", ~issue.valid | right),
                (f"{unit.name} is issued to only when ready", ~issue.valid | issue.ready),
                (
                    f"an instruction issued to {unit.name} gets a free slot",
                    ~issue.valid | (~unfinished.known & (tag.slot < CONFIG.INFLIGHT)),
                ),
            ]
        valids = Cat(*(issue.valid for issue in issues), immediate.valid)
        said = (dispatch.pc == machine.pc) & (dispatch.stage == program.stage)
        same_word = dispatch.word == program.word
        return [
            *properties,
            ("the dispatch event is the program's", ~dispatch.valid | (said & same_word)),
            (
                "the tag of an immediate completion is the program's",
                ~immediate.valid
                | ((immediate.tag.pc == machine.pc) & (immediate.tag.stage == program.stage)),
            ),
            (
                "a dispatched instruction goes to one unit or completes",
                _one_hot(valids) | ~dispatch.valid,
            ),
            ("nothing goes anywhere undispatched", dispatch.valid | (valids == 0)),
        ]

    def _billing_properties(self, m: Module) -> list[tuple[str, Value]]:
        """Whom a cycle belongs to, and that it is a dispatch or one stall."""
        machine, program, unfinished = self.machine, self.program, self.unfinished
        counting, dispatch, stall = machine.counting, machine.dispatch, machine.stall
        owner = Signal(Stage)
        m.d.comb += owner.eq(Mux(unfinished.count == 0, program.stage, unfinished.oldest))
        profile: Any = machine.profile
        reasons = [r for r in Stall if r is not Stall.NONE]
        stalls = {r: getattr(profile, f"stall_{r.name.lower()}_en") for r in reasons}
        properties: list[tuple[str, Value]] = [
            ("the bill goes to the oldest", ~counting | (machine.bill_stage == owner)),
            (
                "a counting cycle is a dispatch or a stall, not both",
                ~counting | (dispatch.valid ^ (stall != Stall.NONE)),
            ),
            ("dispatch only in counting cycles", counting | ~dispatch.valid),
            ("no fetch stall", stall != Stall.FETCH),
            (
                "wall cycles are dispatches plus stalls",
                profile.wall_en == _total([profile.dispatched_en, *stalls.values()]),
            ),
            ("counting while anything is unfinished", counting | (unfinished.count == 0)),
        ]
        for reason, en in stalls.items():
            want = owner if reason is Stall.DRAIN else program.stage
            stage = getattr(profile, f"stall_{reason.name.lower()}_stage")
            properties.append((f"stall {reason.name} is billed right", ~en | (stage == want)))
        for unit in TRACKED:
            name = unit.name.lower()
            busy = getattr(unfinished, f"busy_{unit.name}")
            here = machine.immediate_done.valid & (dispatch.unit == unit)
            want = Mux(busy, getattr(unfinished, f"oldest_{unit.name}"), program.stage)
            en, stage = (getattr(profile, f"busy_{name}_{x}") for x in ("en", "stage"))
            properties.append(
                (
                    f"busy {unit.name} is billed to its oldest",
                    (en == (busy | here)) & (~en | (stage == want)),
                )
            )
        control = machine.immediate_done.valid & (dispatch.unit == Unit.CONTROL)
        properties.append(("busy CONTROL is its dispatches", profile.busy_control_en == control))
        for name in COMPLETIONS:
            done, counter = self._completion(name), f"completed_{name}"
            en, stage = (getattr(profile, f"{counter}_{x}") for x in ("en", "stage"))
            right = (en == done.valid) & (~en | (stage == done.tag.stage))
            properties.append((f"{counter} counts the unit's tag", right))
        return properties

    def _counter_properties(self, m: Module) -> list[tuple[str, Value]]:
        """The wall counters themselves, from one cycle to the next."""
        machine = self.machine
        counts = machine.profile.counters["wall"].counts
        before = [Signal.like(count, name=f"before_{count.name}") for count in counts]
        counted, billed = Signal(), Signal(Stage)
        m.d.sync += [old.eq(count) for old, count in zip(before, counts, strict=True)]
        m.d.sync += [counted.eq(machine.counting), billed.eq(machine.bill_stage)]
        changed = [count != old for count, old in zip(counts, before, strict=True)]
        properties: list[tuple[str, Value]] = [
            ("one wall counter per counting cycle", _total(changed) == counted)
        ]
        for stage, old, count in zip(Stage, before, counts, strict=True):
            wanted = (old + (counted & (billed == stage)))[: len(count)]
            properties.append((f"wall {stage.label} counts its cycles", count == wanted))
        return properties


def _total(bits: list[Any]) -> Any:
    return sum(bits, start=Value.cast(0))


def _one_hot(bits: Value) -> Value:
    return (bits != 0) & ((bits & (bits - 1))[: len(bits)] == 0)
