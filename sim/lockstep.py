"""Lock step: every instruction that the hardware dispatches is executed on the architectural
machine, and what the hardware does for it is compared, on any engine, as it happens."""

import copy
from collections import deque
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from isa.opcodes import OPCODES
from isa.traps import Trap
from rtl.dispatch.events import RunState
from sim.hbm import BEAT_BYTES, HbmMemory
from sim.lockstep_ledger import Ledger, Unfinished, prefetch_targets
from sim.lockstep_report import Report, Seen, compare_states
from sim.machine import Effect, Halt, Machine, RegisterWrite, RowWrite
from sim.mismatch import canonical
from sim.observers import Completed, Dispatched, HbmWritten, Observer, Stored, Written
from sim.result import describe
from sim.simulation import Simulation

HISTORY = 20
_NEVER = 1 << 62


class LockstepError(AssertionError):
    """The hardware and the machine differ: where, in which effect, and both states.

    `cycle` is that of the event that differs.
    """

    def __init__(self, text: str, cycle: int) -> None:
        super().__init__(text)
        self.cycle = cycle


class Lockstep(Observer):
    """Runs the machine beside the hardware; pass it among the observers of `Simulation.run`.

    It looks at events alone, so a compiled clock loop may deliver them late: a difference is
    reported with both register files as they were then.

    Compared per instruction: pc, word, unit and the state registers at its dispatch; every SRAM row
    as it is written (by the pc of the write's tag, oldest dispatch first, with its stage); every
    write of a register, FP_MEM and INT_MEM (in program order for each of them); the bytes of device
    memory once it has completed. None may be missing at its completion, and none may be too many.
    At the end: the halt record, that every instruction completed, and the whole state. The machine
    starts from the state that the host loaded. The stages of dispatches and completions are checked
    on every run, by `TagChecker`.

    After a memory error the target rows of the failed prefetch are undefined, and left out.

    Args:
        before: called with the machine and the word of each instruction that was dispatched, before
        the machine executes it.

    Attributes: `machine`, `executed` (instructions dispatched).

    Raises (through `Simulation.run`):
        LockstepError: the first difference.
    """

    accepts_late_events = True

    def __init__(self, before: Callable[[Machine, int], None] | None = None) -> None:
        self.machine: Machine | None = None
        self._before = before
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
        for tile, values in enumerate(sim.memories.read_tiles()):
            memories.write_matrix(tile, values)
        memories.write_fp(0, sim.memories.read_fp())
        memories.write_int(0, sim.memories.read_int())
        machine.pc = sim.engine.get(sim.engine.top.entry)
        machine.halt = None
        self._words: list[int] = sim.image.words.tolist()
        self._stages: list[int] = sim.image.stages.tolist()
        self._seen = Seen(sim.memories)
        self._state = self._seen.state  # as the machine has it
        self._state_writers: dict[str, tuple[Unfinished, RegisterWrite]] = {}
        self._content = HbmMemory(sim.config.HBM_BYTES)  # the bytes that the hardware wrote
        self._ledger = Ledger()
        self._undefined: set[tuple[str, int]] = set()
        self._fault: Halt | None = None
        self._history: deque[tuple[int, int]] = deque(maxlen=HISTORY)
        self._cycle = -1

    # Events.

    def dispatched(self, event: Dispatched) -> None:
        """Execute the same instruction on the machine."""
        cycle, pc, word, _, unit, state = event
        self._settle(cycle)
        machine = self._machine
        if pc != machine.pc:
            want = describe(self._simulation.image, machine.pc)
            self._fail("the next instruction differs", f"dispatched pc {pc}", want)
        self._seen.state = state
        if state != self._state:
            self._fail_state()
        if self._before is not None:
            self._before(machine, word)
        effects: list[Effect] = []
        halt = machine.step(effects)
        failed = halt is not None and halt.by_memory
        instance = Unfinished(self.executed, pc, failed)
        self.executed += 1
        self._history.append((instance.number, pc))
        if word != self._words[pc]:
            self._fail("the word differs from the image", f"0x{word:08X}", "", instance)
        if failed:
            self._fault = self._fault or halt
            self._undefined |= prefetch_targets(machine.memories, word)
            machine.step_over()
        elif halt is not None and halt.cause is not Trap.BREAK:
            self._fail("dispatched, but the machine traps", "no trap", str(halt), instance)
        if unit != OPCODES[word & 0x3F].unit:
            want = OPCODES[word & 0x3F].unit.name
            self._fail("dispatched to another unit", f"unit {unit}", want, instance)
        self._ledger.add(instance, effects)
        for effect in effects:
            if isinstance(effect, RegisterWrite) and effect.file == "state":
                self._set_state(instance, effect)

    def _set_state(self, instance: Unfinished, effect: RegisterWrite) -> None:
        """Visible to the next instruction; TOPK is set from then on."""
        changed = {str(effect.index): effect.value}
        if effect.index == "TOPK":
            changed["TOPK_VALID"] = 1
        self._state_writers |= dict.fromkeys(changed, (instance, effect))
        names = zip(self._seen.state_names, self._state, strict=True)
        self._state = tuple(changed.get(name, old) for name, old in names)

    def completed(self, event: Completed) -> None:
        """The oldest unfinished instruction at that pc has completed."""
        self._settle(event.cycle)
        if not self._ledger.complete(event.pc, event.cycle):
            where = describe(self._simulation.image, event.pc)
            self._fail(f"{where} completed on {event.port}", "completed", "not under way")

    def written(self, event: Written) -> None:
        """Compare a row with what the machine wrote."""
        self._settle(event.cycle)
        found = self._ledger.take_row(event)
        if found is not None:
            self._compare_row(event, *found)
            return
        there = self._ledger.at(event.pc)
        if (event.memory, event.row) in self._undefined and any(i.failed for i in there):
            return
        got = RowWrite(event.memory, event.row, event.lanes, self._lanes(event.data))
        where = describe(self._simulation.image, event.pc)
        want = "; ".join(str(e) for i in there for e in i.owed()) or "no write"
        self._fail(f"{where} makes a write that the machine does not", str(got), want)

    def stored(self, event: Stored) -> None:
        """Compare a register or a word with the oldest write of it that is owed."""
        cycle, file, index, value = event
        self._settle(cycle)
        self._seen.store(file, index, value)
        found = self._ledger.take_value(file, index)
        if found is None:
            self._fail("a write that the machine does not make", _shown(file, index, value), "none")
        instance, effect = found
        same = value == effect.value
        if not same and not (file in ("f", "FP_MEM") and _both_nan(value, effect.value)):
            shown = _shown(file, index, value)
            self._fail("the result differs", shown, str(effect), instance)

    def hbm_written(self, event: HbmWritten) -> None:
        """Keep what the memory was given; compared when its instruction has completed."""
        cycle, pc, address, data, strobe = event
        self._settle(cycle)
        first = address * BEAT_BYTES
        there = self._ledger.at(pc)
        if any(instance.failed for instance in there):
            return
        owed = [(e.address, e.address + len(e.content)) for i in there for e in i.content]
        beat = data.to_bytes(BEAT_BYTES, "little")
        for at in range(BEAT_BYTES):
            if strobe >> at & 1:
                if not any(start <= first + at < end for start, end in owed):
                    where = describe(self._simulation.image, pc)
                    what = f"{where} makes a write that the machine does not"
                    self._fail(what, f"HBM 0x{first + at:X}: {beat[at]:02X}", "no write")
                self._content.write(first + at, beat[at : at + 1])

    def stop(self) -> None:
        """Compare the halt record and the whole state, when the hardware has halted."""
        engine = self._simulation.engine
        self._interrupted = engine.get(engine.top.state) != RunState.HALTED.value
        if self._failed or self._interrupted:
            return
        self._settle(_NEVER)
        for instance in self._ledger:
            if not instance.failed:
                self._fail("never completed", "halted", "unfinished", instance)
        self._compare_halt()
        problem = compare_states(self._simulation, self._machine, self._undefined)
        if problem is not None:
            self._fail("the state at the end differs", *problem)

    # Comparisons.

    def _lanes(self, data: int) -> np.ndarray:
        mlen = self._simulation.config.MLEN
        return np.frombuffer(data.to_bytes(2 * mlen, "little"), "<u2").astype(np.uint16)

    def _compare_row(self, event: Written, instance: Unfinished, want: RowWrite) -> None:
        if event.stage != self._stages[event.pc]:
            names = self._simulation.image.vocabulary
            got, expected = names[event.stage], names[self._stages[event.pc]]
            self._fail("the row was written under another stage", got, expected, instance)
        if event.data == int.from_bytes(want.data.tobytes(), "little"):
            return
        data = self._lanes(event.data)
        different = np.flatnonzero(canonical(data) != canonical(want.data))
        wrong = [lane for lane in different.tolist() if event.lanes >> lane & 1]
        if wrong:
            lanes = f"lane{'s' * (len(wrong) > 1)} {', '.join(map(str, wrong))}"
            shown = RowWrite(event.memory, event.row, event.lanes, data)
            self._fail(f"the row differs in {lanes}", str(shown), str(want), instance)

    def _settle(self, cycle: int) -> None:
        """Check the instructions that completed before `cycle`: their writes have all landed."""
        if cycle == self._cycle:
            return
        for instance in self._ledger.settled(cycle):
            missing = next(instance.owed(), None)
            if missing is not None:
                what = "a row" if isinstance(missing, RowWrite) else "its result"
                self._fail(f"completed without {what}", "no write", str(missing), instance)
            for effect in instance.content:
                self._compare_hbm(instance, effect.address, len(effect.content))
        if cycle != _NEVER:
            self._cycle = cycle

    def _compare_hbm(self, instance: Unfinished, address: int, length: int) -> None:
        got = self._content.read(address, length)
        want = self._machine.hbm.read(address, length)
        for at, (g, w) in enumerate(zip(got, want, strict=True), address):
            if g != w and not self._ledger.overlaid(at, instance.number):
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
            self._fail("halted, but the machine goes on", str(got), "no halt")
        precise = not record.by_memory or self._simulation.issue == "serial"
        want = (record.cause, record.pc, record.word, record.operand, precise)
        if got != want:
            self._fail("the halt record differs", str(got), str(want))

    # Failure.

    def _fail_state(self) -> NoReturn:
        """A state register is not what the instructions before left."""
        names, got, want = self._seen.state_names, self._seen.state, self._state
        name, g, w = next(x for x in zip(names, got, want, strict=True) if x[1] != x[2])
        instance, effect = self._state_writers.get(name, (None, None))
        expected = f"{name} = 0x{w:X}" if effect is None else str(effect)
        self._fail("the result differs", f"{name} = 0x{g:X}", expected, instance)

    def _fail(self, what: str, got: str, want: str, instance: Unfinished | None = None) -> NoReturn:
        self._failed = True
        unfinished = sorted((i.number, i.pc) for i in self._ledger)
        simulation, history = self._simulation, list(self._history)
        report = Report(simulation, self._machine, self._seen, self._cycle, history, unfinished)
        at = None if instance is None else (instance.number, instance.pc)
        raise LockstepError(report.text(what, got, want, at), self._cycle)


def _shown(file: str, index: int, value: int) -> str:
    return f"{file}[{index}] = 0x{value:X}"


def _both_nan(a: int, b: int) -> bool:
    return a & 0x7FFF > 0x7F80 and b & 0x7FFF > 0x7F80
