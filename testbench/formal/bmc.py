"""Model checking with an SMT solver: is there a program and a behaviour of the units that breaks
an Assert while keeping every Assume, within so many cycles of reset, or ever?
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Fragment, Value, _ir

from testbench.formal.terms import Terms

Progress = Callable[[str], None]


def _quiet(text: str) -> None:
    """No progress."""


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
    """One harness, unrolled cycle by cycle in one solver; one call of one method per Checker.

    Args:
        harness: an Elaboratable with its properties in the sync domain, and `machine` (whose
            `free_signals` are the open inputs) and `shown` (signals for traces, by name).
        memories, loose, anywhere: see `Terms`.
    """

    def __init__(
        self,
        harness: Any,
        memories: dict[tuple[str, ...], str],
        loose: frozenset[str] = frozenset(),
        *,
        anywhere: bool = False,
    ) -> None:
        self.harness = harness
        names = dict(harness.machine.free_signals())
        ports = {name: (value, _ir.PortDirection.Input) for name, value in names.items()}
        fragment = Fragment.get(harness, None)
        netlist = _ir.build_netlist(fragment, ports=ports, name="top")
        self.terms = Terms(netlist, memories, loose, anywhere=anywhere)
        options = self.terms.bitwuzla.Options()
        options.set(self.terms.bitwuzla.Option.PRODUCE_MODELS, True)
        self.solver = self.terms.bitwuzla.Bitwuzla(self.terms.tm, options)
        self.properties = {kind: list(self._find(kind)) for kind in ("assert", "assume", "cover")}

    def _find(self, kind: str) -> Iterator[tuple[str, Any, Any]]:
        for cell in self.terms.cells:
            if type(cell).__name__ == "SyncProperty" and cell.kind == kind:
                yield "".join(map(str, cell.format.chunks)), cell.test, cell.en

    def _holds(self, test: Any, en: Any, cycle: int) -> Any:
        terms = self.terms
        off = terms.make("NOT", terms.true(terms.net(en, cycle)))
        return terms.make("OR", off, terms.true(terms.net(test, cycle)))

    def bounded(
        self, depth: int, names: Collection[str] | None = None, *, progress: Progress = _quiet
    ) -> Verdict:
        """Checks the asserts (those in `names`, or all) in cycles 0 to depth - 1.

        The other asserts are lemmas: used in each cycle where they hold, forgotten when they do
        not.
        """
        started = time.perf_counter()
        everything = self.properties["assert"]
        asserts = [p for p in everything if names is None or p[0] in names]
        lemmas = [p for p in everything if p not in asserts]
        verdict = Verdict(depth, len(asserts))
        for cycle in range(depth):
            self._assume(cycle)
            helpful = [self._holds(test, en, cycle) for _, test, en in lemmas]
            if self._satisfiable(self._any_false(helpful)):
                lemmas = []
            else:
                self._assert(helpful)
            held = {name: self._holds(test, en, cycle) for name, test, en in asserts}
            if self._satisfiable(self._any_false(held.values())):
                verdict.cycle = cycle
                verdict.broken = [n for n, term in held.items() if self._model(term) == 0]
                verdict.trace = self._trace(cycle + 1)
                break
            self._assert(held.values())
            progress(f"cycle {cycle}: {time.perf_counter() - started:.1f} s")
        verdict.seconds = time.perf_counter() - started
        return verdict

    def _any_false(self, terms: Iterable[Any]) -> Any:
        wrong = self.terms.tm.mk_false()
        for term in terms:
            wrong = self.terms.make("OR", wrong, self.terms.make("NOT", term))
        return wrong

    def _assert(self, terms: Iterable[Any]) -> None:
        for term in terms:
            self.solver.assert_formula(term)

    def step(self) -> Verdict:
        """Which asserts one cycle can break from a state in which all hold, however that state was
        reached; needs `anywhere`. None: if they hold in the first cycle, they hold for ever."""
        started = time.perf_counter()
        self._assume(0)
        for _, test, en in self.properties["assert"]:
            self.solver.assert_formula(self._holds(test, en, 0))
        self._assume(1)
        verdict = Verdict(1, len(self.properties["assert"]))
        for name, test, en in self.properties["assert"]:
            if self._satisfiable(self.terms.make("NOT", self._holds(test, en, 1))):
                verdict.broken.append(name)
        for name, indices in self.terms.tied.items():
            first, *others = (self.terms.memory(index, 1) for index in indices)
            for other in others:
                if self._satisfiable(self.terms.make("DISTINCT", first, other)):
                    verdict.broken.append(f"the copies of {name} stay equal")
        verdict.seconds = time.perf_counter() - started
        return verdict

    def cover(self, depth: int, *, progress: Progress = _quiet) -> Verdict:
        """Looks for every cover in cycles 0 to depth - 1; asserts are not looked at."""
        started = time.perf_counter()
        verdict = Verdict(depth, len(self.properties["cover"]))
        verdict.covered = {name: None for name, _, _ in self.properties["cover"]}
        for cycle in range(depth):
            self._assume(cycle)
            for name, test, _en in self.properties["cover"]:
                if verdict.covered[name] is None and self._satisfiable(
                    self.terms.true(self.terms.net(test, cycle))
                ):
                    verdict.covered[name] = cycle
            if None not in verdict.covered.values():
                break
            progress(f"cycle {cycle}: {time.perf_counter() - started:.1f} s")
        verdict.seconds = time.perf_counter() - started
        return verdict

    def _assume(self, cycle: int) -> None:
        for _, test, en in self.properties["assume"]:
            self.solver.assert_formula(self._holds(test, en, cycle))

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
