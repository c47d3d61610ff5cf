"""Merges equal modules: those that are the same text once every name is replaced by its number."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rtl.export.rtlil import Cell, Module, rewrite

__all__ = ["Merged", "merge"]


@dataclass
class Merged:
    """The modules that remain, and where the others went.

    Attributes:
        modules: the representatives by name, in the order of the input.
        members: all modules by name, with instances of representatives only.
        groups: representative -> the modules that it stands for, itself first.
        representative: every module -> its representative.
        translation: every module -> its local names -> the representative's.
    """

    modules: dict[str, Module] = field(default_factory=dict)
    members: dict[str, Module] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    representative: dict[str, str] = field(default_factory=dict)
    translation: dict[str, dict[str, str]] = field(default_factory=dict)


def merge(modules: Iterable[Module]) -> Merged:
    """One module for each set of equal ones; `modules` has parents before their children.

    Two modules are equal if a renaming of wires, memories, cells and instances turns the text of
    one into that of the other, where instances of equal modules count as equal: such modules
    are the same circuit. Instances are rewritten to the representative and to its port names.
    """
    ordered = list(modules)
    merged = Merged()
    by_digest: dict[bytes, str] = {}
    locals_of: dict[str, list[str]] = {}
    for module in reversed(ordered):
        for cell in module.cells:
            _redirect(cell, merged)
        names = _local_names(module)
        numbers = {name: f"\\{number}" for number, name in enumerate(names)}
        digest = hashlib.sha256("\n".join(_numbered(module, numbers)).encode()).digest()
        locals_of[module.name] = names
        merged.representative[module.name] = by_digest.setdefault(digest, module.name)
        merged.translation[module.name] = dict(
            zip(names, locals_of[by_digest[digest]], strict=True)
        )
    # The first occurrence represents, so that its name is the one that a reader meets first.
    first: dict[str, str] = {}
    for module in ordered:
        first.setdefault(merged.representative[module.name], module.name)
    return _elect(ordered, merged, first, locals_of)


def _redirect(cell: Cell, merged: Merged) -> None:
    representative = merged.representative.get(cell.kind)
    if representative is not None:
        names = merged.translation[cell.kind]
        cell.ports = [(names[port], value) for port, value in cell.ports]
        cell.kind = representative


def _elect(
    ordered: list[Module],
    merged: Merged,
    first: Mapping[str, str],
    locals_of: Mapping[str, list[str]],
) -> Merged:
    """The same, with another member of each group as its representative."""
    result = Merged()
    ports = {
        old: dict(zip(locals_of[old], locals_of[new], strict=True)) for old, new in first.items()
    }
    for module in ordered:
        old = merged.representative[module.name]
        new = first[old]
        result.representative[module.name] = new
        result.translation[module.name] = dict(
            zip(locals_of[module.name], locals_of[new], strict=True)
        )
        result.groups.setdefault(new, []).append(module.name)
        result.members[module.name] = module
        for cell in module.cells:
            if cell.kind in first:
                names = ports[cell.kind]
                cell.ports = [(names[port], value) for port, value in cell.ports]
                cell.kind = first[cell.kind]
        if new == module.name:
            result.modules[new] = module
    return result


def _local_names(module: Module) -> list[str]:
    """Everything that has a name of its own here, in the order of its declaration."""
    names = [wire.name for wire in module.wires]
    names += [memory.name for memory in module.memories]
    names += [cell.name for cell in module.cells]
    return names + [process.name for process in module.processes]


def _numbered(module: Module, numbers: Mapping[str, str]) -> Iterator[str]:
    """The module's text without its name, with numbers for names."""

    def number(name: str) -> str:
        return numbers[name]

    for wire in module.wires:
        yield f"wire {wire.width} {wire.signed} {wire.direction} {wire.init}"
    for memory in module.memories:
        yield memory.head
    for cell in module.cells:
        instance = not cell.kind.startswith("$")
        yield f"cell {cell.kind}"
        yield from (p for p in cell.parameters if not p.startswith("parameter \\MEMID "))
        if cell.memory:
            yield numbers[cell.memory]
        # The ports of an instance are already the representative's, whose names tell them apart.
        ports = sorted(cell.ports) if instance else cell.ports
        yield from (f"{port} {rewrite(value, number)}" for port, value in ports)
    for process in module.processes:
        yield from ("process", *(rewrite(line, number) for line in process.lines))
    yield from (f"{rewrite(t, number)} = {rewrite(s, number)}" for t, s in module.connections)
