"""Programs that run again and again on an engine, from a copy of its loaded state."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.stages import Stage
from isa.traps import Trap
from sim.compiled.hostloop import HostLoop
from sim.observers import LastWriter, Observer, Stored, TagChecker
from sim.pc_accounts import PcAccounts
from sim.simulation import Simulation
from testbench.fuzz.restarts import MAX_RESTARTS, goes_on
from testbench.fuzz.run import MAX_CYCLES
from testbench.mutation.engine import MutantEngine
from testbench.mutation.programs import Program
from testbench.mutation.trace import Trace

__all__ = ["Hang", "Prepared", "Runner"]

#: Memories whose contents a program can see.
_ARCHITECTURAL = ("gp.storage", "f.storage", "dispatcher.a", "fp_mem", "int_mem", "bank_", "memory")
_STATE = ("scale", "stride", "v_mask", "topk", "topk_valid")
_HALT = ("cause", "pc", "word", "operand", "precise")


#: Clocks without an event after which a run is given up; the longest V_TOPK takes 4,000.
_PATIENCE = 10_000


_CAUSES = frozenset(trap.value for trap in Trap)


def _preset(number: int) -> int:
    """A 48-bit count whose carries are near: all ones up to some bit, another one for each."""
    return (1 << 48) - 1 - (3 << number % 47)


class Hang(Exception):
    """A run that does not end: it takes too many cycles, or the machine's clock count stands
    still."""


class _Logged(Observer):
    """Its presence makes the clock loop keep a log."""

    accepts_late_events = True

    def stored(self, event: Stored) -> None:
        """Never called: the log is kept as it is."""


class _RawLoop(HostLoop):
    """The clock loop, its log kept as it is."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.raw: list[bytes] = []

    def _replay(self) -> None:
        used = self._state.log_used
        self._state.log_used = 0
        self.raw.append(self._log[:used].tobytes())


@dataclass
class Prepared:
    """A program, loaded: the engine's storage and the device's pages before the start."""

    program: Program
    image: Any
    hbm: Any
    loop: _RawLoop
    observers: list[Observer]  #: kept, as the loop writes to their arrays
    storage: bytes
    pages: dict[int, bytes]


class Runner:
    """Runs programs on one engine."""

    def __init__(self, engine: MutantEngine) -> None:
        self._engine = engine
        model, top = engine.model, engine.top
        self._storage = np.frombuffer(model.storage, np.uint8)
        memories = [
            model.memory_array(i)
            for i, m in enumerate(model._memories)
            if any(part in m.name for part in _ARCHITECTURAL) and "heads" not in m.name
        ]
        self._memories = [m.reshape(-1) for m in memories]
        counts = [c for counter in top.profile.counters.values() for c in counter.counts]
        self._counts = [*counts, top.profile.overlap]
        self._counters = self._bytes_of(self._counts)
        halt = [getattr(top.halt, name) for name in _HALT]
        state = [getattr(top.dispatcher, name) for name in _STATE]
        self._halt = halt
        self._state = [top.pc, *state]

    def _bytes_of(self, signals: list[Any]) -> np.ndarray[Any, Any]:
        """Indices into the storage."""
        places = [p for s in signals for p in self._engine.place(s)]
        spans = [self._engine.model.offset(net) for net, _, _ in places if net >= 0]
        return np.concatenate([np.arange(at, at + size) for at, size in spans])

    def prepare(self, program: Program) -> Prepared:
        """Load a program, no mutant active."""
        case, engine = program.case, self._engine
        hbm, image = case.hbm(), case.image()
        simulation = Simulation(case.config, image, hbm, engine=engine, issue=case.issue)
        case.contents.load(simulation.memories, hbm)
        config = case.config
        writers, accounts = LastWriter(config.VRAM_ROWS, config.MLEN), PcAccounts(len(image))
        observers: list[Observer] = [TagChecker(image), writers, accounts, _Logged()]
        loop = _RawLoop(engine.model, engine.probe, image, hbm, observers)
        pages = {number: bytes(page) for number, page in hbm._pages.items()}
        if program.by_ports is not None:
            rows = [0] * len(image.words)
            engine.write_memory(engine.top.dispatcher.imem, 0, rows)
            for number, count in enumerate(self._counts):
                engine.set(count, _preset(number + program.by_ports))
        return Prepared(program, image, hbm, loop, observers, self._storage.tobytes(), pages)

    def run(self, prepared: Prepared, number: int) -> Trace:
        """Run to the end, through breakpoints, with one mutant active.

        Raises:
            Hang: it does not end.
            RuntimeError: the mutant made a loop of combinational logic that does not settle.
        """
        engine, top, hbm, loop = self._engine, self._engine.top, prepared.hbm, prepared.loop
        self._storage[:] = np.frombuffer(prepared.storage, np.uint8)
        engine.model.unsettle()
        hbm.reset()
        for page in list(hbm._pages):
            if page not in prepared.pages:
                del hbm._pages[page]
        for page, content in prepared.pages.items():
            hbm._pages[page][:] = content
        loop.raw.clear()
        loop._accounts.progress[:] = 0
        engine.switch_to(number)
        program = prepared.program
        if program.by_ports is not None:
            self._write_program(prepared.image)
        engine.set(top.length, len(prepared.image.words))
        engine.set(top.serial, int(program.case.issue == "serial"))
        cycle, entry = 0, 0
        cycles: list[int] = []
        halts: list[int] = []
        for _ in range(MAX_RESTARTS):
            engine.set(top.entry, entry)
            engine.set(top.start, 1)
            engine.step()
            engine.set(top.start, 0)
            cycle = self._to_halt(loop, cycle)
            cycles.append(cycle)
            cause, pc, *rest = (engine.get(value) for value in self._halt)
            halts += [cause, pc, *rest]
            precise = bool(rest[-1])
            known = cause in _CAUSES  # a mutant may make up others
            if not known or not goes_on(Trap(cause), precise, through_traps=program.through_traps):
                break
            entry = pc + 1
        halts += [engine.get(value) for value in self._state]
        state = b"".join(m.tobytes() for m in self._memories)
        pages = tuple((n, bytes(hbm._pages[n])) for n in sorted(hbm._pages))
        counters = self._storage[self._counters].tobytes()
        if program.by_ports is not None:
            counters += repr(self._read_counters()).encode()
        return Trace(
            b"".join(loop.raw), tuple(cycles), state + repr(halts).encode(), counters, pages
        )

    def _write_program(self, image: Any) -> None:
        """Through the instruction memory's port, as a host in hardware would."""
        engine, top = self._engine, self._engine.top
        engine.set(top.imem_write_en, 1)
        for pc, (word, stage) in enumerate(zip(image.words, image.stages, strict=True)):
            engine.set(top.imem_write_address, pc)
            engine.set(top.imem_write_word, int(word))
            engine.set(top.imem_write_stage, int(stage))
            engine.step()
        engine.set(top.imem_write_en, 0)
        for port in (top.imem_write_address, top.imem_write_word, top.imem_write_stage):
            engine.set(port, 0)
        engine.step()

    def _read_counters(self) -> list[int]:
        """Through the profile's port, two cycles each."""
        engine, top = self._engine, self._engine.top
        values: list[int] = []
        for counter in range(len(top.profile.counters) + 1):
            for stage in range(len(Stage)):
                engine.set(top.profile_counter, counter)
                engine.set(top.profile_stage, stage)
                engine.model.step(2)
                values.append(engine.get(top.profile_value))
        return values

    @staticmethod
    def _to_halt(loop: _RawLoop, cycle: int) -> int:
        stop = cycle + MAX_CYCLES
        while cycle < stop:
            before = cycle
            cycle, halted = loop.run(cycle, stop, _PATIENCE)
            if halted:
                return cycle
            if cycle == before or loop.idle > _PATIENCE:
                break
        raise Hang
