"""A simulation: one program on one machine, clocked by the host until it stops."""

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

from isa.config import PlenaConfig
from isa.image import ProgramImage
from isa.traps import Trap
from rtl.profile import COUNTERS
from sim.deadlock import explain, patience
from sim.engine import Engine
from sim.engines import make_engine
from sim.event_reader import EventReader
from sim.hbm import HbmDevice
from sim.memories import Memories
from sim.observers import HbmWritten, LastWriter, Observer, TagChecker
from sim.pc_accounts import PcAccounts
from sim.profile import build_profile, pair_stats
from sim.progress import Progress
from sim.result import RunResult

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
        self.engine = make_engine(engine, config, image) if isinstance(engine, str) else engine
        if self.engine.config != config:
            raise ValueError(
                f"the engine was made for configuration {self.engine.config.name!r}, not "
                f"{config.name!r}"
            )
        self.memories = Memories(self.engine)
        self.last_writer = LastWriter(config.VRAM_ROWS, config.MLEN)
        self.accounts = PcAccounts(len(image))
        self._checker = TagChecker(image)
        self._cycle = 0
        self._idle = 0
        self._driven: dict[str, int] = {}
        self._observers: list[Observer] = []
        self._watched: list[Observer] = []  # those that came from outside
        self.engine.reset()
        words = [int(w) | int(s) << 32 for w, s in zip(image.words, image.stages, strict=True)]
        self.engine.write_memory(self.engine.top.dispatcher.imem, 0, words)

    def run(
        self,
        *,
        max_cycles: int = DEFAULT_MAX_CYCLES,
        observers: Iterable[Observer] = (),
        progress: bool = False,
        entry: int | None = 0,
        until: Callable[[], bool] | None = None,
        max_idle: int | None = None,
    ) -> RunResult:
        """Runs from `entry` until DONE, BREAK, a trap, or `max_cycles` cycles (cause WATCHDOG).

        The watchdog also ends a run in which nothing happens for more than `max_idle` cycles: no
        dispatch, completion, write, or memory beat (default: `sim.deadlock.patience`, far more than
        any instruction takes). Its result says who waits for whom.

        `progress` shows a bar on a terminal. `until` is asked between any two cycles and pauses the
        run (cause NONE, `pc` is next to be dispatched) by saying True: the clock stands still, and
        instructions under way stay so. `entry` None goes on from a pause. Raises TagError when the
        hardware mislabels an instruction.
        """
        top, engine = self.engine.top, self.engine
        max_idle = patience(self.config) if max_idle is None else max_idle
        self._idle = 0
        self._checker = TagChecker(self.image)
        self._watched = list(observers)
        self._observers = [self._checker, self.last_writer, self.accounts, *self._watched]
        self._reader = EventReader(engine, self._observers, self._watched)
        wants_cycle = [o for o in self._observers if type(o).cycle is not Observer.cycle]
        started = time.perf_counter()
        if entry is not None:
            self._start(entry)
        for observer in self._observers:
            observer.start(self)
        loop = self._clock_loop() if until is None else None
        first = self._cycle
        try:
            with Progress(progress, max_cycles) as bar:
                paused = until is not None and until()
                while not paused and not (
                    self._many_cycles(loop, first + max_cycles, max_idle)
                    if loop is not None
                    else self._one_cycle(wants_cycle)
                ):
                    paused = until is not None and until()
                    deadlock = self._idle > max_idle
                    if not paused and (deadlock or self._cycle - first >= max_cycles):
                        seconds = time.perf_counter() - started
                        return self._result(Trap.WATCHDOG, seconds, deadlock=deadlock)
                    bar.update(self._cycle - first)
        finally:
            for observer in self._observers:
                observer.stop()
            self.accounts.close(self._cycle, self._front())
        cause = Trap.NONE if paused else Trap(engine.get(top.halt.cause))
        return self._result(cause, time.perf_counter() - started)

    def _start(self, entry: int) -> None:
        engine, top = self.engine, self.engine.top
        engine.set(top.length, len(self.image.words))
        engine.set(top.serial, int(self.issue == "serial"))
        engine.set(top.entry, entry)
        engine.set(top.start, 1)
        engine.step()
        engine.set(top.start, 0)

    def resume(self, result: RunResult, **options: object) -> RunResult:
        """Goes on behind the C_BREAK, or from the pause, that `result` reports; options as for
        `run`."""
        if result.cause is Trap.NONE:
            return self.run(entry=None, **options)  # type: ignore[arg-type]
        if result.cause is not Trap.BREAK:
            raise ValueError(
                f"only a run that stopped at C_BREAK or paused can go on; this one stopped with "
                f"{result.cause.name}"
            )
        return self.run(entry=result.pc + 1, **options)  # type: ignore[arg-type]

    def profile(self, result: RunResult, *, shared_vs_routed_note: str) -> dict[str, Any]:
        """The stage profile of the run that `result` reports; see `sim.profile.build_profile`."""
        return build_profile(
            image=self.image,
            config=self.config,
            engine=result.engine,
            issue=result.issue,
            cycles=result.cycles,
            counters=result.counters,
            overlap_cycles=result.overlap_cycles,
            hbm_bytes_read=self.hbm.bytes_read,
            hbm_bytes_written=self.hbm.bytes_written,
            done=result.cause in (Trap.DONE, Trap.BREAK),
            shared_vs_routed_note=shared_vs_routed_note,
            pair_stats=None
            if result.cause is Trap.HBM_ADDRESS
            else pair_stats(self.image, self.accounts, result.counters),
        )

    def _front(self) -> int:
        """The pc at dispatch; within the program also when the program is over."""
        return min(self.engine.get(self.engine.top.pc), len(self.image) - 1)

    def _clock_loop(self) -> Any:
        """The engine's own loop for this memory device and these observers, if it has one."""
        make = getattr(self.engine, "clock_loop", None)
        return None if make is None else make(self.image, self.hbm, self._observers)

    def _many_cycles(self, loop: Any, stop: int, max_idle: int) -> bool:
        """As `_one_cycle`, many times, but not beyond cycle `stop`; at least once."""
        self._driven.clear()
        self._cycle, halted = loop.run(self._cycle, stop, max_idle)
        self._idle = loop.idle
        return halted

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
        self._idle += 1
        if flags & probe.request_bit and self._driven["request_ready"]:
            request = top.hbm_request.payload
            write, address = engine.get(request.write), engine.get(request.address)
            data = engine.get(request.data) if write else 0
            strobe = engine.get(request.strobe) if write else 0
            pc, stage = engine.get(request.tag.pc), engine.get(request.tag.stage)
            self._checker.requested(pc, stage)
            self.accounts.beat(pc, bool(write))
            hbm.accept(cycle, address, bool(write), data, strobe, stage)
            self._idle = 0
            if write:
                beat = HbmWritten(cycle, pc, address, data, strobe)
                for observer in self._watched:
                    observer.hbm_written(beat)
        if flags & ~(probe.state_mask | probe.counting_bit | probe.request_bit):
            self._reader.read(flags, cycle)
            self._idle = 0
        if answer is not None:
            self._idle = 0
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

    def _result(self, cause: Trap, seconds: float, *, deadlock: bool = False) -> RunResult:
        engine, top = self.engine, self.engine.top
        halted = cause not in (Trap.WATCHDOG, Trap.NONE)
        every = [c for counter in top.profile.counters.values() for c in counter.counts]
        counts = iter(engine.get_all(every))
        counters = {
            name: list(itertools.islice(counts, len(counter.counts)))
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
            waiting=self._waiting() if cause is Trap.WATCHDOG else "",
            deadlock=deadlock,
        )

    def _waiting(self) -> str:
        """Who waits for what, for the watchdog's report."""
        top, get = self.engine.top, self.engine.get
        return explain(top, get, self.image, self.accounts, self.hbm, self._cycle, self._idle)
