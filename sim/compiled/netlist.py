"""The elaborated design as nets, processes, memories and leaves: what the compiled engine schedules
and emits.

Leaves (`rtl.leaves.Leaf` without latency) are not elaborated where they stand: they become cells by
key, and each distinct one is converted once, by `sim.compiled.leaf`.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from amaranth.lib.wiring import Flow

from rtl.leaves.leaf import Leaf
from sim.compiled.lower import Assign, Lowering, Statement, UnsupportedError, driven_nets
from sim.compiled.terms import WIRING, Term, TermFactory
from sim.private import ast, fragments, memories, transforms

__all__ = [
    "LeafCell",
    "MemoryCell",
    "Net",
    "Netlist",
    "Process",
    "ReadPort",
    "WritePort",
    "extract",
]

_PATCH_LOCK = threading.Lock()


@dataclass
class Net:
    """Something that has storage. `kind` is input (nothing drives it), comb, register, leaf or read
    (of a memory)."""

    index: int
    name: str
    width: int
    init: int
    kind: str
    reset_less: bool = False


@dataclass
class Process:
    """Statements of one module in one domain that go together: they share the nets they drive."""

    path: tuple[str, ...]
    sync: bool
    statements: list[Statement]
    nets: list[int]


@dataclass
class ReadPort:
    """`net` shows the row: always (`sync` false), or from the clock edge on at which `en` is 1."""

    memory: int
    net: int
    sync: bool
    address: Term
    en: Term
    transparent_for: tuple[int, ...]


@dataclass
class WritePort:
    """At the clock edge, each group of `granularity` bits is written whose bit in `en` is 1."""

    memory: int
    address: Term
    data: Term
    en: Term
    granularity: int


@dataclass
class MemoryCell:
    """A storage with its ports; of several writes to one bit in one cycle, the last port's
    counts."""

    index: int
    name: str
    width: int
    depth: int
    init: list[int]
    reads: list[ReadPort] = field(default_factory=list)
    writes: list[WritePort] = field(default_factory=list)


@dataclass
class LeafCell:
    """An instance of a leaf: terms at the inputs, nets at the outputs, by port name."""

    leaf: Leaf
    path: tuple[str, ...]
    inputs: dict[str, Term]
    outputs: dict[str, int]


def _leaf_fragment(leaf: Leaf) -> Any:
    """Stands for a leaf in the fragment tree; Amaranth's passes keep its parameters, so those hold
    the leaf."""
    ports = [
        ("i" if member.flow is Flow.In else "o", name, getattr(leaf, name))
        for name, member in leaf.signature.members.items()
    ]
    return fragments.Instance(type(leaf).__name__, ("p", "leaf", leaf), *ports)


def _leaf_of(fragment: Any) -> Leaf | None:
    leaf = fragment.parameters.get("leaf") if isinstance(fragment, fragments.Instance) else None
    return leaf if isinstance(leaf, Leaf) else None


@contextmanager
def _leaves_as_cells() -> Iterator[None]:
    """Within this, a leaf without latency stays whole."""
    original = Leaf.elaborate

    def elaborate(self: Leaf, platform: Any) -> Any:
        return original(self, platform) if self.latency else _leaf_fragment(self)

    with _PATCH_LOCK:
        Leaf.elaborate = elaborate  # type: ignore[method-assign]
        try:
            yield
        finally:
            Leaf.elaborate = original


class Netlist:
    """Nets and cells of a design; made by `extract`.

    Attributes:
        reset: the term of the clock domain's reset, if something drives it.
        names: hierarchical name -> term, for every named signal.
    """

    def __init__(self) -> None:
        self.factory = TermFactory()
        self.nets: list[Net] = []
        self.processes: list[Process] = []
        self.memories: list[MemoryCell] = []
        self.leaves: list[LeafCell] = []
        self.reset: Term | None = None
        self.names: dict[str, Term] = {}
        self.memory_data: dict[int, int] = {}  #: id of the MemoryData -> index in `memories`
        self.lowering = Lowering(self.factory, self.signal, self.net)
        self._net_of = ast.SignalDict()
        self._wiring = ast.SignalDict()  # -> statements that may be plain wiring
        self._terms = ast.SignalDict()
        self._resolving = ast.SignalDict()  # -> whether it was asked for meanwhile
        self._clocks = ast.SignalDict()

    # Signals

    def net(self, signal: Any) -> int:
        """The net that stores a signal; a new one of kind input if it has none."""
        if signal in self._net_of:
            return self._net_of[signal]
        return self.add_net(signal, "input")

    def add_net(self, signal: Any, kind: str) -> int:
        """Gives a signal its storage."""
        if signal in self._net_of:
            raise UnsupportedError(f"signal {signal!r} with two drivers", signal.src_loc)
        mask = (1 << len(signal)) - 1
        net = Net(
            len(self.nets), signal.name, len(signal), signal.init & mask, kind, signal.reset_less
        )
        self.nets.append(net)
        self._net_of[signal] = net.index
        return net.index

    def signal(self, signal: Any) -> Term:
        """What a signal shows: its net, or the nets it is wired to."""
        if signal in self._terms:
            return self._terms[signal]
        if signal in self._clocks:
            raise UnsupportedError(f"the clock {signal!r} as a value", signal.src_loc)
        if (
            signal in self._resolving
        ):  # a loop, through wiring at least: it becomes a net of its own
            self._resolving[signal] = True
            return self._own(signal, "comb")
        if signal in self._wiring:
            self._resolving[signal] = False
            term = self._wire(signal)
            if term is None or self._resolving[signal]:
                term = self._own(signal, "comb")
            del self._resolving[signal]
        else:
            term = self._own(signal, "input")
        self._terms[signal] = term
        return term

    def _own(self, signal: Any, kind: str) -> Term:
        """The signal's own net, made if there is none."""
        net = self._net_of[signal] if signal in self._net_of else self.add_net(signal, kind)
        return self.factory.ref(net, 0, len(signal))

    def knows(self, signal: Any) -> bool:
        """Whether the signal is part of the design."""
        return signal in self._terms or signal in self._net_of

    def _wire(self, signal: Any) -> Term | None:
        """The term of a signal that is assigned unconditionally, if it is wiring."""
        f = self.factory
        term = f.const(signal.init, len(signal))
        for start, width, rhs in self._wiring[signal]:
            bits, signed = self.lowering.rhs(rhs)
            bits = f.extend(bits, signed, width)
            if bits.op not in WIRING or any(p.op not in WIRING for p in bits.args):
                return None
            end = start + width
            term = f.cat((f.slice(term, 0, start), bits, f.slice(term, end, len(signal) - end)))
        return term

    def offer_wiring(self, statements: Mapping[Any, list[Any]]) -> None:
        """Notes signals that only have unconditional assignments to fixed bits."""
        for signal, assigning in statements.items():
            pieces = [_whole_bits(s, signal) for s in assigning]
            if all(p is not None for p in pieces):
                self._wiring[signal] = pieces

    def forbid_as_value(self, clock: Any) -> None:
        """Marks a clock."""
        self._clocks[clock] = True

    def is_wiring(self, signal: Any) -> bool:
        """Whether a driven signal needs no storage."""
        self.signal(signal)
        return signal not in self._net_of


def _whole_bits(statement: Any, signal: Any) -> tuple[int, int, Any] | None:
    """(start, width, rhs) of an assignment to fixed bits of the signal alone."""
    if not isinstance(statement, ast.Assign):
        return None
    lhs, start, width = statement.lhs, 0, len(statement.lhs)
    while not isinstance(lhs, ast.Signal):
        if isinstance(lhs, ast.Slice):
            start += lhs.start
            lhs = lhs.value
        elif isinstance(lhs, ast.Operator) and lhs.operator in ("u", "s"):
            lhs = lhs.operands[0]
        else:
            return None
    return (start, width, statement.rhs) if lhs is signal else None


def _fragments(design: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    def walk(fragment: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield tuple(design.fragments[fragment].name), fragment
        for inner, _name, _where in fragment.subfragments:
            yield from walk(inner)

    return walk(design.fragment)


def _clock_domain(design: Any) -> Any:
    """The only clock domain; others are refused."""
    found: dict[int, Any] = {}
    for _, fragment in _fragments(design):
        used = {d for d in fragment.statements if d != "comb"}
        if isinstance(fragment, memories.MemoryInstance):
            used |= {
                p._domain
                for p in (*fragment._read_ports, *fragment._write_ports)
                if p._domain != "comb"
            }
        for name in used:
            domain = fragment.domains[name]
            found[id(domain)] = domain
    if len(found) > 1:
        raise UnsupportedError(
            f"more than one clock domain: {', '.join(d.name for d in found.values())}"
        )
    domain = next(iter(found.values()), None)
    if domain is not None and domain.clk_edge != "pos":
        raise UnsupportedError(f"domain {domain.name} at the negative clock edge")
    if domain is not None and domain.rst is not None and domain.async_reset:
        raise UnsupportedError(f"the asynchronous reset of domain {domain.name}")
    return domain


def extract(top: Any, *, black_boxes: bool = True) -> Netlist:
    """Elaborates `top` and takes it apart; it cannot be elaborated again.

    Raises:
        UnsupportedError: a construct that the engine does not implement.
    """
    if black_boxes:
        with _leaves_as_cells():
            fragment = fragments.Fragment.get(top, None)
    else:
        fragment = fragments.Fragment.get(top, None)
    defined = set(fragment.domains)
    design = fragment.prepare()
    netlist = Netlist()
    domain = _clock_domain(design)
    if domain is not None:
        netlist.forbid_as_value(domain.clk)
    _declare(netlist, design)
    if (
        domain is not None
        and domain.rst is not None
        and (domain.name in defined or _is_driven(design, domain.rst))
    ):
        netlist.reset = netlist.signal(domain.rst)
    _fill(netlist, design)
    for fragment, info in design.fragments.items():
        if not isinstance(fragment, fragments.Instance | memories.MemoryInstance):
            for signal, name in info.signal_names.items():
                if domain is None or signal is not domain.clk:
                    netlist.names[".".join((*info.name, name))] = netlist.signal(signal)
    return netlist


def _is_driven(design: Any, signal: Any) -> bool:
    return any(
        signal in statement._lhs_signals()
        for _, fragment in _fragments(design)
        for statement in fragment.statements.get("comb", ())
    )


def _declare(netlist: Netlist, design: Any) -> None:
    """Decides what every driven signal is before any value is looked at."""
    masks = ast.SignalDict()
    comb = ast.SignalDict()

    def claim(signal: Any, mask: int) -> None:
        if masks.setdefault(signal, 0) & mask:
            raise UnsupportedError(f"signal {signal!r} with two drivers", signal.src_loc)
        masks[signal] |= mask

    for _, fragment in _fragments(design):
        if isinstance(fragment, fragments.Instance) and _leaf_of(fragment) is not None:
            for conn, kind in fragment.ports.values():
                if kind == "o":
                    if not isinstance(conn, ast.Signal):
                        raise UnsupportedError(
                            f"a leaf's output bound to {conn!r}", fragment.src_loc
                        )
                    claim(conn, ~0)
                    netlist.add_net(conn, "leaf")
            continue
        if isinstance(fragment, memories.MemoryInstance):
            for port in fragment._read_ports:
                if not isinstance(port._data, ast.Signal):
                    raise UnsupportedError(
                        f"a read port with data {port._data!r}", fragment.src_loc
                    )
                claim(port._data, ~0)
                netlist.add_net(port._data, "read")
            continue
        if isinstance(fragment, fragments.Instance | fragments.IOBufferInstance):
            raise UnsupportedError(f"{type(fragment).__name__}", fragment.src_loc)
        for name, statements in fragment.statements.items():
            _only_assignments(statements)
            collector = transforms.LHSMaskCollector()
            collector.visit_stmt(statements)
            for signal, mask in collector.masks():
                claim(signal, mask)
                if name != "comb" and signal not in netlist._net_of:
                    netlist.add_net(signal, "register")
        for statement in fragment.statements.get("comb", ()):
            for signal in statement._lhs_signals():
                comb.setdefault(signal, []).append(statement)
    netlist.offer_wiring(comb)
    for signal in comb:
        if signal in netlist._net_of:
            raise UnsupportedError(f"signal {signal!r} driven from two domains", signal.src_loc)
        if signal not in netlist._wiring:
            netlist.add_net(signal, "comb")
    for signal in comb:
        netlist.signal(signal)


def _only_assignments(statements: Iterable[Any]) -> None:
    """Refuses Print, Assert and their like, also where they stand alone in a case."""
    for statement in statements:
        if isinstance(statement, ast.Switch):
            for _, body, _ in statement.cases:
                _only_assignments(body)
        elif not isinstance(statement, ast.Assign):
            raise UnsupportedError(f"a {type(statement).__name__} statement", statement.src_loc)


def _fill(netlist: Netlist, design: Any) -> None:
    lowering = netlist.lowering
    for path, fragment in _fragments(design):
        if isinstance(fragment, fragments.Instance):
            leaf = _leaf_of(fragment)
            assert leaf is not None
            inputs = {n: lowering.term(c) for n, (c, kind) in fragment.ports.items() if kind == "i"}
            outputs = {n: netlist.net(c) for n, (c, kind) in fragment.ports.items() if kind == "o"}
            netlist.leaves.append(LeafCell(leaf, path, inputs, outputs))
        elif isinstance(fragment, memories.MemoryInstance):
            _fill_memory(netlist, path, fragment)
        else:
            for name, statements in fragment.statements.items():
                if name == "comb":
                    # Wiring needs no statements.
                    lowered = lowering.statements(statements, lambda s: not netlist.is_wiring(s))
                else:
                    lowered = lowering.statements(statements)
                netlist.processes += _split(path, name != "comb", lowered)
    netlist.processes = _joined(netlist.processes)


def _fill_memory(netlist: Netlist, path: tuple[str, ...], fragment: Any) -> None:
    lowering = netlist.lowering
    data = fragment._data
    width = ast.Shape.cast(data.shape).width
    mask = (1 << width) - 1
    init = [int(v) & mask for v in data._init._raw]
    cell = MemoryCell(len(netlist.memories), ".".join(path), width, data.depth, init)
    for port in fragment._write_ports:
        address, value, en = (lowering.term(v) for v in (port._addr, port._data, port._en))
        cell.writes.append(WritePort(cell.index, address, value, en, port._granularity))
    for port in fragment._read_ports:
        net = netlist.net(port._data)
        address, en = lowering.term(port._addr), lowering.term(port._en)
        sync = port._domain != "comb"
        cell.reads.append(
            ReadPort(cell.index, net, sync, address, en, tuple(port._transparent_for))
        )
    netlist.memory_data[id(data)] = cell.index
    netlist.memories.append(cell)


def _split(path: tuple[str, ...], sync: bool, statements: list[Statement]) -> list[Process]:
    """Groups statements that drive the same nets; the order within a group stays."""
    group_of: dict[int, int] = {}
    groups: list[list[int]] = []  # -> positions in `statements`
    for position, statement in enumerate(statements):
        nets = driven_nets((statement,))
        together = sorted({group_of[n] for n in nets if n in group_of})
        if together:
            target = together[0]
            for other in together[1:]:
                groups[target] += groups[other]
                groups[other] = []
        else:
            target = len(groups)
            groups.append([])
        groups[target].append(position)
        group_of = {n: target if g in together else g for n, g in group_of.items()}
        group_of |= dict.fromkeys(nets, target)
    processes: list[Process] = []
    for positions in groups:
        if positions:
            chosen = [statements[p] for p in sorted(positions)]
            processes.append(Process(path, sync, chosen, list(driven_nets(chosen))))
    return processes


def _joined(processes: list[Process]) -> list[Process]:
    """Joins processes of different modules that drive different bits of one net."""
    owner: dict[int, Process] = {}
    result: list[Process] = []
    for process in processes:
        others = list({id(owner[n]): owner[n] for n in process.nets if n in owner}.values())
        for other in others:
            process = Process(
                other.path,
                process.sync,
                other.statements + process.statements,
                list(dict.fromkeys(other.nets + process.nets)),
            )
            result = [p for p in result if p is not other]
        result.append(process)
        owner |= dict.fromkeys(process.nets, process)
    return result


def is_unconditional(statement: Statement, net: Net) -> bool:
    """Whether the statement gives the whole net a new value whatever happens."""
    return (
        isinstance(statement, Assign)
        and statement.start == 0
        and statement.value.width == net.width
    )
