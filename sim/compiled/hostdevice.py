"""The memory device's state, to the clock loop in C and back."""

import ctypes
import threading
from collections import deque
from typing import Any

import numpy as np

from sim.compiled.hoststate import DueAnswer, HostState
from sim.hbm import PAGE_BYTES, HbmDevice

__all__ = ["DeviceExchange"]

_SPARE_PAGES = 64


def _address(page: bytearray) -> int:
    return ctypes.addressof((ctypes.c_uint8 * len(page)).from_buffer(page))


class _Pool(threading.local):
    """Zeroed pages and their addresses, for what programs write: each thread has its own. A loop
    takes those it used; the others have not been touched, and serve the next one."""

    def __init__(self) -> None:
        self.pages: list[tuple[bytearray, int]] = []

    def filled(self) -> list[tuple[bytearray, int]]:
        """The pages, `_SPARE_PAGES` of them."""
        for _ in range(_SPARE_PAGES - len(self.pages)):
            page = bytearray(PAGE_BYTES)
            self.pages.append((page, _address(page)))
        return self.pages


_POOL = _Pool()


class DeviceExchange:
    """Lends a device to the loop that works on `state`: from `hand_over` to `take_back` its
    requests, counters and pages are the loop's."""

    def __init__(self, hbm: HbmDevice, state: HostState) -> None:
        self._hbm, self._state = hbm, state
        self._kept: dict[str, Any] = {}  # arrays that C points to

    def _array(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._kept[name] = array
        setattr(self._state, name, array.ctypes.data)

    def hand_over(self) -> None:
        """The device as it is, into the loop's state."""
        hbm, state = self._hbm, self._state
        state.free_at, state.last_due, state.accepted = hbm._free_at, hbm._last_due, hbm._accepted
        state.latency, state.cycles_per_beat = hbm._latency, hbm._cycles_per_beat
        state.capacity, state.extra_latency = hbm.capacity, hbm._extra_latency
        state.backpressure, state.seed = hbm._backpressure, hbm._seed & (1 << 64) - 1
        state.size = hbm.size
        room = 1 << (hbm.capacity + len(hbm._due) + 2).bit_length()
        due = (DueAnswer * room)()
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
        addresses = [address for _, address in _POOL.filled()]
        self._array("spare", np.array(addresses, np.uint64))
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

    def take_back(self) -> None:
        """What the loop left, into the device."""
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
        numbers = self._kept["spare_number"][: state.spare_used].tolist()
        for number, (page, _) in zip(numbers, _POOL.pages, strict=False):
            hbm._pages[number] = page
        del _POOL.pages[: len(numbers)]
