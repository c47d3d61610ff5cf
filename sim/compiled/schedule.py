"""Units of evaluation and their order: what runs when something that it reads has changed."""

import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from sim.compiled.lower import Branch, Statement, driven_nets
from sim.compiled.netlist import LeafCell, Netlist, Process, ReadPort, WritePort
from sim.compiled.terms import Term

#: Registers of one module that always take a new value run together up to this many bits.
_SMALL = 256

__all__ = ["Reads", "Schedule", "Unit", "filtered", "schedule"]


@dataclass
class Unit:
    """Evaluated as a whole.

    `kind` is comb (statements, in layers), leaf (equal leaves), show (a combinational read port);
    after these, at the
    clock edge: sync (statements that set next values), fetch (clocked read ports with one enable),
    write (the ports of
    a memory, or the ports with one enable of many).
    """

    kind: str
    drives: list[int]
    reads: set[int]
    memories: set[int] = field(default_factory=set)
    statements: list[Statement] = field(default_factory=list)
    leaves: list[LeafCell] = field(default_factory=list)
    ports: list[ReadPort] = field(default_factory=list)
    writes: list[WritePort] = field(default_factory=list)
    level: int = 0
    index: int = -1
    looped: bool = False  #: part of a loop through whole nets: repeated until nothing changes


class Reads:
    """Nets that terms and statements read, each term looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[int]] = {}

    def term(self, term: Term) -> frozenset[int]:
        """Nets in a term."""
        known = self._known.get(id(term))
        if known is None:
            if term.op == "ref":
                known = frozenset((term.attr[0],))
            else:
                known = (
                    frozenset().union(*(self.term(a) for a in term.args))
                    if term.args
                    else frozenset()
                )
            self._known[id(term)] = known
        return known

    def statements(self, statements: Iterable[Statement]) -> set[int]:
        """Nets that the statements read."""
        found: set[int] = set()
        for s in statements:
            if isinstance(s, Branch):
                found |= self.term(s.test)
                for _, body in s.cases:
                    found |= self.statements(body)
            else:
                found |= self.term(s.value)
                if not hasattr(s, "start"):
                    found |= self.term(s.at)  # type: ignore[union-attr]
        return found


def filtered(statements: Iterable[Statement], nets: set[int]) -> list[Statement]:
    """The statements as far as they drive these nets."""
    result: list[Statement] = []
    for s in statements:
        if isinstance(s, Branch):
            cases = tuple((patterns, tuple(filtered(body, nets))) for patterns, body in s.cases)
            if any(body for _, body in cases):
                result.append(Branch(s.test, cases))
        elif s.net in nets:
            result.append(s)
    return result


@dataclass
class Schedule:
    """Units in order: `comb` settles from the first to the last, `sync` runs at the clock edge."""

    comb: list[Unit]
    sync: list[Unit]
    reads: Reads

    @property
    def units(self) -> list[Unit]:
        """All, by index."""
        return [*self.comb, *self.sync]


def guard(statements: Sequence[Statement]) -> Hashable:
    """Equal for processes that do something under the same conditions; None if there are none."""
    if not all(isinstance(s, Branch) for s in statements):
        return None
    return tuple(
        (id(s.test), tuple(p for p, _ in s.cases)) for s in statements if isinstance(s, Branch)
    )


def _components(count: int, after: list[set[int]]) -> list[list[int]]:
    """Strongly connected components, in an order in which `after` edges lead forward (Tarjan)."""
    index: list[int] = [-1] * count
    low = [0] * count
    on_stack = [False] * count
    stack: list[int] = []
    found: list[list[int]] = []
    counter = 0

    def visit(v: int) -> None:
        nonlocal counter
        index[v] = low[v] = counter
        counter += 1
        stack.append(v)
        on_stack[v] = True
        for w in after[v]:
            if index[w] < 0:
                visit(w)
                low[v] = min(low[v], low[w])
            elif on_stack[w]:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            component: list[int] = []
            while True:
                w = stack.pop()
                on_stack[w] = False
                component.append(w)
                if w == v:
                    break
            found.append(component)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10 * count + 1000))
    try:
        for v in range(count):
            if index[v] < 0:
                visit(v)
    finally:
        sys.setrecursionlimit(limit)
    return found[::-1]


def _order(units: list[Unit]) -> list[list[Unit]]:
    """Components in dependency order, levels set."""
    driver = {net: i for i, u in enumerate(units) for net in u.drives}
    after: list[set[int]] = [set() for _ in units]
    for i, unit in enumerate(units):
        for net in unit.reads:
            source = driver.get(net)
            if source is not None and source != i:
                after[source].add(i)
    components = _components(len(units), after)
    level = [0] * len(units)
    for component in components:
        here = max(level[i] for i in component)
        for i in component:
            level[i] = here
        inside = set(component)
        for i in component:
            for j in after[i] - inside:
                level[j] = max(level[j], here + 1)
    for i, unit in enumerate(units):
        unit.level = level[i]
    return [[units[i] for i in c] for c in components]


def _comb_unit(statements: list[Statement], reads: Reads) -> Unit:
    return Unit(
        "comb", list(driven_nets(statements)), reads.statements(statements), statements=statements
    )


def schedule(netlist: Netlist) -> Schedule:
    """Groups and orders everything in the netlist."""
    reads = Reads()
    units = [_comb_unit(p.statements, reads) for p in netlist.processes if not p.sync and p.nets]
    for cell in netlist.leaves:
        inputs: set[int] = set().union(*(reads.term(t) for t in cell.inputs.values()))
        units.append(Unit("leaf", list(cell.outputs.values()), inputs, leaves=[cell]))
    for memory in netlist.memories:
        for port in memory.reads:
            if not port.sync:
                used = set(reads.term(port.address))
                units.append(Unit("show", [port.net], used, {memory.index}, ports=[port]))
    components = _order(units)
    if any(len(c) > 1 for c in components):
        # A process may close a loop that its nets do not: take such processes apart.
        split: list[Unit] = []
        for component in components:
            for unit in component:
                if len(component) > 1 and unit.kind == "comb" and len(unit.drives) > 1:
                    split += [
                        _comb_unit(filtered(unit.statements, {n}), reads) for n in unit.drives
                    ]
                else:
                    split.append(unit)
        units = split
        components = _order(units)
    for component in components:
        for unit in component:
            unit.looped = len(component) > 1
    grouped = _group_leaves(netlist, units)
    comb = sorted(_joined(grouped), key=lambda u: u.level)
    sync = _sync_units(netlist, reads)
    for index, unit in enumerate((*comb, *sync)):
        unit.index = index
    return Schedule(comb, sync, reads)


def _group_leaves(netlist: Netlist, units: list[Unit]) -> list[Unit]:
    """Joins leaves of one kind and level whose operands change together."""
    origin: dict[int, Hashable] = {}
    for process in netlist.processes:
        mark = guard(process.statements)
        for net in process.nets:
            origin[net] = ("process", mark) if mark is not None else ("path", process.path)
    for unit in units:
        if unit.kind == "leaf":
            origin |= dict.fromkeys(unit.drives, ("leaf", unit.leaves[0].leaf.key, unit.level))
    groups: dict[Hashable, Unit] = {}
    result: list[Unit] = []
    for unit in units:
        if unit.kind != "leaf" or unit.looped:
            result.append(unit)
            continue
        (cell,) = unit.leaves
        ports = tuple(_port_kind(netlist, t, origin) for t in cell.inputs.values())
        key = cell.leaf.key, unit.level, ports
        group = groups.get(key)
        if group is None:
            groups[key] = unit
            result.append(unit)
        else:
            group.leaves.append(cell)
            group.drives += unit.drives
            group.reads |= unit.reads
    return result


def _joined(units: list[Unit]) -> list[Unit]:
    """Joins logic of one level that reads the same nets: it always has to run together."""
    groups: dict[Hashable, Unit] = {}
    result: list[Unit] = []
    for unit in units:
        key = unit.level, frozenset(unit.reads)
        if unit.kind != "comb" or unit.looped:
            result.append(unit)
        elif key in groups:
            groups[key].statements += unit.statements
            groups[key].drives += unit.drives
        else:
            groups[key] = unit
            result.append(unit)
    return result


def _port_kind(netlist: Netlist, term: Term, origin: dict[int, Hashable]) -> Hashable:
    """Equal for operands that are made up alike and change together."""
    if term.op == "ref":
        net, start = term.attr
        whole = netlist.nets[net].width
        place = start if whole <= 64 and term.width % 8 else None
        return (
            "ref",
            term.width,
            min(whole, 65) if place is not None else None,
            place,
            origin.get(net),
        )
    if term.op == "const":
        return "const", term.width, term.attr
    return (
        term.op,
        term.width,
        str(term.attr),
        tuple(_port_kind(netlist, a, origin) for a in term.args),
    )


def _sync_units(netlist: Netlist, reads: Reads) -> list[Unit]:
    joined: dict[Hashable, list[Process]] = {}
    for process in netlist.processes:
        if process.sync and process.nets:
            mark = guard(process.statements)
            bits = sum(netlist.nets[n].width for n in process.nets)
            if mark is None:
                mark = process.path if bits <= _SMALL else id(process)
            joined.setdefault(mark, []).append(process)
    result: list[Unit] = []
    reset = reads.term(netlist.reset) if netlist.reset is not None else frozenset()
    for processes in joined.values():
        statements = [s for p in processes for s in p.statements]
        nets = [n for p in processes for n in p.nets]
        result.append(
            Unit("sync", nets, reads.statements(statements) | reset, statements=statements)
        )
    fetches: dict[Hashable, Unit] = {}
    writers: dict[Hashable, Unit] = {}
    for memory in netlist.memories:
        for port in memory.reads:
            if port.sync:
                unit = fetches.setdefault(id(port.en), Unit("fetch", [], set(reset)))
                unit.drives.append(port.net)
                unit.ports.append(port)
                unit.memories.add(memory.index)
                unit.reads |= reads.term(port.address) | reads.term(port.en)
                for number in port.transparent_for:
                    unit.reads |= _write_reads(memory.writes[number], reads)
        if memory.writes:
            key = (
                ("en", id(memory.writes[0].en))
                if len(memory.writes) == 1
                else ("memory", memory.index)
            )
            unit = writers.setdefault(key, Unit("write", [], set()))
            unit.writes += memory.writes
            unit.reads |= set().union(*(_write_reads(w, reads) for w in memory.writes))
    return [*result, *fetches.values(), *writers.values()]


def _write_reads(port: WritePort, reads: Reads) -> set[int]:
    return set(reads.term(port.address) | reads.term(port.data) | reads.term(port.en))
