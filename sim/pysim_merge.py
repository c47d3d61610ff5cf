"""Equal leaves of one module as one module per step, the form in which Amaranth's simulator does
little besides the design's own work.

A fragment boundary has no meaning for what a design computes; the simulator, however, looks at
every module of the design several times in each cycle. The lanes of a row start to work in the same
cycle, so their first steps are put into one module, their second ones into another, and so on.
"""

from collections.abc import Hashable, Iterator, Sequence
from graphlib import TopologicalSorter
from typing import Any

from amaranth.hdl import Elaboratable, Fragment

from rtl.leaves.leaf import Leaf
from sim.private import ast, transforms
from sim.pysim_split import together

__all__ = ["merged"]


def merged(design: Elaboratable, *, whole: bool = False) -> Fragment:
    """The elaborated design, with the leaves of every module merged.

    `whole`: all steps of a row of leaves become one module, its statements in the order of
    computation, for a simulator that needs one pass over these.
    """
    fragment = Fragment.get(design, None)
    _merge_within(fragment, whole)
    return fragment


def _merge_within(fragment: Any, whole: bool) -> None:
    rows: dict[Hashable, list[tuple[Any, Any, Any]]] = {}
    others: list[tuple[Any, Any, Any]] = []
    for entry in fragment.subfragments:
        key = _key(entry[0])
        if key is None:
            _merge_within(entry[0], whole)
            others.append(entry)
        else:
            rows.setdefault(key, []).append(entry)
    fragment.subfragments = others
    for row in rows.values():
        _, name, where = row[0]
        merged_row = _merge([entry[0] for entry in row])
        fragment.add_subfragment(
            _in_order(merged_row) if whole else merged_row, name, src_loc=where
        )


def _key(fragment: Any) -> Hashable:
    """Of a combinational leaf; None for anything else."""
    for origin in fragment.origins or ():
        if isinstance(origin, Leaf) and not origin.latency:
            return origin.key
    return None


def _merge(fragments: Sequence[Any]) -> Fragment:
    """One fragment with the statements of all; so with their subfragments, by name."""
    whole = Fragment(src_loc=fragments[0].src_loc)
    inner: dict[str, list[Any]] = {}
    for fragment in fragments:
        for domain, statements in fragment.statements.items():
            whole.add_statements(domain, *map(_flatten, statements))
        for child, name, _where in fragment.subfragments:
            inner.setdefault(name, []).append(child)
    for name, children in inner.items():
        whole.add_subfragment(_merge(children), name)
    return whole


def _in_order(fragment: Any) -> Fragment:
    """All statements of a purely combinational fragment in one, what is read after its drivers."""
    groups = together(list(_statements(fragment)))
    driver = ast.SignalDict()
    for number, group in enumerate(groups):
        for statement in group:
            for signal in statement._lhs_signals():
                driver[signal] = number
    before = {
        number: {driver[s] for t in group for s in t._rhs_signals() if s in driver} - {number}
        for number, group in enumerate(groups)
    }
    ordered = Fragment(src_loc=fragment.src_loc)
    for number in TopologicalSorter(before).static_order():
        ordered.add_statements("comb", *groups[number])
    return ordered


def _statements(fragment: Any) -> Iterator[Any]:
    yield from fragment.statements.get("comb", ())
    for child, _name, _where in fragment.subfragments:
        yield from _statements(child)


class _Flatten(transforms.ValueTransformer, transforms.StatementTransformer):
    """Slices of slices as slices: half of what the bound inputs of a leaf would cost."""

    def on_Slice(self, value: Any) -> Any:
        inner = self.on_value(value.value)
        if isinstance(inner, ast.Slice):
            return ast.Slice(
                inner.value, inner.start + value.start, inner.start + value.stop, src_loc_at=0
            )
        return ast.Slice(inner, value.start, value.stop)


_flatten = _Flatten().on_statement
