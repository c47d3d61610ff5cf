"""From a component to its netlist: elaborates it, and takes the result apart."""

from collections.abc import Iterable, Iterator
from typing import Any

from sim.compiled.leafcells import leaf_of, leaves_as_cells
from sim.compiled.lower import UnsupportedError
from sim.compiled.netlist import LeafCell, MemoryCell, Netlist, ReadPort, WritePort
from sim.compiled.processes import joined, split
from sim.private import ast, fragments, memories, transforms

__all__ = ["extract"]


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
        with leaves_as_cells():
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
        if isinstance(fragment, fragments.Instance) and leaf_of(fragment) is not None:
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
            leaf = leaf_of(fragment)
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
                netlist.processes += split(path, name != "comb", lowered)
    netlist.processes = joined(netlist.processes)


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
