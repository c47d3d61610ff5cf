"""The clock loop in C, on behalf of a Simulation: the same answers as its loop in Python, cycle for
cycle."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from isa.image import ProgramImage
from sim.compiled.hostdevice import DeviceExchange
from sim.compiled.hoststate import ACCOUNTS, HostState
from sim.compiled.samples import SampleLog
from sim.hbm import HbmDevice
from sim.observers import (
    Completed,
    Dispatched,
    HbmWritten,
    LastWriter,
    Observer,
    Stored,
    TagChecker,
    Written,
)
from sim.pc_accounts import PcAccounts
from sim.probe import Probe

__all__ = ["HostLoop"]

_HALTED, _STOPPED, _BUDGET, _LOG_FULL, _NEED_PAGES, _BAD_TAG, _LOOPS, _STUCK = range(1, 9)
_BUDGET_CYCLES = 1 << 16  # until Python has a look at progress and interrupts
_LOGGED_CYCLES = 1 << 12  # the same when observers wait for their events
_LOG_WORDS = 1 << 17
_EVENTS = ("dispatched", "completed", "written", "stored", "hbm_written")


class LoopModel(Protocol):
    """A machine whose library has `plena_run`: at `address` is what that function takes."""

    library: ctypes.CDLL
    address: int

    def unsettle(self) -> None:
        """Notes that the loop, or the host, changed something."""
        ...


class HostLoop:
    """Runs a machine against its memory device until something needs the host.

    The tag check, the map of last writers and the accounts by pc are done in C. Other observers
    get their events from a log, in order, but up to thousands of cycles late. So only those may be
    attached whose class says `accepts_late_events = True` (see `Observer`).

    Args:
        model, probe: the engine's.
        sampler: collects what one of the observers wants of every cycle.
        image, hbm, observers: the simulation's; the observers begin with its TagChecker, its
        LastWriter and its PcAccounts.
    """

    def __init__(
        self,
        model: LoopModel,
        probe: Probe,
        image: ProgramImage,
        hbm: HbmDevice,
        observers: Sequence[Observer],
        sampler: SampleLog | None = None,
    ) -> None:
        self._model, self._probe = model, probe
        self._sampler = sampler
        checker, writers, accounts = observers[:3]
        assert isinstance(checker, TagChecker)
        assert isinstance(writers, LastWriter)
        assert isinstance(accounts, PcAccounts)
        self._checker = checker
        run = model.library.plena_run
        run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._run: Callable[[int, object], int] = run
        self._state = state = HostState()
        self._device = DeviceExchange(hbm, state)
        config = probe.top.config
        self._lanes = config.MLEN
        self._stages = np.array(image.stages, np.uint8)
        state.stages, state.length = self._stages.ctypes.data, len(self._stages)
        assert writers.pc.dtype == np.int32
        assert writers.pc.flags.c_contiguous
        state.last_writer, state.lanes = writers.pc.ctypes.data, config.MLEN
        for name, attribute in ACCOUNTS.items():
            setattr(state, name, getattr(accounts, attribute).ctypes.data)
        self._accounts = accounts
        self._calls = [_overridden(observers[3:], kind) for kind in _EVENTS]
        if any(self._calls) or sampler is not None:
            self._log = np.zeros(_LOG_WORDS, np.uint64)
            state.log, state.log_size = self._log.ctypes.data, _LOG_WORDS
        if sampler is not None:
            state.sample_first, state.sample_stop = sampler.first, sampler.stop
            state.sample_parts, state.sample_places = sampler.count, sampler.places.ctypes.data
            state.sample_size, state.sample_room = sampler.log.shape[1], sampler.log.shape[0]
            state.samples = sampler.log.ctypes.data

    def time_machine(self) -> None:
        """Measures from now on how much of the time the machine takes; reading the clock costs a
        few percent."""
        self._state.timed = 1

    @property
    def machine_seconds(self) -> float:
        """Time in the machine itself since `time_machine`: the rest is the host's."""
        return self._state.machine_ns / 1e9

    @staticmethod
    def suits(hbm: HbmDevice, observers: Sequence[Observer], *, samples: bool = False) -> bool:
        """Whether this loop may stand in for the one in Python; `samples`: of an engine that can
        sample for one observer."""
        known = (
            type(hbm) is HbmDevice
            and type(observers[0]) is TagChecker
            and type(observers[1]) is LastWriter
            and type(observers[2]) is PcAccounts
        )
        sampled = sum(o.samples() is not None for o in observers[3:])
        return (
            known and sampled <= int(samples) and all(o.accepts_late_events for o in observers[3:])
        )

    @property
    def idle(self) -> int:
        """Clocks since anything happened, over all calls of `run`."""
        return self._state.idle

    def run(self, cycle: int, stop: int, patience: int) -> tuple[int, bool]:
        """From `cycle` until the machine halts, `stop` is reached, nothing has happened for more
        than `patience` clocks, or some time has passed: (cycle, halted).

        Raises TagError like the TagChecker.
        """
        state = self._state
        if self._sampler is not None:
            stop = self._sampler.begin(cycle, stop)
        state.cycle, state.stop, state.patience = cycle, stop, patience
        state.budget = _LOGGED_CYCLES if state.log else _BUDGET_CYCLES
        self._device.hand_over()
        self._model.unsettle()
        try:
            reason = self._run(self._model.address, ctypes.byref(state))
        finally:
            self._device.take_back()
        if state.log_used:
            self._replay()
        if reason == _BAD_TAG:
            self._complain()
        if reason == _LOOPS:
            raise RuntimeError(
                "combinational logic does not settle: the design has a loop that oscillates"
            )
        return state.cycle, reason == _HALTED

    def _complain(self) -> None:
        state = self._state
        if state.bad_kind == 0:
            self._checker.dispatched(Dispatched(state.cycle, state.bad_pc, 0, state.bad_stage, 0))
        elif state.bad_kind == 1:
            self._checker.completed(Completed(state.cycle, "", state.bad_pc, state.bad_stage))
        else:
            self._checker.requested(state.bad_pc, state.bad_stage)
        raise AssertionError("the clock loop in C found a wrong tag that the TagChecker accepts")

    def _replay(self) -> None:
        """Hands the logged events to the observers that came from outside."""
        log = self._log[: self._state.log_used]
        words: list[int] = log.tolist()
        content = log.tobytes()
        self._state.log_used = 0
        samples = iter(())
        if self._sampler is not None:
            samples = self._sampler.take(self._state.sample_used)
            self._state.sample_used = 0

        def joined(first: int, last: int) -> int:
            return int.from_bytes(content[8 * first : 8 * last], "little")

        dispatched, completed, written, stored, hbm_written = self._calls
        completions, files = list(self._probe.completions), [w.file for w in self._probe.words]
        lane_words, data_words = -(-self._lanes // 64), -(-16 * self._lanes // 64)
        at, state_end = 0, 6 + len(self._probe.state_registers)
        while at < len(words):
            kind, port = words[at] & 255, words[at] >> 8
            if kind == 0:
                end = at + state_end
                cycle, pc, word, stage, unit = words[at + 1 : at + 6]
                event = Dispatched(cycle, pc, word, stage, unit, tuple(words[at + 6 : end]))
                for call in dispatched:
                    call(event)
            elif kind == 1:
                end = at + 4
                cycle, pc, stage = words[at + 1 : end]
                for call in completed:
                    call(Completed(cycle, completions[port], pc, stage))
            elif kind == 2:
                cycle, row, pc, stage = words[at + 1 : at + 5]
                middle = at + 5 + lane_words
                end = middle + data_words
                lanes, data = joined(at + 5, middle), joined(middle, end)
                write = self._probe.writes[port]
                for call in written:
                    call(Written(cycle, write.name, write.memory, row, lanes, data, pc, stage))
            elif kind == 3:
                end = at + 4
                cycle, index, value = words[at + 1 : end]
                for call in stored:
                    call(Stored(cycle, files[port], index, value))
            elif kind == 5:
                end = at + 2
                next(samples)(words[at + 1])
            else:
                end = at + 13
                cycle, pc, address, strobe = words[at + 1 : at + 5]
                for call in hbm_written:
                    call(HbmWritten(cycle, pc, address, joined(at + 5, end), strobe))
            at = end


def _overridden(observers: Sequence[Observer], name: str) -> list[Callable[[Any], None]]:
    """The bound method `name` of those observers that do something in it."""
    return [
        getattr(o, name) for o in observers if getattr(type(o), name) is not getattr(Observer, name)
    ]
