"""A simulation: one program on one machine, clocked by the host until it stops."""

import time
from collections.abc import Iterable

from isa.config import PlenaConfig
from isa.image import ProgramImage
from isa.stages import Stage
from isa.traps import Trap
from rtl.dispatch.events import Stall
from rtl.profile import COUNTERS
from sim.engine import Engine
from sim.engines import make_engine
from sim.hbm import HbmDevice
from sim.memories import Memories
from sim.observers import Completed, Dispatched, LastWriter, Observer, TagChecker, Written
from sim.probe import WritePort
from sim.progress import Progress
from sim.result import RunResult, describe

DEFAULT_MAX_CYCLES = 10_000_000


class Simulation:
    """Loads `image` and runs it against the memory device `hbm`.

    Construction resets the engine and loads the program; fill `memories` and `hbm`, then call
    `run`. After a C_BREAK, `resume` goes on. Events go to `observers`; the tag check and the
    last-writer map are always on.

    Args:
        config: the machine; must be the one that the image was made for (ImageError otherwise).
        image: the program.
        hbm: the memory device; a new, empty one by default.
        engine: an engine's name, or an engine of this configuration to use again (construction is
        slow). issue: "overlap" or "serial"; the configuration's by default.
    """

    def __init__(
        self,
        config: PlenaConfig,
        image: ProgramImage,
        hbm: HbmDevice | None = None,
        *,
        engine: str | Engine = "auto",
        issue: str | None = None,
    ) -> None:
        image.check_config(config)
        self.config = config
        self.image = image
        self.hbm = HbmDevice(config) if hbm is None else hbm
        self.hbm.reset()
        self.issue = config.ISSUE if issue is None else issue
        self.engine = make_engine(engine, config) if isinstance(engine, str) else engine
        if self.engine.config != config:
            raise ValueError(
                f"the engine was made for configuration {self.engine.config.name!r}, not "
                f"{config.name!r}"
            )
        self.memories = Memories(self.engine)
        self.last_writer = LastWriter(config.VRAM_ROWS, config.MLEN)
        self._cycle = 0
        self._driven: dict[str, int] = {}
        self._observers: list[Observer] = []
        self.engine.reset()
        words = [int(w) | int(s) << 32 for w, s in zip(image.words, image.stages, strict=True)]
        self.engine.write_memory(self.engine.top.dispatcher.imem, 0, words)

    def run(
        self,
        *,
        max_cycles: int = DEFAULT_MAX_CYCLES,
        observers: Iterable[Observer] = (),
        progress: bool = False,
        entry: int = 0,
    ) -> RunResult:
        """Runs from `entry` until DONE, BREAK, a trap, or `max_cycles` cycles (cause WATCHDOG).

        `progress` shows a bar on a terminal. Raises TagError when the hardware mislabels an
        instruction.
        """
        top, engine = self.engine.top, self.engine
        self._observers = [TagChecker(self.image), self.last_writer, *observers]
        wants_cycle = [o for o in self._observers if type(o).cycle is not Observer.cycle]
        started = time.perf_counter()
        engine.set(top.length, len(self.image.words))
        engine.set(top.serial, int(self.issue == "serial"))
        engine.set(top.entry, entry)
        engine.set(top.start, 1)
        engine.step()
        engine.set(top.start, 0)
        for observer in self._observers:
            observer.start(self)
        first = self._cycle
        try:
            with Progress(progress, max_cycles) as bar:
                while not self._one_cycle(wants_cycle):
                    if self._cycle - first >= max_cycles:
                        return self._result(Trap.WATCHDOG, time.perf_counter() - started)
                    bar.update(self._cycle - first)
        finally:
            for observer in self._observers:
                observer.stop()
        cause = Trap(engine.get(top.halt.cause))
        return self._result(cause, time.perf_counter() - started)

    def resume(self, result: RunResult, **options: object) -> RunResult:
        """Goes on behind the C_BREAK that `result` reports; options as for `run`."""
        if result.cause is not Trap.BREAK:
            raise ValueError(
                f"only a run that stopped at C_BREAK can go on; this one stopped with "
                f"{result.cause.name}"
            )
        return self.run(entry=result.pc + 1, **options)  # type: ignore[arg-type]

    def _one_cycle(self, wants_cycle: list[Observer]) -> bool:
        """Presents the memory's side, hands out the cycle's events, clocks once; True when the
        machine has halted."""
        engine, top, probe, hbm = self.engine, self.engine.top, self.engine.probe, self.hbm
        cycle = self._cycle
        answer = hbm.response(cycle)
        if answer is not None:
            engine.set(top.hbm_response.payload.data, answer[0])
            engine.set(top.hbm_response.payload.error, int(answer[1]))
        self._drive("response_valid", top.hbm_response.valid, int(answer is not None))
        self._drive("request_ready", top.hbm_request.ready, int(hbm.ready(cycle)))
        flags = engine.get(probe.flags)
        if flags & probe.state_mask == probe.halted:
            return True
        if flags & probe.request_bit and self._driven["request_ready"]:
            request = top.hbm_request.payload
            write = engine.get(request.write)
            hbm.accept(
                cycle,
                engine.get(request.address),
                bool(write),
                engine.get(request.data) if write else 0,
                engine.get(request.strobe) if write else 0,
                engine.get(request.stage),
            )
        if flags & ~(probe.state_mask | probe.counting_bit | probe.request_bit):
            self._events(flags, cycle)
        for observer in wants_cycle:
            observer.cycle(cycle)
        if flags & probe.counting_bit:
            self._cycle += 1
        engine.step()
        return False

    def _drive(self, name: str, signal: object, value: int) -> None:
        if self._driven.get(name) != value:
            self.engine.set(signal, value)  # type: ignore[arg-type]
            self._driven[name] = value

    def _events(self, flags: int, cycle: int) -> None:
        engine, top, probe = self.engine, self.engine.top, self.engine.probe
        if flags & probe.dispatch_bit:
            d = top.dispatch
            event = Dispatched(cycle, *(engine.get(v) for v in (d.pc, d.word, d.stage, d.unit)))
            for observer in self._observers:
                observer.dispatched(event)
        if flags & probe.completion_mask:
            for bit, name in probe.completion_bits.items():
                if flags & bit:
                    tag = probe.completions[name].tag
                    done = Completed(cycle, name, engine.get(tag.pc), engine.get(tag.stage))
                    for observer in self._observers:
                        observer.completed(done)
        if flags & probe.write_mask:
            for bit, write in probe.write_bits.items():
                if flags & bit:
                    self._written(cycle, write)

    def _written(self, cycle: int, write: WritePort) -> None:
        engine, port = self.engine, write.port
        if write.memory == "mram":
            row = engine.get(port.tile) * self.config.MLEN + engine.get(port.row)
            lanes = (1 << self.config.MLEN) - 1
        else:
            row, lanes = engine.get(port.row), engine.get(port.lanes)
        event = Written(
            cycle,
            write.name,
            write.memory,
            row,
            lanes,
            engine.get(port.data),
            engine.get(port.tag.pc),
            engine.get(port.tag.stage),
        )
        for observer in self._observers:
            observer.written(event)

    def _result(self, cause: Trap, seconds: float) -> RunResult:
        engine, top = self.engine, self.engine.top
        halted = cause is not Trap.WATCHDOG
        counters = {
            name: [engine.get(count) for count in counter.counts]
            for name, counter in top.profile.counters.items()
        }
        assert counters.keys() == COUNTERS.keys()
        return RunResult(
            cause=cause,
            pc=engine.get(top.halt.pc if halted else top.pc),
            word=engine.get(top.halt.word) if halted else 0,
            operand=engine.get(top.halt.operand) if halted else 0,
            precise=bool(engine.get(top.halt.precise)) if halted else True,
            cycles=self._cycle,
            engine=engine.name,
            issue=self.issue,
            wall_seconds=seconds,
            counters=counters,
            overlap_cycles=engine.get(top.profile.overlap),
            waiting="" if halted else self._waiting(),
        )

    def _waiting(self) -> str:
        """Who waits for what, for the watchdog's report."""
        engine, top = self.engine, self.engine.top
        scoreboard = top.dispatcher.scoreboard
        stall = Stall(engine.get(top.stall))
        reason = (
            "instructions are being dispatched"
            if stall is Stall.NONE
            else f"dispatch waits: {stall.name}"
        )
        busy = [
            f"{unit} (stage {Stage(engine.get(getattr(scoreboard, f'busy_stage_{unit}'))).label})"
            for unit in ("scalar", "vector", "matrix", "hbm")
            if engine.get(getattr(scoreboard, f"busy_{unit}"))
        ]
        following = describe(self.image, engine.get(top.pc))
        return f"{reason}; unfinished work in: {', '.join(busy) or 'no unit'}; next is {following}"
