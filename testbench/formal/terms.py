"""Amaranth's netlist as bit-vector terms: the value of any net in any cycle after reset.

Only what is asked for is made, so whatever cannot influence a property is never looked at. One
clock domain without reset is supported; the design starts with its registers' initial values.
"""

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from amaranth.hdl import _nir

#: Terms depend on each other through long chains of cells and cycles.
_RECURSION_LIMIT = 200_000


class FormalToolsMissing(RuntimeError):
    """The solver is not installed."""


class UnsupportedDesign(RuntimeError):
    """A construct that the translation does not know."""


def solver_module() -> Any:
    """The package `bitwuzla`; FormalToolsMissing says how to get it."""
    try:
        return importlib.import_module("bitwuzla")
    except ImportError as error:
        raise FormalToolsMissing(
            "the package bitwuzla is not installed; install the extra: pip install 'plena-sim"
            "[formal]', or pip install 'bitwuzla>=0.8'"
        ) from error


class Terms:
    """Terms over the cycles 0, 1, ... of one netlist.

    Args:
        netlist: from `amaranth.hdl._ir.build_netlist`; every top-level input is a free value per
            cycle.
        memories: what memories hold at first, by the path of their module: memories with the same
            name start with the same unknown contents. Those not named start with their
            initial values.
        loose: names in `memories` whose memories may hold anything at any time: every read is a
            free value. More behaviours than the design has, so what is proven holds all the more.
    """

    def __init__(
        self,
        netlist: Any,
        memories: Mapping[tuple[str, ...], str],
        loose: frozenset[str] = frozenset(),
    ) -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
        self.bitwuzla = solver_module()
        self.kind = self.bitwuzla.Kind
        self.tm = self.bitwuzla.TermManager()
        self.netlist = netlist
        self.cells: list[Any] = netlist.cells
        self.symbols: dict[tuple[str, int], Any] = {}  #: (input port, cycle) -> free value
        self.contents: dict[str, Any] = {}  #: name in `memories` -> array at cycle 0
        self._initial = dict(memories)
        self._loose = loose
        self._cache: dict[tuple[Any, ...], Any] = {}
        self._ports = {
            start + bit: (name, start, width)
            for name, (start, width) in netlist.top.ports_i.items()
            for bit in range(width)
        }
        self._writes: dict[int, list[Any]] = {}
        for cell in self.cells:
            if isinstance(cell, _nir.SyncWritePort):
                self._writes.setdefault(cell.memory, []).append(cell)
        clocks = {cell.clk for cell in self.cells if hasattr(cell, "clk")}
        if len(clocks) > 1:
            raise UnsupportedDesign(f"{len(clocks)} clocks")

    # Small terms.

    def const(self, value: int, width: int) -> Any:
        """A bit vector."""
        return self.tm.mk_bv_value(self.tm.mk_bv_sort(width), value & ((1 << width) - 1))

    def make(self, kind: str, *args: Any, indices: tuple[int, ...] = ()) -> Any:
        """A term by the name of its kind."""
        return self.tm.mk_term(getattr(self.kind, kind), list(args), list(indices))

    def true(self, bit: Any) -> Any:
        """Whether a vector of one bit is 1, as a Boolean."""
        return self.make("EQUAL", bit, self.const(1, 1))

    def bit(self, boolean: Any) -> Any:
        """A Boolean as a vector of one bit."""
        return self.make("ITE", boolean, self.const(1, 1), self.const(0, 1))

    def cut(self, term: Any, start: int, width: int) -> Any:
        """`width` bits of `term` from bit `start`."""
        if start == 0 and width == term.sort().bv_size():
            return term
        return self.make("BV_EXTRACT", term, indices=(start + width - 1, start))

    def join(self, parts: list[Any]) -> Any:
        """Parts, the lowest first, as one vector."""
        return parts[0] if len(parts) == 1 else self.make("BV_CONCAT", *reversed(parts))

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
        for low, high in zip(cuts, cuts[1:], strict=False):
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
        match cell:
            case _nir.Operator():
                return self._operator(cell, [self.value(v, cycle) for v in cell.inputs])
            case _nir.FlipFlop():
                if cycle == 0:
                    return self.const(cell.init, len(cell.data))
                return self.value(cell.data, cycle - 1)
            case _nir.Matches():
                return self._matches(cell, cycle)
            case _nir.PriorityMatch():
                return self._priority(cell, cycle)
            case _nir.Part():
                return self._part(cell, cycle)
            case _nir.AsyncReadPort():
                if self._name_of(self.cells[cell.memory]) in self._loose:
                    return self._symbol(f"read {index}", cell.width, cycle)
                memory = self.memory(cell.memory, cycle)
                return self.make("ARRAY_SELECT", memory, self.value(cell.addr, cycle))
            case _nir.SyncReadPort():
                return self._read(index, cell, cycle)
        raise UnsupportedDesign(f"{type(cell).__name__} in a property's cone")

    def _operator(self, cell: Any, args: list[Any]) -> Any:
        name, make = cell.operator, self.make
        same = {"~": "BV_NOT", "-": "BV_NEG", "+": "BV_ADD", "*": "BV_MUL", "&": "BV_AND"}
        same |= {"|": "BV_OR", "^": "BV_XOR", "<<": "BV_SHL", "u>>": "BV_SHR", "s>>": "BV_ASHR"}
        compare = {"==": "EQUAL", "!=": "DISTINCT", "u<": "BV_ULT", "u>": "BV_UGT"}
        compare |= {"u<=": "BV_ULE", "u>=": "BV_UGE", "s<": "BV_SLT", "s>": "BV_SGT"}
        compare |= {"s<=": "BV_SLE", "s>=": "BV_SGE"}
        reduce = {"b": "BV_REDOR", "r|": "BV_REDOR", "r&": "BV_REDAND", "r^": "BV_REDXOR"}
        if name == "-" and len(args) == 2:
            return make("BV_SUB", *args)
        if name in ("<<", "u>>", "s>>"):
            return self._shift(same[name], *args)
        if name in same:
            return make(same[name], *args)
        if name in compare:
            return self.bit(make(compare[name], *args))
        if name in reduce:
            return args[0] if args[0].sort().bv_size() == 1 else make(reduce[name], args[0])
        if name == "m":
            return make("ITE", self.true(args[0]), args[1], args[2])
        raise UnsupportedDesign(f"operator {name!r}")

    def _shift(self, kind: str, left: Any, amount: Any) -> Any:
        width, bits = left.sort().bv_size(), amount.sort().bv_size()
        both = max(width, bits)
        extend = "BV_SIGN_EXTEND" if kind == "BV_ASHR" else "BV_ZERO_EXTEND"
        wide = self.make(extend, left, indices=(both - width,))
        shifted = self.make(
            kind, wide, self.make("BV_ZERO_EXTEND", amount, indices=(both - bits,))
        )
        return self.cut(shifted, 0, width)

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
        if cycle == 0:
            return self.const(0, cell.width)
        memory, before = self.memory(cell.memory, cycle - 1), cycle - 1
        row = self.make("ARRAY_SELECT", memory, self.value(cell.addr, before))
        held = self.value(_nir.Value(_nir.Net.from_cell(index, b) for b in range(cell.width)), before)
        return self.make("ITE", self.true(self.net(cell.en, before)), row, held)

    def memory(self, index: int, cycle: int) -> Any:
        """The contents of memory cell `index` at the beginning of `cycle`, an array."""
        key = ("memory", index, cycle)
        if key not in self._cache:
            cell = self.cells[index]
            if cycle == 0:
                term = self._first_contents(cell)
            else:
                term = self.memory(index, cycle - 1)
                for write in self._writes.get(index, []):
                    term = self._written(term, write, cycle - 1)
            self._cache[key] = term
        return self._cache[key]

    def _name_of(self, cell: Any) -> str | None:
        return self._initial.get(tuple(self.netlist.modules[cell.module_idx].name))

    def _first_contents(self, cell: Any) -> Any:
        bits = (cell.depth - 1).bit_length()
        if cell.depth != 1 << bits:
            raise UnsupportedDesign(f"memory {cell.name}: depth {cell.depth} is no power of two")
        sort = self.tm.mk_array_sort(self.tm.mk_bv_sort(bits), self.tm.mk_bv_sort(cell.width))
        name = self._name_of(cell)
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
