"""A compiled design at work: its storage, and access to signals and memories by location."""

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.compiled.program import Program
from sim.compiled.terms import Term

__all__ = ["Model", "Place", "describe", "place_of"]

#: Where a value is: (net, first bit, width) from the low end on; net -1: the constant in the second
#: field.
Place = list[tuple[int, int, int]]


def place_of(term: Term) -> Place:
    """The place of a term that is only wiring."""
    place: Place = []
    for part in term.args if term.op == "cat" else (term,):
        if part.op == "const":
            place.append((-1, part.attr, part.width))
        else:
            assert part.op == "ref", part
            place.append((*part.attr, part.width))
    return place


def describe(program: Program) -> dict[str, Any]:
    """What a `Model` has to know, as JSON: storage of nets and memories, and initial contents."""
    netlist, layout, wakes = program.netlist, program.layout, program.emitter.wakes
    nets = []
    for net in netlist.nets:
        slot = layout.slots[net.index]
        readers = sorted(wakes.units_of(net.index))
        nets.append([slot.at, slot.next, slot.size, net.width, net.kind, hex(net.init), readers])
    memories = []
    for memory in netlist.memories:
        at, row = layout.memories[memory.index]
        init = {str(i): hex(v) for i, v in enumerate(memory.init) if v}
        readers = sorted(wakes.units_of_memory(memory.index))
        memories.append([memory.name, at, row, memory.width, memory.depth, init, readers])
    comb, sync = program.flag_words
    units = [len(program.schedule.comb), len(program.schedule.sync)]
    return {
        "size": layout.size,
        "flag_words": [comb, sync],
        "units": units,
        "nets": nets,
        "memories": memories,
    }


@dataclass(slots=True)
class _Net:
    at: int
    next: int
    size: int
    width: int
    kind: str
    init: int
    wakes: list[tuple[int, int]]


@dataclass(slots=True)
class _Memory:
    name: str
    at: int
    row: int
    width: int
    depth: int
    init: dict[int, int]
    wakes: list[tuple[int, int]]


def _flags(units: Sequence[int]) -> list[tuple[int, int]]:
    masks: dict[int, int] = {}
    for unit in units:
        masks[unit // 64] = masks.get(unit // 64, 0) | 1 << unit % 64
    return list(masks.items())


class Model:
    """A loaded library with storage of its own; several models may share one library.

    Args:
        library: the shared library.
        description: what `describe` made of the same program.
    """

    def __init__(self, library: Path, description: Mapping[str, Any]) -> None:
        self.library = ctypes.CDLL(str(library))
        self.size: int = description["size"]
        self._units: tuple[int, int] = tuple(description["units"])
        self._words: tuple[int, int] = tuple(description["flag_words"])
        self._nets = [
            _Net(n[0], n[1], n[2], n[3], n[4], int(n[5], 16), _flags(n[6]))
            for n in description["nets"]
        ]
        self._memories = [
            _Memory(
                m[0],
                m[1],
                m[2],
                m[3],
                m[4],
                {int(i): int(v, 16) for i, v in m[5].items()},
                _flags(m[6]),
            )
            for m in description["memories"]
        ]
        self._map = mmap.mmap(-1, self.size)
        self.storage = memoryview(self._map)
        self._flag_view = self.storage[: 8 * sum(self._words)].cast("Q")
        self.address = ctypes.addressof(ctypes.c_uint8.from_buffer(self._map))
        self._settle = self.library.plena_settle
        self._step = self.library.plena_step
        self._settle.argtypes = [ctypes.c_void_p]
        self._step.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self._settled = False
        self.reset()

    def reset(self) -> None:
        """Registers and memories to their initial values, inputs too."""
        ctypes.memset(self.address, 0, self.size)
        for net in self._nets:
            if net.init:
                content = net.init.to_bytes(net.size, "little")
                self.storage[net.at : net.at + net.size] = content
                if net.next >= 0:
                    self.storage[net.next : net.next + net.size] = content
        for memory in self._memories:
            for index, value in memory.init.items():
                start = memory.at + memory.row * index
                self.storage[start : start + memory.row] = value.to_bytes(memory.row, "little")
        for first, count in ((0, self._units[0]), (self._words[0], self._units[1])):
            for word in range(-(-count // 64)):
                self._flag_view[first + word] = (1 << min(64, count - 64 * word)) - 1
        self._settled = False

    def settle(self) -> None:
        """Lets combinational logic follow what was set."""
        if not self._settled:
            if self._settle(self.address):
                raise RuntimeError(
                    "combinational logic does not settle: the design has a loop that oscillates"
                )
            self._settled = True

    def unsettle(self) -> None:
        """Notes that storage was changed from outside."""
        self._settled = False

    def step(self, cycles: int = 1) -> None:
        """Clock cycles."""
        self.settle()
        if self._step(self.address, cycles):
            raise RuntimeError(
                "combinational logic does not settle: the design has a loop that oscillates"
            )

    def get(self, place: Place) -> int:
        """The bits at a place."""
        self.settle()
        value = at = 0
        for index, start, width in place:
            if index < 0:
                value |= start << at
            else:
                net = self._nets[index]
                whole = int.from_bytes(self.storage[net.at : net.at + net.size], "little")
                value |= (whole >> start & ((1 << width) - 1)) << at
            at += width
        return value

    def set(self, place: Place, value: int) -> None:
        """Overwrites inputs or registers; ValueError for anything that follows from others."""
        for index, start, width in place:
            if index < 0 or self._nets[index].kind in ("comb", "leaf"):
                raise ValueError(
                    "only inputs and registers can be set; "
                    "this signal is driven by combinational logic"
                )
            net, mask = self._nets[index], (1 << width) - 1
            whole = int.from_bytes(self.storage[net.at : net.at + net.size], "little")
            content = ((whole & ~(mask << start)) | (value & mask) << start).to_bytes(
                net.size, "little"
            )
            value >>= width
            self.storage[net.at : net.at + net.size] = content
            if net.next >= 0:
                self.storage[net.next : net.next + net.size] = content
            for word, flags in net.wakes:
                self._flag_view[word] |= flags
        self._settled = False

    def offset(self, index: int) -> tuple[int, int]:
        """Byte offset and size of a net."""
        return self._nets[index].at, self._nets[index].size

    def row_offset(self, index: int, row: int) -> tuple[int, int]:
        """Byte offset and size of a row of a memory."""
        memory = self._memories[index]
        return memory.at + memory.row * row, memory.row

    def memory_array(self, index: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A memory's storage as bytes, [rows, bytes per row]; after writing, call
        `touch_memory`."""
        memory = self._memories[index]
        flat = np.frombuffer(self._map, np.uint8, memory.row * memory.depth, memory.at)
        return flat.reshape(memory.depth, memory.row)

    def touch_memory(self, index: int) -> None:
        """Wakes what reads a memory."""
        for word, flags in self._memories[index].wakes:
            self._flag_view[word] |= flags
        self._settled = False

    def read_memory(self, index: int, start: int, count: int) -> list[int]:
        """Rows as integers."""
        memory = self._memories[index]
        if start < 0 or count < 0 or start + count > memory.depth:
            raise IndexError(
                f"rows {start} to {start + count - 1} of {memory.name}, which has {memory.depth}"
            )
        begin, row = memory.at + memory.row * start, memory.row
        if row <= 8:
            whole = np.frombuffer(self._map, f"<u{row}", count, begin)
            return whole.tolist()
        data = self.storage[begin : begin + row * count]
        return [int.from_bytes(data[i : i + row], "little") for i in range(0, row * count, row)]

    def write_memory(self, index: int, start: int, rows: Sequence[int]) -> None:
        """Overwrites rows."""
        memory = self._memories[index]
        if start < 0 or start + len(rows) > memory.depth:
            raise IndexError(
                f"rows {start} to {start + len(rows) - 1} of {memory.name}, "
                f"which has {memory.depth}"
            )
        begin, row, mask = memory.at + memory.row * start, memory.row, (1 << memory.width) - 1
        data = b"".join((int(v) & mask).to_bytes(row, "little") for v in rows)
        self.storage[begin : begin + len(data)] = data
        self.touch_memory(index)
