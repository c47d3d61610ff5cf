"""The places of a netlist where a mutant can be, and the choice among them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.compiled.lower import Branch, Deposit, Statement, driven_nets
from sim.compiled.netlist import Netlist
from sim.compiled.terms import Term
from testbench.mutation.mutant import MODES, ROOT, Mutant, SourceLine, rank
from testbench.mutation.terms import WIRES, Constants, ones

__all__ = ["Input", "Locations", "Planned", "choose", "machine_inputs", "term_inputs"]

#: Cells with a constant operand that means something else with another bit inverted; for the others
#: this is the same as inverting the bit on the other side.
_CONSTANT_MATTERS = frozenset({"add", "sub", "ult", "ule", "slt", "sle", "mux", "assign"})


@dataclass(frozen=True)
class Input:
    """An input of a cell: an operand of a term, or what a statement, a port or a leaf takes.

    Attributes:
        place: identifies it within its module: (id of the term or statement, operand).
        module: its path below the top; terms of two modules are never one cell.
        label: driven signal, cell and operand, for the key.
        term: the value that the input sees. `control` is where a control bit may come from.
        consumer: the cell, unless it is a statement, a port or a leaf.
        target: net and first bit that an assignment drives.
    """

    place: tuple[int, int | str]
    module: tuple[str, ...]
    label: str
    cell: str
    term: Term
    control: Term
    where: SourceLine
    consumer: Term | None = None
    target: tuple[int, int] | None = None


@dataclass(frozen=True)
class Planned:
    """A mutant with what is needed to make it: its input, the bit, and the control (net, bit)."""

    mutant: Mutant
    input: Input
    bit: int
    control: tuple[int, int] | None = None


class Locations:
    """Source lines of terms and nets."""

    def __init__(self, values: Mapping[int, tuple[Any, Term, bool]], signals: Mapping[int, Any]):
        self._terms: dict[int, SourceLine] = {}
        for value, term, _ in values.values():
            line = _in_project(value.src_loc)
            if line is not None and term.op not in ("const", "ref"):
                self._terms.setdefault(id(term), line)
        self._nets = {n: loc for n, s in signals.items() if (loc := _in_project(s.src_loc))}

    def term(self, term: Term) -> SourceLine | None:
        """Where a term is written."""
        return self._terms.get(id(term))

    def net(self, net: int) -> SourceLine:
        """Where a net's signal is declared."""
        return self._nets.get(net, ("rtl", 0))


def _in_project(location: Any) -> SourceLine | None:
    if location is None or not Path(location[0]).is_relative_to(ROOT / "rtl"):
        return None
    return str(Path(location[0]).relative_to(ROOT)), location[1]


class _Collector:
    """Finds the inputs of all cells below the roots it is shown; each cell once per module."""

    def __init__(self, locations: Locations, name_of: Callable[[int], str]) -> None:
        self.inputs: list[Input] = []
        self._locations, self._name_of = locations, name_of
        self._seen: set[tuple[tuple[str, ...], int]] = set()
        self._counts: dict[str, int] = {}

    def _label(self, module: tuple[str, ...], net: str, cell: str) -> str:
        base = f"{'.'.join(module)}:{net}:{cell}"
        number = self._counts[base] = self._counts.get(base, -1) + 1
        return f"{base}#{number}"

    def root(
        self,
        place: tuple[int, str],
        module: tuple[str, ...],
        net: str,
        cell: str,
        term: Term,
        where: SourceLine,
        target: tuple[int, int] | None = None,
    ) -> None:
        """What a statement, a memory's port or a leaf takes, and the cells behind it."""
        where = self._locations.term(term) or where
        label = self._label(module, net, cell)
        self.inputs.append(Input(place, module, label, cell, term, term, where, None, target))
        self._below(module, net, term, term, where)

    def _below(
        self, module: tuple[str, ...], net: str, root: Term, term: Term, where: SourceLine
    ) -> None:
        if (module, id(term)) in self._seen:
            return
        self._seen.add((module, id(term)))
        where = self._locations.term(term) or where
        if term.op not in WIRES:
            label = self._label(module, net, term.op)
            for number, operand in enumerate(term.args):
                place = id(term), number
                self.inputs.append(
                    Input(place, module, f"{label}.{number}", term.op, operand, root, where, term)
                )
        for operand in term.args:
            self._below(module, net, root, operand, where)

    def statements(self, module: tuple[str, ...], statements: Sequence[Statement]) -> None:
        """The roots in statements."""
        for statement in statements:
            first = next(iter(driven_nets((statement,))))
            net, where = self._name_of(first), self._locations.net(first)
            if isinstance(statement, Branch):
                self.root((id(statement), "test"), module, net, "select", statement.test, where)
                for _, body in statement.cases:
                    self.statements(module, body)
            else:
                value = statement.value
                target = None if isinstance(statement, Deposit) else (first, statement.start)
                self.root((id(statement), "value"), module, net, "assign", value, where, target)
                if isinstance(statement, Deposit):
                    self.root((id(statement), "at"), module, net, "offset", statement.at, where)


def machine_inputs(netlist: Netlist, locations: Locations, top: int) -> list[Input]:
    """All inputs of all cells of the machine; `top` path elements lie above the top."""
    collector = _Collector(locations, lambda net: netlist.nets[net].name)
    for process in netlist.processes:
        collector.statements(process.path[top:], process.statements)
    for memory in netlist.memories:
        module = tuple(memory.name.split("."))[top:-1]
        name = memory.name.split(".")[-1]
        first = netlist.nets[memory.reads[0].net].index if memory.reads else 0
        where = locations.net(first)
        for number, write in enumerate(memory.writes):
            for field in ("address", "data", "en"):
                term = getattr(write, field)
                cell = f"write{number}_{field}"
                collector.root((id(write), field), module, name, cell, term, where)
        for number, read in enumerate(memory.reads):
            for field in ("address", "en"):
                term = getattr(read, field)
                cell = f"read{number}_{field}"
                collector.root((id(read), field), module, name, cell, term, where)
    for leaf in netlist.leaves:
        where = locations.net(next(iter(leaf.outputs.values())))
        for port, term in leaf.inputs.items():
            cell = f"{leaf.path[-1]}_{port}"
            collector.root((id(leaf), port), leaf.path[top:-1], "leaf", cell, term, where)
    return collector.inputs


def term_inputs(
    roots: Sequence[tuple[tuple[int, str], str, Term]],
    module: tuple[str, ...],
    locations: Locations,
    where: SourceLine,
) -> list[Input]:
    """All inputs of all cells of named terms, given with their places."""
    collector = _Collector(locations, str)
    for place, name, term in roots:
        collector.root(place, module, name, "assign", term, where)
    return collector.inputs


def _candidates(
    unit: str, given: Input, used: int, constants: Constants, seed: int
) -> Iterator[Planned]:
    """Every mutant of an input whose bit can matter."""
    term = given.term
    fixed, _ = constants.of(term)
    whole = fixed == ones(term.width)
    references = sorted(_references(given.control)) if not whole else []
    for bit in range(term.width):
        if not used >> bit & 1:
            continue  # nothing observable depends on it
        modes = MODES
        if fixed >> bit & 1:
            if not (whole and given.cell in _CONSTANT_MATTERS):
                continue  # half of the modes do nothing, the other half another mutant does too
            modes = ("inv",)
        for mode in modes:
            key = f"{unit}:{given.label}[{bit}]:{mode}"
            mutant = Mutant(key, unit, mode, *given.where)
            control = None
            if mode.startswith("cnot"):
                others = [r for r in references if not _is_bit(term, bit, r)]
                if not others:
                    continue
                control = others[rank(seed, key + " control") % len(others)]
            yield Planned(mutant, given, bit, control)


def _references(term: Term) -> set[tuple[int, int]]:
    """(net, bit) that a term reads; of wide reads only some, there are enough."""
    found: set[tuple[int, int]] = set()
    waiting, seen = [term], {id(term)}
    while waiting:
        here = waiting.pop()
        if here.op == "ref":
            net, start = here.attr
            found |= {(net, start + i) for i in range(min(here.width, 8))}
        for operand in here.args:
            if id(operand) not in seen:
                seen.add(id(operand))
                waiting.append(operand)
    return found


def _is_bit(term: Term, bit: int, reference: tuple[int, int]) -> bool:
    """Whether the bit of the term is the referenced one itself."""
    at = 0
    for part in term.args if term.op == "cat" else (term,):
        if at <= bit < at + part.width:
            return part.op == "ref" and (part.attr[0], part.attr[1] + bit - at) == reference
        at += part.width
    return False


def choose(
    unit: str,
    inputs: Sequence[Input],
    used: Callable[[Input], int],
    *,
    count: int,
    seed: int,
    is_equal: Callable[[Planned], bool],
    keys: frozenset[str] | None = None,
) -> list[Planned]:
    """`count` mutants, spread over the unit's source lines and signals, or those with these keys.

    The choice depends on the seed and the keys alone, so a change of the RTL leaves the mutants of
    other lines as they are. Mutants that are equal to the original by proof are left out.
    """
    constants = Constants()
    groups: dict[tuple[SourceLine, str], list[Planned]] = {}
    for given in inputs:
        group = given.where, given.label.split("#")[0]
        for planned in _candidates(unit, given, used(given), constants, seed):
            groups.setdefault(group, []).append(planned)
    if keys is not None:
        every = (p for planned in groups.values() for p in planned)
        return sorted((p for p in every if p.mutant.key in keys), key=lambda p: p.mutant.key)
    for planned in groups.values():
        planned.sort(key=lambda p: rank(seed, p.mutant.key))
    lines: dict[SourceLine, list[list[Planned]]] = {}
    for (line, name), planned in sorted(groups.items(), key=lambda g: rank(seed, str(g[0]))):
        lines.setdefault(line, []).append(planned)
        del name
    chosen: list[Planned] = []
    while len(chosen) < count and lines:
        for line, waiting in list(lines.items()):  # a mutant of each line in turn
            group = waiting.pop(0)
            candidate = group.pop(0)
            if len(chosen) < count and not is_equal(candidate):
                chosen.append(candidate)
            if group:
                waiting.append(group)
            if not waiting:
                del lines[line]
    return sorted(chosen, key=lambda p: p.mutant.key)
