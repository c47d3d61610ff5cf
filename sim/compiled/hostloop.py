"""The clock loop in C, on behalf of a Simulation: the same answers as its loop in Python, cycle for
cycle."""

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from isa.image import ProgramImage
from sim.compiled.samples import SampleLog
from sim.hbm import PAGE_BYTES, HbmDevice
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

__all__ = ["HostLoop", "HostState"]

_HALTED, _STOPPED, _BUDGET, _LOG_FULL, _NEED_PAGES, _BAD_TAG, _LOOPS, _STUCK = range(1, 9)
_BUDGET_CYCLES = 1 << 16  # until Python has a look at progress and interrupts
_LOGGED_CYCLES = 1 << 12  # the same when observers wait for their events
_SPARE_PAGES = 64
_LOG_WORDS = 1 << 17
_EVENTS = ("dispatched", "completed", "written", "stored", "hbm_written")

#: Arrays of PcAccounts, by their names in C.
_ACCOUNTS = {
    "wall": "wall",
    "completed": "completions",
    "read": "bytes_read",
    "written": "bytes_written",
    "busy": "busy",
    "order": "order",
    "progress": "progress",
}

_I64, _U64, _POINTER = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p


class _Due(ctypes.Structure):
    _fields_ = (("cycle", _I64), ("error", _U64), ("data", ctypes.c_uint8 * 64))


class HostState(ctypes.Structure):
    """host_t of hostloop.h."""

    _fields_ = (
        *((n, _I64) for n in ("cycle", "stop", "budget", "idle", "patience")),
        *((n, _I64) for n in ("free_at", "last_due", "accepted")),
        *((n, _I64) for n in ("latency", "cycles_per_beat", "capacity", "extra_latency")),
        *((n, _U64) for n in ("backpressure", "seed")),
        ("size", _I64),
        ("due", _POINTER),
        *((n, _I64) for n in ("due_mask", "due_head", "due_count")),
        *((n, _POINTER) for n in ("page_keys", "page_data")),
        ("page_mask", _I64),
        *((n, _POINTER) for n in ("spare", "spare_number")),
        *((n, _I64) for n in ("spare_count", "spare_used")),
        ("faults", _POINTER),
        ("fault_count", _I64),
        *((n, _POINTER) for n in ("bytes_read", "bytes_written", "stages")),
        ("length", _I64),
        ("last_writer", _POINTER),
        *((n, _POINTER) for n in _ACCOUNTS),
        ("lanes", _I64),
        ("log", _POINTER),
        *((n, _I64) for n in ("log_size", "log_used", "bad_kind", "bad_pc", "bad_stage")),
        *((n, _I64) for n in ("timed", "machine_ns")),
        *((n, _I64) for n in ("sample_first", "sample_stop", "sample_parts")),
        *((n, _POINTER) for n in ("sample_places", "samples")),
        *((n, _I64) for n in ("sample_size", "sample_room", "sample_used")),
    )


def _address(page: bytearray) -> int:
    return ctypes.addressof((ctypes.c_uint8 * len(page)).from_buffer(page))


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
        self._model, self._probe, self._hbm = model, probe, hbm
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
        self._kept: dict[str, Any] = {}  # arrays that C points to
        self._spare: list[bytearray] = []  # pages for what the program writes
        config = probe.top.config
        self._lanes = config.MLEN
        self._stages = np.array(image.stages, np.uint8)
        state.stages, state.length = self._stages.ctypes.data, len(self._stages)
        assert writers.pc.dtype == np.int32
        assert writers.pc.flags.c_contiguous
        state.last_writer, state.lanes = writers.pc.ctypes.data, config.MLEN
        for name, attribute in _ACCOUNTS.items():
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
        self._hand_over()
        self._model.unsettle()
        try:
            reason = self._run(self._model.address, ctypes.byref(state))
        finally:
            self._take_back()
        if state.log_used:
            self._replay()
        if reason == _BAD_TAG:
            self._complain()
        if reason == _LOOPS:
            raise RuntimeError(
                "combinational logic does not settle: the design has a loop that oscillates"
            )
        return state.cycle, reason == _HALTED

    # The memory device's state, to C and back

    def _array(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._kept[name] = array
        setattr(self._state, name, array.ctypes.data)

    def _hand_over(self) -> None:
        hbm, state = self._hbm, self._state
        state.free_at, state.last_due, state.accepted = hbm._free_at, hbm._last_due, hbm._accepted
        state.latency, state.cycles_per_beat = hbm._latency, hbm._cycles_per_beat
        state.capacity, state.extra_latency = hbm.capacity, hbm._extra_latency
        state.backpressure, state.seed = hbm._backpressure, hbm._seed & (1 << 64) - 1
        state.size = hbm.size
        room = 1 << (hbm.capacity + len(hbm._due) + 2).bit_length()
        due = (_Due * room)()
        for slot, (cycle, data, error) in zip(due, hbm._due, strict=False):
            slot.cycle, slot.error = cycle, int(error)
            slot.data[:] = data.to_bytes(64, "little")
        self._due = due
        state.due, state.due_mask = ctypes.addressof(due), room - 1
        state.due_head, state.due_count = 0, len(hbm._due)
        faults = [edge for fault in hbm._faults for edge in fault]
        self._array("faults", np.array(faults or [0], np.int64))
        state.fault_count = len(hbm._faults)
        self._array("bytes_read", np.array(hbm.bytes_read, np.int64))
        self._array("bytes_written", np.array(hbm.bytes_written, np.int64))
        self._spare += [bytearray(PAGE_BYTES) for _ in range(_SPARE_PAGES - len(self._spare))]
        self._array("spare", np.array([_address(p) for p in self._spare], np.uint64))
        self._array("spare_number", np.zeros(_SPARE_PAGES, np.int64))
        state.spare_count, state.spare_used = _SPARE_PAGES, 0
        self._hand_over_pages()

    def _hand_over_pages(self) -> None:
        pages = self._hbm._pages
        size = 1 << (4 * (len(pages) + _SPARE_PAGES)).bit_length()
        keys = np.full(size, -1, np.int64)
        data = np.zeros(size, np.uint64)
        for number, page in pages.items():
            at = (number * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 20
            while keys[at & (size - 1)] >= 0:
                at += 1
            keys[at & (size - 1)] = number
            data[at & (size - 1)] = _address(page)
        self._array("page_keys", keys)
        self._array("page_data", data)
        self._state.page_mask = size - 1

    def _take_back(self) -> None:
        hbm, state = self._hbm, self._state
        hbm._free_at, hbm._last_due, hbm._accepted = state.free_at, state.last_due, state.accepted
        order = ((state.due_head + i) & state.due_mask for i in range(state.due_count))
        hbm._due = deque(
            (
                self._due[i].cycle,
                int.from_bytes(bytes(self._due[i].data), "little"),
                bool(self._due[i].error),
            )
            for i in order
        )
        hbm.bytes_read[:] = self._kept["bytes_read"].tolist()
        hbm.bytes_written[:] = self._kept["bytes_written"].tolist()
        for number in self._kept["spare_number"][: state.spare_used].tolist():
            hbm._pages[number] = self._spare.pop(0)

    # Events

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
