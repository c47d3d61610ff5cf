"""Names for the exported Verilog: plain identifiers that a small change elsewhere does not move."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from rtl.export.keywords import KEYWORDS
from rtl.export.merge import Merged
from rtl.export.rtlil import Cell, Module, rewrite

__all__ = ["module_names", "rename_locals"]

_COUNTER = re.compile(r"\$\d+$")


class _Taken:
    """Hands out identifiers: the one asked for, or that with the first free number behind it."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def free(self, wanted: str) -> str:
        name = wanted
        number = 1
        while name in self._names:
            name = f"{wanted}_{number}"
            number += 1
        self._names.add(name)
        return name


def _word(name: str) -> str:
    return re.sub(r"\W+", "_", _COUNTER.sub("", name.lstrip("\\"))).strip("_")


def _plain(name: str) -> str:
    """A RTLIL name without Amaranth's counters, as an identifier."""
    word = _word(name)
    if not word or word in KEYWORDS:
        return f"{word}_" if word else "unnamed"
    return f"_{word}" if word[:1].isdigit() else word


def module_names(merged: Merged, top: str, leaves: Iterable[str]) -> dict[str, str]:
    """Representative -> module name: the hierarchy of its first instance behind the top's name.

    Where equal modules were merged that were numbered, the number goes. Leaves carry their key.
    """
    taken = _Taken()
    leaf_names = set(leaves)
    names: dict[str, str] = {}
    for name, group in merged.groups.items():
        path = [_word(part) for part in merged.modules[name].path]
        if len(group) > 1 and len({re.sub(r"\d+", "", member) for member in group}) == 1:
            path = [re.sub(r"_?\d+$", "", part) for part in path]
        if path[0] in leaf_names:
            path.insert(0, top)
        whole = "_".join(path)
        names[name] = taken.free(f"{whole}_" if whole in KEYWORDS else whole)
    return names


def rename_locals(
    module: Module,
    modules: Mapping[str, Module],
    wishes: Mapping[str, str],
) -> dict[str, str]:
    """Local names of `module` -> identifiers, each unique in it.

    Signals keep their names. What Amaranth numbers is named by what it is: an input port by what
    the first instance connects to it (`wishes`), an instance's output by instance and port, a
    register's next value by the register, an intermediate value by its operator and a hash of its
    operands. So a line that comes or goes in the source changes the names that depend on it, not
    those that come after it.

    Args:
        module: a representative.
        modules: all representatives.
        wishes: input port -> name.
    """
    taken = _Taken()
    names: dict[str, str] = {}
    drivers = {
        value: (cell, port) for cell in module.cells for port, value in _outputs(cell, modules)
    }
    for wire in module.ports:
        if not wire.name.startswith("\\port$"):
            plain = _plain(wire.name)
        elif wire.name in module.suggestions:
            plain = _plain(module.suggestions[wire.name])
        else:
            plain = wishes.get(wire.name, "port")
        names[wire.name] = taken.free(plain)
    for memory in module.memories:
        names[memory.name] = taken.free(_plain(memory.name))
    for cell in module.cells:
        if cell.kind in modules:
            names[cell.name] = taken.free(_plain(cell.name))
    for wire in module.wires:
        if wire.name in names or wire.name.startswith("$"):
            continue
        plain = _plain(wire.name)
        driver = drivers.get(wire.name)
        if driver is not None and driver[0].kind in modules and plain == _plain(driver[1]):
            plain = f"{names[driver[0].name]}_{plain}"
        elif wire.name.startswith("\\$"):  # a port of a memory, or a signal that was given no name
            _, is_port, rest = wire.name.partition("$signature__")
            plain = f"port_{_word(rest)}" if is_port else "signal"
        names[wire.name] = taken.free(plain)
    _name_intermediates(module, modules, names, taken)
    for other in (*module.cells, *module.processes):
        names.setdefault(other.name, other.name)
    return names


def _outputs(cell: Cell, modules: Mapping[str, Module]) -> list[tuple[str, str]]:
    """The output ports of a cell that drive a whole wire, with the wire."""
    if cell.kind in modules:
        out = {wire.name for wire in modules[cell.kind].ports if wire.direction == "output"}
    else:
        out = {"\\Y", "\\Q", "\\DATA"}
    return [(port, value.split()[0]) for port, value in cell.ports if port in out]


def _name_intermediates(
    module: Module, modules: Mapping[str, Module], names: dict[str, str], taken: _Taken
) -> None:
    wires = {wire.name for wire in module.wires}
    for cell in module.cells:
        if cell.kind == "$dff":
            ports = dict(cell.ports)
            source, register = (ports[port].split()[0] for port in ("\\D", "\\Q"))
            if source in wires and source not in names and register in names:
                names[source] = taken.free(f"{names[register]}_next")

    def known(name: str) -> str:
        return names.get(name, "?")

    for cell in module.cells:
        for port, wire in _outputs(cell, modules):
            if wire in wires and wire not in names:
                inputs = [rewrite(value, known) for p, value in cell.ports if p != port]
                kind = cell.kind.strip("$") if cell.kind.startswith("$") else names[cell.name]
                text = "\n".join((kind, port, *cell.parameters, *inputs))
                names[wire] = taken.free(f"{kind.removesuffix('_v2')}_{_digest(text)}")
    for process in module.processes:
        text = _digest("\n".join(rewrite(line, known) for line in process.lines))
        for wire in process.targets():
            if wire in wires and wire not in names:
                names[wire] = taken.free(f"mux_{text}")
    rest = Counter(wire.name for wire in module.wires if wire.name not in names)
    for wire in rest:
        names[wire] = taken.free("net")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:5]
