"""Lock step: every instruction that the hardware dispatches is executed on the architectural
machine, and what the hardware does for it is compared, on any engine, as it happens."""

import copy
from collections import deque
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from isa.instruction import Instruction
from isa.opcodes import State
from isa.traps import Trap
from rtl.dispatch.events import RunState
from sim.lockstep_report import Report, compare_states, stored
from sim.machine import Effect, Halt, HbmWrite, Machine, RegisterWrite, RowWrite, WordWrite
from sim.mismatch import canonical
from sim.observers import Completed, Dispatched, Observer, Written
from sim.result import describe
from sim.simulation import Simulation

HISTORY = 20
_NEVER = 1 << 62


class LockstepError(AssertionError):
    """The hardware and the machine differ: where, in which effect, and both states."""


@dataclass
class _Row:
    """A row write that the machine made, and the lanes that the hardware still owes."""

    effect: RowWrite
    owed: int


@dataclass(eq=False)
class Unfinished:
    """A dispatched instruction, with its effects on the machine.

    `failed`: the memory answers it with an error, so it never completes, and its target rows are
    undefined.
    """

    number: int
    pc: int
    effects: list[Effect]
    failed: bool
    rows: dict[tuple[str, int], list[_Row]] = field(default_factory=dict)
    completed: int | None = None

    def __post_init__(self) -> None:
        for effect in self.effects:
            if isinstance(effect, RowWrite):
                owed = self.rows.setdefault((effect.memory, effect.row), [])
                owed.append(_Row(effect, effect.lanes))


class Lockstep(Observer):
    """Runs the machine beside the hardware; pass it among the observers of `Simulation.run`.

    Compared per instruction: SRAM rows as they are written (by the pc of the write's tag, oldest
    dispatch first); registers, FP_MEM, INT_MEM and device memory once it has completed (unless a
    younger instruction has written there). At the end: the halt record, that every instruction
    completed, and the whole state. The machine starts from the state that the host loaded.

    After a memory error the target rows of the failed prefetch are undefined, and left out.
    Registers that the hardware should not have written show at the end only.

    Attributes: `machine`, `executed` (instructions dispatched).

    Raises (through `Simulation.run`):
        LockstepError: the first difference.
    """

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.executed = 0
        self._failed = False
        self._interrupted = False

    def start(self, simulation: object) -> None:
        """Take over the hardware's state, unless the run goes on from a pause."""
        assert isinstance(simulation, Simulation)
        if self._interrupted:
            return
        self._simulation = sim = simulation
        hbm = copy.deepcopy(sim.hbm)
        if self.machine is None:
            self.machine = Machine(sim.config, sim.image, hbm)
        self._machine = machine = self.machine
        memories = machine.memories
        memories.hbm = hbm
        memories.write_vector(0, sim.memories.read_vector())
        for tile in range(sim.config.MRAM_TILES):
            memories.write_matrix(tile, sim.memories.read_matrix(tile))
        memories.write_fp(0, sim.memories.read_fp())
        memories.write_int(0, sim.memories.read_int())
        machine.pc = sim.engine.get(sim.engine.top.entry)
        machine.halt = None
        self._queues: dict[int, deque[Unfinished]] = {}
        self._closing: list[Unfinished] = []
        self._writers: dict[tuple[str, int | str], int] = {}
        self._undefined: set[tuple[str, int]] = set()
        self._fault: Halt | None = None
        self._history: deque[tuple[int, int]] = deque(maxlen=HISTORY)
        self._cycle = 0

    # Events.

    def dispatched(self, event: Dispatched) -> None:
        """Execute the same instruction on the machine."""
        self._settle(event.cycle)
        machine = self._machine
        if event.pc != machine.pc:
            want = describe(self._simulation.image, machine.pc)
            self._fail("the next instruction differs", f"dispatched pc {event.pc}", want, None)
        effects: list[Effect] = []
        halt = machine.step(effects)
        failed = halt is not None and halt.by_memory
        instance = Unfinished(self.executed, event.pc, effects, failed)
        self.executed += 1
        self._history.append((instance.number, event.pc))
        if event.word != int(self._simulation.image.words[event.pc]):
            self._fail("the word differs from the image", f"0x{event.word:08X}", "", instance)
        if failed:
            self._fault = self._fault or halt
            self._undefined |= self._targets(event.word)
            machine.step_over()
        elif halt is not None and halt.cause is not Trap.BREAK:
            self._fail("dispatched, but the machine traps", "no trap", str(halt), instance)
        self._queues.setdefault(event.pc, deque()).append(instance)
        for effect in effects:
            if isinstance(effect, RegisterWrite):
                self._writers[effect.file, effect.index] = instance.number
            elif isinstance(effect, WordWrite):
                self._writers[effect.memory, effect.address] = instance.number

    def completed(self, event: Completed) -> None:
        """The oldest unfinished instruction at that pc has completed."""
        self._settle(event.cycle)
        for instance in self._queues.get(event.pc, ()):
            if instance.completed is None and not instance.failed:
                instance.completed = event.cycle
                self._closing.append(instance)
                return
        where = describe(self._simulation.image, event.pc)
        self._fail(f"{where} completed on {event.port}", "completed", "not under way", None)

    def written(self, event: Written) -> None:
        """Compare a row with what the machine wrote."""
        self._settle(event.cycle)
        key = event.memory, event.row
        queue = self._queues.get(event.pc, ())
        for instance in queue:
            for row in instance.rows.get(key, ()):
                if event.lanes & row.owed == event.lanes:
                    row.owed &= ~event.lanes
                    self._compare_row(event, instance, row.effect)
                    return
        if key in self._undefined and any(instance.failed for instance in queue):
            return
        got = RowWrite(event.memory, event.row, event.lanes, self._lanes(event.data))
        where = describe(self._simulation.image, event.pc)
        owed = [str(r.effect) for i in queue for rows in i.rows.values() for r in rows if r.owed]
        want = "; ".join(owed) or "no write"
        self._fail(f"{where} makes a write that the machine does not", str(got), want, None)

    def stop(self) -> None:
        """Compare the halt record and the whole state, when the hardware has halted."""
        engine = self._simulation.engine
        top = engine.top
        self._interrupted = engine.get(top.state) != RunState.HALTED.value
        if self._failed or self._interrupted:
            return
        self._settle(_NEVER)
        for queue in self._queues.values():
            for instance in queue:
                if not instance.failed:
                    self._fail("never completed", "halted", "unfinished", instance)
        self._compare_halt()
        problem = compare_states(self._simulation, self._machine, self._undefined)
        if problem is not None:
            self._fail("the state at the end differs", *problem, None)

    # Comparisons.

    def _lanes(self, data: int) -> np.ndarray:
        mlen = self._simulation.config.MLEN
        return np.frombuffer(data.to_bytes(2 * mlen, "little"), "<u2").astype(np.uint16)

    def _compare_row(self, event: Written, instance: Unfinished, want: RowWrite) -> None:
        got = self._lanes(event.data)
        different = np.flatnonzero(canonical(got) != canonical(want.data))
        wrong = [lane for lane in different.tolist() if event.lanes >> lane & 1]
        if wrong:
            lanes = f"lane{'s' * (len(wrong) > 1)} {', '.join(map(str, wrong))}"
            shown = RowWrite(event.memory, event.row, event.lanes, got)
            self._fail(f"the row differs in {lanes}", str(shown), str(want), instance)

    def _settle(self, cycle: int) -> None:
        """Check the instructions that completed before `cycle`: their writes have all landed."""
        self._cycle = cycle if cycle != _NEVER else self._cycle
        while self._closing and (self._closing[0].completed or 0) < cycle:
            instance = self._closing.pop(0)
            for rows in instance.rows.values():
                for row in rows:
                    if row.owed:
                        self._fail("completed without a row", "", str(row.effect), instance)
            for effect in instance.effects:
                self._compare_storage(instance, effect)
            self._queues[instance.pc].remove(instance)

    def _compare_storage(self, instance: Unfinished, effect: Effect) -> None:
        if isinstance(effect, RowWrite):
            return
        if isinstance(effect, HbmWrite):
            self._compare_hbm(instance, effect)
            return
        if isinstance(effect, RegisterWrite):
            key, bf16 = (effect.file, effect.index), effect.file == "f"
        else:
            key, bf16 = (effect.memory, effect.address), effect.memory == "FP_MEM"
        if self._writers[key] != instance.number:
            return
        got = stored(self._simulation, *key)
        want = effect.value
        if got != want and not (bf16 and _both_nan(got, want)):
            self._fail("the result differs", f"0x{got:X}", str(effect), instance)

    def _compare_hbm(self, instance: Unfinished, effect: HbmWrite) -> None:
        address, length = effect.address, len(effect.content)
        got = self._simulation.hbm.read(address, length)
        want = self._machine.hbm.read(address, length)
        if got == want:
            return
        later = [
            e
            for queue in self._queues.values()
            for i in queue
            if i.number > instance.number
            for e in i.effects
            if isinstance(e, HbmWrite)
        ]
        for at, (g, w) in enumerate(zip(got, want, strict=True), address):
            overlaid = any(e.address <= at < e.address + len(e.content) for e in later)
            if g != w and not overlaid:
                self._fail(f"byte 0x{at:X} of HBM differs", f"{g:02X}", f"{w:02X}", instance)

    def _compare_halt(self) -> None:
        engine, machine = self._simulation.engine, self._machine
        halt = engine.top.halt
        got = (
            Trap(engine.get(halt.cause)),
            *(engine.get(v) for v in (halt.pc, halt.word, halt.operand)),
            bool(engine.get(halt.precise)),
        )
        record = self._fault or machine.halt or machine.step()
        if record is None:
            self._fail("halted, but the machine goes on", str(got), "no halt", None)
        precise = not record.by_memory or self._simulation.issue == "serial"
        want = (record.cause, record.pc, record.word, record.operand, precise)
        if got != want:
            self._fail("the halt record differs", str(got), str(want), None)

    def _targets(self, word: int) -> set[tuple[str, int]]:
        """The rows that a failed prefetch may have written; a store has none."""
        config, instruction = self._simulation.config, Instruction.decode(word)
        first = self._machine.memories.gp[instruction.value("rd")] // config.MLEN
        for state, memory, count in (
            (State.VECTOR_SRAM, "vram", config.v_prefetch),
            (State.MATRIX_SRAM, "mram", config.m_prefetch),
        ):
            if instruction.opcode.access(state, writes=True):
                return {(memory, row) for row in range(first, first + count)}
        return set()

    def _fail(self, what: str, got: str, want: str, instance: Unfinished | None) -> NoReturn:
        self._failed = True
        unfinished = [i for queue in self._queues.values() for i in queue]
        pcs = [(i.number, i.pc) for i in sorted(unfinished, key=lambda i: i.number)]
        report = Report(self._simulation, self._machine, self._cycle, list(self._history), pcs)
        at = None if instance is None else (instance.number, instance.pc)
        raise LockstepError(report.text(what, got, want, at))


def _both_nan(a: int, b: int) -> bool:
    return a & 0x7FFF > 0x7F80 and b & 0x7FFF > 0x7F80
