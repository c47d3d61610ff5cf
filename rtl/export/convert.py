"""From a design to Verilog: leaves as instances, equal modules merged, all of it named."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Fragment, MemoryData, Signal, Value, ValueCastable
from amaranth.lib import wiring

from rtl.export.merge import Merged, merge
from rtl.export.names import module_names, rename_locals
from rtl.export.private import MemoryInstance, PortDirection, rtlil_fragment
from rtl.export.rtlil import Module, parse, rewrite
from rtl.export.tidy import tidy
from rtl.export.verilog import write_verilog
from rtl.leaves.library import LeafLibrary

__all__ = ["Design", "Location", "Piece", "convert"]


@dataclass(frozen=True)
class Location:
    """Where a signal or memory of the design is in the Verilog.

    Attributes:
        module: the module that declares it.
        instances: names of the instances from the top (exclusive) down to it.
        name: its identifier there.
    """

    module: str
    instances: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Piece:
    """Bits [start + width - 1 : start] of an identifier; without a location, `start` is a constant
    of that width."""

    location: Location | None
    start: int
    width: int


#: A constant or a wire of a RTLIL expression, and its range of bits.
_PART = re.compile(r"(\d+'[01]+|[\\$]\S+)(?: \[(\d+)(?::(\d+))?\])?")


@dataclass
class Design:
    """A converted design.

    Attributes:
        text: the Verilog, without a header.
        top: name of the top module.
        modules: every module of the Verilog by name, in RTLIL with the same names.
        leaf_modules: leaf of `library` -> its module, in the order of their first use.
        occurrences: module -> how many modules of the source it stands for.
    """

    text: str
    top: str
    modules: dict[str, Module]
    leaf_modules: dict[str, str]
    occurrences: dict[str, int]
    library: LeafLibrary
    _merged: Merged
    _module_names: dict[str, str]
    _local_names: dict[str, dict[str, str]]
    _signals: Any
    _memories: dict[int, tuple[str, ...]]
    _aliases: dict[str, dict[str, str]]

    def locate(self, item: Signal | MemoryData) -> Location:
        """Where a memory is, or a signal that has an identifier of its own.

        Raises:
            KeyError: it is not in the design, or is only a part of others or a constant there.
        """
        if isinstance(item, MemoryData):
            path = self._memories[id(item)]
            return self._location(path[:-1], "\\" + path[-1])
        pieces = self.pieces(item)
        location = pieces[0].location
        if len(pieces) > 1 or location is None or pieces[0].start:
            raise KeyError(f"{item!r} is no identifier of its own in the Verilog")
        return location

    def pieces(self, signal: Signal) -> list[Piece]:
        """What a signal consists of in the Verilog, from the low end on.

        Raises:
            KeyError: it is not in the design.
        """
        *path, name = self._signals[signal]
        module = "\\" + ".".join(path)
        source = self._aliases[module].get("\\" + name, "\\" + name)
        pieces: list[Piece] = []
        for part, high, low in _PART.findall(str(source)):
            if "'" in part:
                width, digits = part.split("'")
                pieces.append(Piece(None, int(digits, 2), int(width)))
            else:
                location = self._location(tuple(path), part)
                start = int(low or high or 0)
                width = int(high) - start + 1 if high else len(signal)
                pieces.append(Piece(location, start, width))
        return pieces[::-1]

    def merged_members(self) -> Iterator[tuple[str, str, Module]]:
        """(module of the Verilog, name in the source, its own body) for every module that another
        one stands for. The body has the names of the one that stands for it."""
        for module, group in self._merged.groups.items():
            for member in group[1:]:
                names = {
                    old: self._local_names[module][new]
                    for old, new in self._merged.translation[member].items()
                }
                body = self._merged.members[member]
                yield (
                    self._module_names[module],
                    member[1:],
                    _renamed(
                        body, names, f"member.{member[1:]}", self._module_names, self._local_names
                    ),
                )

    def _location(self, path: tuple[str, ...], name: str) -> Location:
        """The place of wire or memory `name` in the source module at `path`."""
        instances = [
            self._name_in(path[:depth], "\\" + path[depth]) for depth in range(1, len(path))
        ]
        representative = self._merged.representative["\\" + ".".join(path)]
        module = self._module_names[representative]
        return Location(module, tuple(instances), self._name_in(path, name))

    def _name_in(self, path: tuple[str, ...], name: str) -> str:
        module = "\\" + ".".join(path)
        representative = self._merged.representative[module]
        return self._local_names[representative][self._merged.translation[module][name]]


def convert(top: Any, name: str) -> Design:
    """The design `top`, a component, as Verilog whose top module is `name`.

    Equal leaves are converted once, other equal modules are merged after conversion. The text
    depends on the design alone.
    """
    library = LeafLibrary()
    fragment = Fragment.get(top, library).prepare(ports=_ports(top), hierarchy=(name,))
    text, signals = rtlil_fragment(fragment, name=name, emit_src=False)
    memories = {
        id(part._data): info.name
        for part, info in fragment.fragments.items()
        if isinstance(part, MemoryInstance)
    }
    modules = parse(text)
    done: set[str] = set()
    while pending := [leaf for leaf in library.leaves if leaf not in done]:
        for leaf in pending:  # a leaf may contain others
            done.add(leaf)
            modules += _leaf_modules(library, leaf)
    cleared = {module.name: tidy(module) for module in modules}
    merged = merge(modules)
    names = module_names(merged, name, library.leaves)
    local_names = _name_all(merged)
    renamed: dict[str, Module] = {}
    for old, module in merged.modules.items():
        renamed[names[old]] = _renamed(module, local_names[old], names[old], names, local_names)
    zero = {
        (names[module], local_names[module][memory])
        for module, found in cleared.items()
        if module in merged.modules
        for memory in found
    }
    return Design(
        text=write_verilog(renamed.values(), zero),
        top=name,
        modules=renamed,
        leaf_modules={leaf: names[merged.representative["\\" + leaf]] for leaf in library.leaves},
        occurrences={names[m]: len(group) for m, group in merged.groups.items()},
        library=library,
        _merged=merged,
        _module_names=names,
        _local_names=local_names,
        _signals=signals,
        _memories=memories,
        _aliases={module.name: module.aliases for module in modules},
    )


def _ports(component: Any) -> dict[str, tuple[Value, Any]]:
    """The ports of a component, by their path in its signature."""
    ports: dict[str, tuple[Value, Any]] = {}
    for path, member, value in component.signature.flatten(component):
        if isinstance(value, Value | ValueCastable):
            inward = member.flow is wiring.In
            direction = PortDirection.Input if inward else PortDirection.Output
            ports["__".join(map(str, path))] = Value.cast(value), direction
    return ports


def _leaf_modules(library: LeafLibrary, name: str) -> list[Module]:
    leaf, fragment = library.definition(name)
    text, _ = rtlil_fragment(fragment, ports=_ports(leaf), name=name, emit_src=False)
    return parse(text)


def _name_all(merged: Merged) -> dict[str, dict[str, str]]:
    """Identifiers for everything in every representative, parents first."""
    local_names: dict[str, dict[str, str]] = {}
    wishes: dict[str, dict[str, str]] = {name: {} for name in merged.modules}
    for name, module in merged.modules.items():
        names = local_names[name] = rename_locals(module, merged.modules, wishes[name])
        for cell in module.cells:
            if cell.kind in wishes:
                for port, value in cell.ports:
                    wishes[cell.kind].setdefault(port, _wish(value, names))
    return local_names


def _wish(value: str, names: Mapping[str, str]) -> str:
    """What to call a port to which `value` is connected: `advance_2` for a bit of advance."""
    parts = value.split()
    if parts[0] not in names:
        return "port"
    index = parts[1].strip("[]") if len(parts) > 1 else ""
    return f"{names[parts[0]]}_{index}" if index.isdigit() else names[parts[0]]


def _renamed(
    module: Module,
    names: Mapping[str, str],
    new_name: str,
    module_names: Mapping[str, str],
    local_names: Mapping[str, Mapping[str, str]],
) -> Module:
    """A copy of a module in which everything has its name in the Verilog."""

    def rename(name: str) -> str:
        new = names[name]
        return new if new.startswith("$") else "\\" + new

    def expression(text: str) -> str:
        return rewrite(text, rename)

    copy = Module("\\" + new_name)
    copy.wires = [w.renamed(rename(w.name)) for w in module.wires]
    copy.memories = [m.renamed(rename(m.name)) for m in module.memories]
    for cell in module.cells:
        inner = local_names.get(cell.kind)
        kind = cell.kind if inner is None else "\\" + module_names[cell.kind]
        ports = [
            (port if inner is None else "\\" + inner[port], expression(value))
            for port, value in cell.ports
        ]
        copy.cells.append(cell.renamed(kind, rename(cell.name), ports, rename))
    copy.processes = [
        p.renamed(rename(p.name), [expression(line) for line in p.lines]) for p in module.processes
    ]
    copy.connections = [(expression(t), expression(s)) for t, s in module.connections]
    return copy
