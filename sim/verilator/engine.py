"""The Verilated machine behind the interface of every engine."""

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amaranth.hdl import MemoryData, Signal, Value

from isa.config import PlenaConfig
from isa.image import ProgramImage
from sim.compiled.evaluation import evaluate
from sim.compiled.hostloop import HostLoop
from sim.compiled.paths import reachable
from sim.engine import Engine
from sim.hbm import HbmDevice
from sim.observers import Observer
from sim.verilator.access import container_bytes
from sim.verilator.build import entry_for

__all__ = ["VerilatedModel", "VerilatorEngine"]


class VerilatedModel:
    """A loaded library with a machine of its own; what the clock loop in C wants of a model."""

    def __init__(self, library: Path) -> None:
        self.library = lib = ctypes.CDLL(str(library))
        pointer = ctypes.c_void_p
        for name, arguments, result in (
            ("plena_new", [], pointer),
            ("plena_delete", [pointer], None),
            ("plena_reset", [pointer], ctypes.c_int),
            ("plena_address", [pointer, ctypes.c_int], pointer),
            ("plena_refresh", [pointer], None),
            ("plena_unsettle", [pointer], None),
            ("plena_settle", [pointer], None),
            ("plena_step", [pointer, ctypes.c_int64], None),
        ):
            function = getattr(lib, name)
            function.argtypes, function.restype = arguments, result
        self.address: int = lib.plena_new()
        self.reset()

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self.library.plena_delete(self.address)

    def reset(self) -> None:
        """A new machine in its initial state."""
        missing = self.library.plena_reset(self.address)
        if missing >= 0:
            raise AssertionError(f"no variable for address {missing}")
        self._overwritten = False

    def unsettle(self) -> None:
        """Notes that something changed that the machine did not do."""
        if self._overwritten:
            self.library.plena_refresh(self.address)
            self._overwritten = False
        self.library.plena_unsettle(self.address)

    def settle(self) -> None:
        """Lets combinational logic follow what was set."""
        if self._overwritten:
            self.unsettle()
        self.library.plena_settle(self.address)

    def step(self) -> None:
        """One clock cycle."""
        self.settle()
        self.library.plena_step(self.address, 1)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Bytes of a variable."""
        return ctypes.string_at(self.library.plena_address(self.address, number) + offset, size)

    def number(self, number: int, width: int) -> int:
        """The value of a variable of `width` bits."""
        return int.from_bytes(self.read(number, 0, container_bytes(width)), "little")

    def write(self, number: int, offset: int, content: bytes, *, is_input: bool) -> None:
        """Overwrites bytes of a variable."""
        start = self.library.plena_address(self.address, number) + offset
        ctypes.memmove(start, content, len(content))
        if is_input:
            self.library.plena_unsettle(self.address)
        else:
            self._overwritten = True


class VerilatorEngine(Engine):
    """The exported Verilog compiled by Verilator: built once, then loaded from the cache.

    Read and written can be: ports of the top, registers that are attributes below it, memories, and
    what the clock loop looks at. Any other signal raises KeyError; ask pysim or compiled for those.
    `elaboration_seconds` is the time of the construction, `cached` whether it was built already.

    Raises:
        CompilerError: Verilator or a C++ compiler is missing (the message says what to install), or
            one of them failed.
    """

    name = "verilator"

    def __init__(self, config: PlenaConfig) -> None:
        started = time.perf_counter()
        super().__init__(config)
        self._reachable = reachable(self.probe)
        entry, self.cached = entry_for(config)
        self.build_seconds: dict[str, float] = entry.manifest["seconds"]
        description: dict[str, Any] = entry.description()
        self._signals: dict[str, list[tuple[int, int, int, int]]] = description["signals"]
        self._memories: dict[str, tuple[int, int, int]] = description["memories"]
        self.model = VerilatedModel(entry.library)
        self._inputs = {
            id(signal)
            for _, member, signal in self.top.signature.flatten(self.top)
            if member.flow.name == "In"
        }
        self.elaboration_seconds = time.perf_counter() - started

    def _pieces(self, signal: Signal) -> list[tuple[int, int, int, int]]:
        path = self._reachable.signal_path(signal)
        if path is None or path not in self._signals:
            raise KeyError(
                f"signal {path or signal!r}: engine verilator keeps ports, registers and memories "
                "only; pysim and compiled show every signal"
            )
        return self._signals[path]

    def bits(self, signal: Signal) -> int:
        """The settled bit pattern of a signal."""
        self.model.settle()
        value = at = 0
        for number, start, width, variable_width in self._pieces(signal):
            whole = start if number < 0 else self.model.number(number, variable_width) >> start
            value |= (whole & (1 << width) - 1) << at
            at += width
        return value

    def reset(self) -> None:
        self.model.reset()

    def get(self, value: Value) -> int:
        cast = Value.cast(value)
        if cast is self.probe.flags:
            cast = self.probe.flags_value
        return evaluate(cast, self.bits, self.read_row)

    def set(self, signal: Value, value: int) -> None:
        inner: Any = Value.cast(signal)
        start, width = 0, len(inner)
        while not isinstance(inner, Signal):
            start += inner.start
            inner = inner.value
        ((number, first, _, variable_width),) = self._pieces(inner)
        whole = self.model.number(number, variable_width)
        mask = (1 << width) - 1 << first + start
        content = (whole & ~mask | value << first + start & mask).to_bytes(
            container_bytes(variable_width), "little"
        )
        self.model.write(number, 0, content, is_input=id(inner) in self._inputs)

    def step(self) -> None:
        self.model.step()

    def clock_loop(
        self, image: ProgramImage, hbm: HbmDevice, observers: Sequence[Observer]
    ) -> HostLoop | None:
        """As in engine compiled: the same loop in C, around this machine."""
        if not HostLoop.suits(hbm, observers):
            return None
        return HostLoop(self.model, self.probe, image, hbm, observers)

    def _memory(self, memory: MemoryData) -> tuple[int, int, int]:
        path = self._reachable.memory_path(memory)
        if path is None or path not in self._memories:
            raise KeyError(f"memory {memory!r} cannot be reached by attributes from the top")
        return self._memories[path]

    def _rows(self, memory: MemoryData, start: int, count: int) -> tuple[int, int]:
        number, width, depth = self._memory(memory)
        if start < 0 or count < 0 or start + count > depth:
            raise IndexError(
                f"rows {start} to {start + count - 1} of a memory of {depth} rows do not exist"
            )
        return number, container_bytes(width)

    def read_memory(self, memory: MemoryData, start: int, count: int) -> list[int]:
        number, size = self._rows(memory, start, count)
        data = self.model.read(number, start * size, count * size)
        return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]

    def write_memory(self, memory: MemoryData, start: int, rows: Sequence[int]) -> None:
        number, size = self._rows(memory, start, len(rows))
        content = b"".join(int(row).to_bytes(size, "little") for row in rows)
        self.model.write(number, start * size, content, is_input=False)
