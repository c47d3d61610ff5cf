"""Bounded model checking: is there a program and a behaviour of the units, within so many cycles
of reset, that breaks an Assert while keeping every Assume?
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from amaranth.hdl import Elaboratable, Fragment, Value, _ir, _nir

from testbench.formal.terms import Terms


class Harness(Protocol):
    """What a proof is about; an Elaboratable whose properties are in the sync domain."""

    machine: Any
    shown: dict[str, Any]

    def memories(self) -> dict[str, list[Any]]:
        """Storages with unknown contents, by name."""
        ...


@dataclass(frozen=True)
class Trace:
    """One behaviour: inputs per cycle, initial contents of memories, and what the shown signals
    are in each cycle."""

    inputs: list[dict[str, int]]
    contents: dict[str, list[int]]
    shown: dict[str, list[int]]


@dataclass
class Verdict:
    """What was found.

    `broken` names the properties that fail in cycle `cycle` of `trace`; both are None and empty
    when none does within `depth` cycles. `covered`: by cover, the first cycle that reaches it.
    """

    depth: int
    properties: int
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)
    cycle: int | None = None
    trace: Trace | None = None
    covered: dict[str, int | None] = field(default_factory=dict)


class Checker:
    """One harness, unrolled cycle by cycle in one solver."""

    def __init__(
        self,
        harness: Any,
        memories: dict[tuple[str, ...], str],
        loose: frozenset[str] = frozenset(),
    ) -> None:
        self.harness = harness
        names = dict(harness.machine.free_signals())
        ports = {name: (value, _ir.PortDirection.Input) for name, value in names.items()}
        fragment = Fragment.get(_elaboratable(harness), None)
        netlist = _ir.build_netlist(fragment, ports=ports, name="top")
        self.terms = Terms(netlist, memories, loose)
        options = self.terms.bitwuzla.Options()
        options.set(self.terms.bitwuzla.Option.PRODUCE_MODELS, True)
        self.solver = self.terms.bitwuzla.Bitwuzla(self.terms.tm, options)
        self.properties = {kind: list(self._find(kind)) for kind in ("assert", "assume", "cover")}

    def _find(self, kind: str) -> Iterator[tuple[str, Any, Any]]:
        for cell in self.terms.cells:
            if isinstance(cell, _nir.SyncProperty) and cell.kind == kind:
                yield "".join(map(str, cell.format.chunks)), cell.test, cell.en

    def _holds(self, test: Any, en: Any, cycle: int) -> Any:
        terms = self.terms
        off = terms.make("NOT", terms.true(terms.net(en, cycle)))
        return terms.make("OR", off, terms.true(terms.net(test, cycle)))

    def run(self, depth: int, *, progress: Callable[[str], None] = lambda text: None) -> Verdict:
        """Checks cycles 0 to depth - 1, and looks for every cover."""
        started = time.perf_counter()
        asserts = self.properties["assert"]
        verdict = Verdict(depth, len(asserts))
        verdict.covered = {name: None for name, _, _ in self.properties["cover"]}
        for cycle in range(depth):
            for _, test, en in self.properties["assume"]:
                self.solver.assert_formula(self._holds(test, en, cycle))
            self._cover(verdict, cycle)
            held = {name: self._holds(test, en, cycle) for name, test, en in asserts}
            wrong = self.terms.tm.mk_false()
            for term in held.values():
                wrong = self.terms.make("OR", wrong, self.terms.make("NOT", term))
            if self._satisfiable(wrong):
                verdict.cycle = cycle
                verdict.broken = [n for n, term in held.items() if self._model(term) == 0]
                verdict.trace = self._trace(cycle + 1)
                break
            for term in held.values():
                self.solver.assert_formula(term)
            progress(f"cycle {cycle}: {time.perf_counter() - started:.1f} s")
        verdict.seconds = time.perf_counter() - started
        return verdict

    def _cover(self, verdict: Verdict, cycle: int) -> None:
        for name, test, _en in self.properties["cover"]:
            if verdict.covered[name] is None and self._satisfiable(
                self.terms.true(self.terms.net(test, cycle))
            ):
                verdict.covered[name] = cycle

    def _satisfiable(self, assumption: Any) -> bool:
        result = self.solver.check_sat(assumption)
        if result == self.terms.bitwuzla.Result.UNKNOWN:
            raise RuntimeError("the solver gave up")
        return result == self.terms.bitwuzla.Result.SAT

    def _model(self, term: Any) -> int:
        value = self.solver.get_value(term)
        if term.sort().is_bool():
            return int(value.is_true())
        return int(value.value(2), 2)

    def _trace(self, cycles: int) -> Trace:
        terms = self.terms
        inputs: list[dict[str, int]] = [{} for _ in range(cycles)]
        for (name, cycle), symbol in terms.symbols.items():
            if cycle < cycles:
                inputs[cycle][name] = self._model(symbol)
        contents = {}
        for name, array in terms.contents.items():
            bits = array.sort().array_index().bv_size()
            contents[name] = [
                self._model(terms.make("ARRAY_SELECT", array, terms.const(address, bits)))
                for address in range(1 << bits)
            ]
        shown = {
            name: [
                self._model(terms.value(terms.netlist.signals[Value.cast(signal)], cycle))
                for cycle in range(cycles)
            ]
            for name, signal in self.harness.shown.items()
        }
        return Trace(inputs, contents, shown)


def _elaboratable(harness: Any) -> Elaboratable:
    return harness
