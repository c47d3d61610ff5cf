"""The compiled engine: the design as machine code, behind the interface of every engine."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import MemoryData, Shape, Signal, Value

from isa.config import PlenaConfig
from isa.image import ProgramImage
from sim.compiled.build import entry_for
from sim.compiled.cache import Entry
from sim.compiled.evaluation import evaluate
from sim.compiled.hostloop import HostLoop
from sim.compiled.model import Model, Place
from sim.compiled.paths import reachable
from sim.compiled.samples import Piece, SampleLog
from sim.engine import Engine
from sim.hbm import HbmDevice
from sim.observers import Observer

__all__ = ["CompiledEngine"]


class CompiledEngine(Engine):
    """The design compiled by the C compiler of this machine; built once, then loaded from a cache.

    `elaboration_seconds` is the time of the construction, `cached` whether the library was there
    already. The top is
    never elaborated in this process: a signal is found by its attribute path from the probe.

    Args:
        config: the machine.
        entry: a built engine of it, for experiments; the one in the cache by default.

    Raises:
        CompilerError: there is no C compiler (the message says what to install), or it failed.
    """

    name = "compiled"

    def __init__(self, config: PlenaConfig, entry: Entry | None = None) -> None:
        started = time.perf_counter()
        super().__init__(config)
        self._reachable = reachable(self.probe)
        entry, self.cached = (entry, True) if entry is not None else entry_for(config)
        description: dict[str, Any] = entry.description()
        self.model = Model(entry.library, description)
        self._signals: dict[str, Place] = description["signals"]
        self._memory_paths: dict[str, int] = description["memory_paths"]
        self._places: dict[int, Place] = {}
        #: By the ids of values that were asked for together: they, kept, and where they are.
        self._picked: dict[tuple[int, ...], tuple[list[Value], npt.NDArray[np.intp] | None]] = {}
        self.elaboration_seconds = time.perf_counter() - started

    def place(self, signal: Signal) -> Place:
        """Where a signal is. KeyError if it cannot be reached from the top before elaboration, or
        does not exist."""
        place = self._places.get(id(signal))
        if place is None:
            path = self._reachable.signal_path(signal)
            if path is None or path not in self._signals:
                raise KeyError(f"signal {signal!r} cannot be reached by attributes from the top")
            place = self._places[id(signal)] = [(n, s, w) for n, s, w in self._signals[path]]
        return place

    def bits(self, signal: Signal) -> int:
        """The settled bit pattern of a signal."""
        return self.model.get(self.place(signal))

    def reset(self) -> None:
        self.model.reset()

    def get(self, value: Value) -> int:
        cast = Value.cast(value)
        if isinstance(cast, Signal) and not cast.shape().signed:
            return self.bits(cast)
        return evaluate(cast, self.bits, self.read_row)

    def get_all(self, values: Sequence[Value]) -> list[int]:
        key = tuple(map(id, values))
        picked = self._picked.get(key)
        if picked is None:
            picked = self._picked[key] = (list(values), self._bytes_of(values))
        if picked[1] is None:
            return super().get_all(values)
        self.model.settle()
        gathered = np.frombuffer(self.model.storage, np.uint8)[picked[1]]
        return gathered.view("<u8").ravel().tolist()

    def _bytes_of(self, values: Sequence[Value]) -> npt.NDArray[np.intp] | None:
        """Indices [values, 8] into the storage, when each value is an unsigned signal of 8 bytes
        there."""
        places = []
        for value in values:
            if not isinstance(value, Signal) or value.shape().signed:
                return None
            place = self.place(value)
            at, size = self.model.offset(place[0][0])
            if len(place) != 1 or place[0][0] < 0 or place[0][1] or size != 8:
                return None
            places.append(at)
        return np.array(places)[:, np.newaxis] + np.arange(8)

    def set(self, signal: Value, value: int) -> None:
        self.model.set(self._place_of(Value.cast(signal)), value)

    def _place_of(self, value: Value) -> Place:
        if isinstance(value, Signal):
            return self.place(value)
        start, length = 0, len(value)
        inner: Any = value
        while not isinstance(inner, Signal):
            start += inner.start
            inner = inner.value
        part: Place = []
        at = 0
        for net, first, width in self.place(inner):
            low, high = max(start, at), min(start + length, at + width)
            if low < high:
                part.append((net, first + low - at, high - low))
            at += width
        return part

    def step(self) -> None:
        self.model.step()

    def clock_loop(
        self, image: ProgramImage, hbm: HbmDevice, observers: Sequence[Observer]
    ) -> HostLoop | None:
        """A loop that clocks many cycles at a time for a simulation; None if an observer has to see
        each of them."""
        if not HostLoop.suits(hbm, observers, samples=True):
            return None
        wanted = [(o, wants) for o in observers if (wants := o.samples()) is not None]
        log = None
        for observer, samples in wanted:
            log = SampleLog(observer, samples, [self._pieces(v) for v in samples.signals])
        return HostLoop(self.model, self.probe, image, hbm, observers, log)

    def _pieces(self, value: Value) -> list[Piece]:
        """Where the bits of a signal, or of a row of a memory, are in the storage."""
        if isinstance(value, Signal):
            return [
                (0, 0, start, width) if net < 0 else (*self.model.offset(net), start, width)
                for net, start, width in self.place(value)
            ]
        row: Any = value
        at, size = self.model.row_offset(self._memory(row._memory), row._index)
        return [(at, size, 0, len(value))]

    def _memory(self, memory: MemoryData) -> int:
        path = self._reachable.memory_path(memory)
        if path is None or path not in self._memory_paths:
            raise KeyError(f"memory {memory!r} cannot be reached by attributes from the top")
        return self._memory_paths[path]

    def read_memory(self, memory: MemoryData, start: int, count: int) -> list[int]:
        return self.model.read_memory(self._memory(memory), start, count)

    def read_bytes(self, memory: MemoryData, start: int, count: int) -> bytes:
        size = -(-Shape.cast(memory.shape).width // 8)
        rows = self.model.memory_array(self._memory(memory))
        if start < 0 or count < 0 or start + count > len(rows):
            raise IndexError(f"rows {start} to {start + count - 1} of {len(rows)}")
        return rows[start : start + count, :size].tobytes()

    def write_memory(self, memory: MemoryData, start: int, rows: Sequence[int]) -> None:
        self.model.write_memory(self._memory(memory), start, rows)
