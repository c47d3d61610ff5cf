"""Removes from converted modules what says nothing: wires that only repeat others, and memories'
zeros."""

import re

from rtl.export.rtlil import Module, Wire

__all__ = ["tidy"]

_IDENTIFIER = re.compile(r"[\\$][^\s]+")
_UNNAMED_PORT = "\\port$"


def tidy(module: Module) -> set[str]:
    """Tidies `module` in place; returns the memories whose initial contents are all zero.

    Amaranth adds a wire for every field of a structure and element of an array, for the sake of
    waveform viewers, and one for every signal that is another's copy, in each module that
    mentions it. Wires that nothing reads are dropped; what they stood for is kept in
    `module.aliases`, and lends its name to ports that have none. A memory's zeros are written
    word by word; the caller clears such a memory with a loop.
    """
    read = _read_identifiers(module)
    wires = {wire.name: wire for wire in module.wires}
    kept: list[tuple[str, str]] = []
    for target, source in module.connections:
        wire = wires.get(target)
        if wire is None or wire.direction or target in read:
            kept.append((target, source))
        else:
            del wires[target]
            module.aliases[target] = source
            _lend_name(module, wires, wire, source)
    module.wires = list(wires.values())
    module.connections = kept
    zero = {cell.memory for cell in module.cells if _is_zero(cell.kind, cell.ports)}
    module.cells = [c for c in module.cells if not _is_zero(c.kind, c.ports)]
    return zero


def _lend_name(module: Module, wires: dict[str, Wire], alias: Wire, source: str) -> None:
    """Suggests an alias's name for the unnamed ports that it consists of."""
    if alias.name.startswith("\\$"):
        return
    parts = _IDENTIFIER.findall(source)
    if not source.startswith("{") and parts and wires[parts[0]].width == alias.width:
        if parts[0].startswith(_UNNAMED_PORT):
            module.suggestions.setdefault(parts[0], alias.name)
        return
    position = alias.width
    for part, index in re.findall(r"([\\$]\S+|\d+'\S+)(?: \[(\d+(?::\d+)?)\])?", source):
        width = _width(part, index, wires)
        position -= width
        if part.startswith(_UNNAMED_PORT) and width == wires[part].width:
            module.suggestions.setdefault(part, f"{alias.name}_{position}")


def _width(part: str, index: str, wires: dict[str, Wire]) -> int:
    if "'" in part:
        return int(part.split("'")[0])
    high, _, low = index.partition(":")
    if not high:
        return wires[part].width
    return int(high) - int(low or high) + 1


def _read_identifiers(module: Module) -> set[str]:
    texts = [value for cell in module.cells for _, value in cell.ports]
    texts += [line for process in module.processes for line in process.lines]
    texts += [source for _, source in module.connections]
    return {name for text in texts for name in _IDENTIFIER.findall(text)}


def _is_zero(kind: str, ports: list[tuple[str, str]]) -> bool:
    if kind != "$meminit_v2":
        return False
    data = dict(ports)["\\DATA"]
    return "'" in data and "{" not in data and "1" not in data.split("'", 1)[1]
