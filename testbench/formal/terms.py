"""Amaranth's netlist as bit-vector terms: the value of any net in any cycle after reset.

Only what is asked for is made, so whatever cannot influence a property is never looked at. One
clock domain without reset is supported; the design starts with its registers' initial values.
"""

import itertools
import sys
from collections.abc import Mapping
from typing import Any

from amaranth.hdl import _nir

from testbench.formal.builder import Builder, UnsupportedDesign

#: Terms depend on each other through long chains of cells and cycles.
_RECURSION_LIMIT = 200_000


class Terms(Builder):
    """Terms over the cycles 0, 1, ... of one netlist.

    Args:
        netlist: from `amaranth.hdl._ir.build_netlist`; every top-level input is a free value per
            cycle.
        memories: what memories hold at first, by path: memories with the same
            name start with the same unknown contents. Those not named start with their
            initial values.
        loose: names in `memories` whose memories may hold anything at any time: every read is a
            free value. More behaviours than the design has, so what is proven holds all the more.
        anywhere: cycle 0 is any state at all instead of the state after reset.
    """

    def __init__(
        self,
        netlist: Any,
        memories: Mapping[tuple[str, ...], str],
        loose: frozenset[str] = frozenset(),
        *,
        anywhere: bool = False,
    ) -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
        super().__init__()
        self.netlist = netlist
        self.cells: list[Any] = netlist.cells
        self.symbols: dict[tuple[str, int], Any] = {}  #: (input port, cycle) -> free value
        self.contents: dict[str, Any] = {}  #: name in `memories` -> array at cycle 0
        self._initial = dict(memories)
        self._loose = loose
        self._anywhere = anywhere
        self._cache: dict[tuple[Any, ...], Any] = {}
        self._ports = {
            start + bit: (name, start, width)
            for name, (start, width) in netlist.top.ports_i.items()
            for bit in range(width)
        }
        self._writes: dict[int, list[Any]] = {}
        for cell in self.cells:
            if type(cell).__name__ == "SyncWritePort":
                self._writes.setdefault(cell.memory, []).append(cell)
        paths = {self._path(c): i for i, c in enumerate(self.cells) if isinstance(c, _nir.Memory)}
        if missing := memories.keys() - paths.keys():
            raise UnsupportedDesign(f"no memory {', '.join('.'.join(p) for p in missing)}")
        #: name in `memories` -> cells of that name, if there are several
        self.tied = {
            name: [paths[path] for path, other in memories.items() if other == name]
            for name in set(memories.values())
            if list(memories.values()).count(name) > 1
        }
        clocks = {cell.clk for cell in self.cells if hasattr(cell, "clk")}
        if len(clocks) > 1:
            raise UnsupportedDesign(f"{len(clocks)} clocks")

    # Nets.

    def value(self, value: Any, cycle: int) -> Any:
        """The term of a netlist value of at least one bit."""
        key = (value, cycle)
        if key not in self._cache:
            parts, at = [], 0
            while at < len(value):
                end = at + 1
                while end < len(value) and _follows(value[end - 1], value[end]):
                    end += 1
                parts.append(self._run(value[at], end - at, value[at:end], cycle))
                at = end
            self._cache[key] = self.join(parts)
        return self._cache[key]

    def net(self, net: Any, cycle: int) -> Any:
        """The term of one net."""
        return self.value(_nir.Value(net), cycle)

    def _run(self, net: Any, width: int, nets: Any, cycle: int) -> Any:
        if net.is_const:
            return self.const(sum(n.const << i for i, n in enumerate(nets)), width)
        if net.cell == 0:
            name, start, whole = self._ports[net.bit]
            if net.bit + width > start + whole:
                half = start + whole - net.bit
                low = self._run(net, half, nets[:half], cycle)
                return self.join([low, self._run(nets[half], width - half, nets[half:], cycle)])
            return self.cut(self._symbol(name, whole, cycle), net.bit - start, width)
        cell = self.cells[net.cell]
        if isinstance(cell, _nir.AssignmentList):
            return self._assigned(net.cell, cell, net.bit, width, cycle)
        key = (net.cell, cycle)
        if key not in self._cache:
            self._cache[key] = self._cell(net.cell, cell, cycle)
        return self.cut(self._cache[key], net.bit, width)

    def _symbol(self, name: str, width: int, cycle: int) -> Any:
        key = (name, cycle)
        if key not in self.symbols:
            sort = self.tm.mk_bv_sort(width)
            self.symbols[key] = self.tm.mk_const(sort, f"{name}@{cycle}")
        return self.symbols[key]

    def _assigned(self, index: int, cell: Any, start: int, width: int, cycle: int) -> Any:
        """Bits of an assigned signal, piece by piece: fields may depend on each other."""
        edges = {start, start + width}
        for a in cell.assignments:
            edges |= {e for e in (a.start, a.start + len(a.value)) if start < e < start + width}
        parts, cuts = [], sorted(edges)
        for low, high in itertools.pairwise(cuts):
            key = (index, low, high, cycle)
            if key not in self._cache:
                term = self.value(cell.default[low:high], cycle)
                for a in cell.assignments:
                    if a.start <= low and high <= a.start + len(a.value):
                        new = self.value(a.value[low - a.start : high - a.start], cycle)
                        term = self.make("ITE", self.true(self.net(a.cond, cycle)), new, term)
                self._cache[key] = term
            parts.append(self._cache[key])
        return self.join(parts)

    def _cell(self, index: int, cell: Any, cycle: int) -> Any:
        kind = type(cell).__name__
        match kind:
            case "Operator":
                return self.operator(cell.operator, [self.value(v, cycle) for v in cell.inputs])
            case "FlipFlop":
                if cycle == 0 and self._anywhere:
                    return self._symbol(f"register {index}", len(cell.data), 0)
                if cycle == 0:
                    return self.const(cell.init, len(cell.data))
                return self.value(cell.data, cycle - 1)
            case "Matches":
                return self._matches(cell, cycle)
            case "PriorityMatch":
                return self._priority(cell, cycle)
            case "Part":
                return self._part(cell, cycle)
            case "AsyncReadPort":
                if self._name_of(self.cells[cell.memory]) in self._loose:
                    return self._symbol(f"read {index}", cell.width, cycle)
                memory = self.memory(cell.memory, cycle)
                return self.make("ARRAY_SELECT", memory, self.value(cell.addr, cycle))
            case "SyncReadPort":
                return self._read(index, cell, cycle)
        raise UnsupportedDesign(f"{kind} in a property's cone")

    def _matches(self, cell: Any, cycle: int) -> Any:
        value, hit = self.value(cell.value, cycle), self.tm.mk_false()
        for pattern in cell.patterns:
            mask = int("".join("0" if c == "-" else "1" for c in pattern), 2)
            want = int(pattern.replace("-", "0"), 2)
            width = len(pattern)
            masked = self.make("BV_AND", value, self.const(mask, width))
            same = self.make("EQUAL", masked, self.const(want, width))
            hit = self.make("OR", hit, same)
        return self.bit(hit)

    def _priority(self, cell: Any, cycle: int) -> Any:
        free, outputs = self.net(cell.en, cycle), []
        for net in cell.inputs:
            bit = self.net(net, cycle)
            outputs.append(self.make("BV_AND", free, bit))
            free = self.make("BV_AND", free, self.make("BV_NOT", bit))
        return self.join(outputs)

    def _part(self, cell: Any, cycle: int) -> Any:
        value, offset = self.value(cell.value, cycle), self.value(cell.offset, cycle)
        if cell.value_signed:
            raise UnsupportedDesign("a part of a signed value")
        width = max(len(cell.value), cell.width, len(cell.offset) + cell.stride.bit_length())
        wide = self.make("BV_ZERO_EXTEND", value, indices=(width - len(cell.value),))
        amount = self.make("BV_ZERO_EXTEND", offset, indices=(width - len(cell.offset),))
        amount = self.make("BV_MUL", amount, self.const(cell.stride, width))
        return self.cut(self.make("BV_SHR", wide, amount), 0, cell.width)

    # Memories.

    def _read(self, index: int, cell: Any, cycle: int) -> Any:
        if cell.transparent_for:
            raise UnsupportedDesign("a transparent read port")
        if cycle == 0 and self._anywhere:
            return self._symbol(f"read {index}", cell.width, 0)
        if cycle == 0:
            return self.const(0, cell.width)
        memory, before = self.memory(cell.memory, cycle - 1), cycle - 1
        row = self.make("ARRAY_SELECT", memory, self.value(cell.addr, before))
        held = self.value(
            _nir.Value(_nir.Net.from_cell(index, b) for b in range(cell.width)), before
        )
        return self.make("ITE", self.true(self.net(cell.en, before)), row, held)

    def memory(self, index: int, cycle: int) -> Any:
        """The contents of memory cell `index` at the beginning of `cycle`, an array."""
        key = ("memory", index, cycle)
        if key not in self._cache:
            cell = self.cells[index]
            if cycle == 0:
                term = self._first_contents(index, cell)
            else:
                term = self.memory(index, cycle - 1)
                for write in self._writes.get(index, []):
                    term = self._written(term, write, cycle - 1)
            self._cache[key] = term
        return self._cache[key]

    def _path(self, cell: Any) -> tuple[str, ...]:
        return (*self.netlist.modules[cell.module_idx].name, cell.name)

    def _name_of(self, cell: Any) -> str | None:
        return self._initial.get(self._path(cell))

    def _first_contents(self, index: int, cell: Any) -> Any:
        bits = (cell.depth - 1).bit_length()
        if cell.depth != 1 << bits:
            raise UnsupportedDesign(f"memory {cell.name}: depth {cell.depth} is no power of two")
        sort = self.tm.mk_array_sort(self.tm.mk_bv_sort(bits), self.tm.mk_bv_sort(cell.width))
        name = self._name_of(cell)
        if name is None and self._anywhere:
            name = f"memory {index}"
        if name is not None:
            if name not in self.contents:
                self.contents[name] = self.tm.mk_const(sort, name)
            return self.contents[name]
        term = self.tm.mk_const_array(sort, self.const(0, cell.width))
        for address, row in enumerate(cell.init):
            if row:
                where = self.const(address, bits)
                term = self.make("ARRAY_STORE", term, where, self.const(row, cell.width))
        return term

    def _written(self, memory: Any, write: Any, cycle: int) -> Any:
        address, new = self.value(write.addr, cycle), self.value(write.data, cycle)
        old = self.make("ARRAY_SELECT", memory, address)
        if len(set(write.en)) == 1:
            stored = self.make("ARRAY_STORE", memory, address, new)
            return self.make("ITE", self.true(self.net(write.en[0], cycle)), stored, memory)
        en = self.value(write.en, cycle)
        kept = self.make("BV_AND", old, self.make("BV_NOT", en))
        mixed = self.make("BV_OR", kept, self.make("BV_AND", new, en))
        return self.make("ARRAY_STORE", memory, address, mixed)


def _follows(before: Any, net: Any) -> bool:
    """Whether two nets are neighbouring bits of one cell, or both constant."""
    if before.is_const or net.is_const:
        return before.is_const and net.is_const
    return net.cell == before.cell and net.bit == before.bit + 1
