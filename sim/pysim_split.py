"""The combinational logic of a module as several modules, each with work at times of its own.

Amaranth's simulator computes all of a module's combinational logic whenever one of its inputs
changes. What is computed from the same sources is left together, the rest taken apart.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from amaranth.hdl import Fragment

from sim.private import ast, memories

__all__ = ["split", "together"]


def split(fragment: Fragment) -> None:
    """Takes the combinational logic of every module below `fragment`, itself included, apart."""
    drivers = ast.SignalDict()
    every = list(_walk(fragment))
    for number, module in enumerate(every):
        for domain, statements in module.statements.items():
            for signal in _driven(statements):
                drivers[signal] = number, domain
        if isinstance(module, memories.MemoryInstance):
            for port in module._read_ports:
                drivers[port._data] = number, port._domain
    for module in every:
        _split(module, drivers)


def _walk(fragment: Any) -> Iterator[Any]:
    yield fragment
    for child, _name, _where in fragment.subfragments:
        yield from _walk(child)


def _driven(statements: Any) -> Iterator[Any]:
    for statement in statements:
        yield from statement._lhs_signals()


def together(statements: Sequence[Any]) -> list[list[Any]]:
    """The statements, in groups of those that drive a signal in common; in order within a group."""
    group_of = ast.SignalDict()
    groups: list[list[int]] = []  # -> positions in `statements`
    for position, statement in enumerate(statements):
        driven = list(statement._lhs_signals())
        found = sorted({group_of[s] for s in driven if s in group_of})
        target = found[0] if found else len(groups)
        if not found:
            groups.append([])
        for other in found[1:]:
            for moved in groups[other]:
                for signal in statements[moved]._lhs_signals():
                    group_of[signal] = target
            groups[target] += groups[other]
            groups[other] = []
        groups[target].append(position)
        for signal in driven:
            group_of[signal] = target
    return [[statements[p] for p in sorted(group)] for group in groups if group]


def _split(module: Any, drivers: Any) -> None:
    pieces: dict[Hashable, list[Any]] = {}
    for group in together(module.statements.get("comb", ())):
        read = (signal for statement in group for signal in statement._rhs_signals())
        sources = frozenset(drivers.get(s) for s in read)
        pieces.setdefault(sources, []).extend(group)
    if len(pieces) < 2:
        return
    del module.statements["comb"]
    for number, statements in enumerate(pieces.values()):
        piece = Fragment(src_loc=module.src_loc)
        piece.add_statements("comb", *statements)
        module.add_subfragment(piece, f"logic_{number}")
