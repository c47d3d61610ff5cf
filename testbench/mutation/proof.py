"""Mutants that cannot matter: proven equal to the original, for all values of all nets.

The proof looks at what the module's statements, ports and leaves take: if none of it can change,
nothing does. Sequential arguments ("this is never read then") are for the file of survivors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.compiled.term_factory import TermFactory
from sim.compiled.terms import Term
from testbench.formal.builder import Builder
from testbench.mutation.schemata import SELECT_BITS, Rewriter
from testbench.mutation.sites import Planned

__all__ = ["Prover"]

_KINDS = {
    "add": "BV_ADD",
    "sub": "BV_SUB",
    "mul": "BV_MUL",
    "and": "BV_AND",
    "or": "BV_OR",
    "xor": "BV_XOR",
    "not": "BV_NOT",
    "neg": "BV_NEG",
    "shl": "BV_SHL",
    "lshr": "BV_SHR",
    "ashr": "BV_ASHR",
}
_TESTS = {
    "eq": "EQUAL",
    "ne": "DISTINCT",
    "ult": "BV_ULT",
    "ule": "BV_ULE",
    "slt": "BV_SLT",
    "sle": "BV_SLE",
    "rany": "BV_REDOR",
    "rall": "BV_REDAND",
    "rxor": "BV_REDXOR",
}


class Prover(Builder):
    """Proves mutants equal to the original.

    Args:
        factory: of the terms.
        roots: what every module's statements, ports and leaves take.
        seconds: for one mutant.

    Raises:
        FormalToolsMissing: the solver is not installed.
    """

    def __init__(
        self,
        factory: TermFactory,
        roots: Mapping[tuple[str, ...], Sequence[tuple[Any, Term]]],
        seconds: int = 2,
    ) -> None:
        super().__init__()
        self._limit = 1000 * seconds
        self._factory, self._roots = factory, roots
        self._known: dict[int, Any] = {}
        self._kept: list[Term] = []
        self._symbols: dict[int, Any] = {}

    def is_equal(self, planned: Planned) -> bool:
        """Whether the mutant is proven to change nothing; False also when it takes too long."""
        factory = self._factory
        one = factory.const(1, SELECT_BITS)
        rewriter = Rewriter(factory, one, [(1, planned)])
        differences: list[Any] = []
        for place, root in self._roots[planned.input.module]:
            changed = rewriter.at(place, root)
            if changed is not root:
                pair = self._term(root), self._term(changed)
                differences.append(self.make("DISTINCT", *pair))
        if not differences:
            return True
        solver = self._solver()
        joined = differences[0]
        for another in differences[1:]:
            joined = self.make("OR", joined, another)
        solver.assert_formula(joined)
        return solver.check_sat() == self.bitwuzla.Result.UNSAT

    def _solver(self) -> Any:
        options = self.bitwuzla.Options()
        options.set(self.bitwuzla.Option.TIME_LIMIT_PER, self._limit)
        return self.bitwuzla.Bitwuzla(self.tm, options)

    def _term(self, term: Term) -> Any:
        if id(term) not in self._known:
            self._kept.append(term)
            self._known[id(term)] = self._made(term)
        return self._known[id(term)]

    def _made(self, term: Term) -> Any:
        if term.op == "const":
            return self.const(term.attr, term.width)
        if term.op == "ref":
            net, start = term.attr
            return self._reference(net, start, term.width)
        args = [self._term(a) for a in term.args]
        match term.op:
            case "cat":
                return self.join(args)
            case "slice":
                return self.cut(args[0], term.attr, term.width)
            case "sext":
                more = term.width - term.args[0].width
                return self.make("BV_SIGN_EXTEND", args[0], indices=(more,))
            case "mux":
                return self.make("ITE", self.true(args[0]), args[1], args[2])
            case "shl" | "lshr" | "ashr":
                return self._shift(_KINDS[term.op], args[0], args[1])
            case "match":
                return self._match(args[0], term)
            case "rany" | "rall" | "rxor":
                return self.make(_TESTS[term.op], args[0])
        if term.op in _TESTS:
            return self.bit(self.make(_TESTS[term.op], *args))
        if term.op in _KINDS:
            return self.make(_KINDS[term.op], *args)
        # Division, leading zeros: any function of its operands' identity.
        sort = self.tm.mk_bv_sort(term.width)
        return self.tm.mk_const(sort, f"{term.op} {id(term)}")

    def _reference(self, net: int, start: int, width: int) -> Any:
        parts = []
        for bit in range(start, start + width):
            key = net << 16 | bit
            if key not in self._symbols:
                self._symbols[key] = self.tm.mk_const(self.tm.mk_bv_sort(1), f"{net}.{bit}")
            parts.append(self._symbols[key])
        return self.join(parts)

    def _match(self, test: Any, term: Term) -> Any:
        hit = self.tm.mk_false()
        for pattern in term.attr:
            mask = int(pattern.replace("0", "1").replace("-", "0"), 2)
            want = self.const(int(pattern.replace("-", "0"), 2), len(pattern))
            masked = self.make("BV_AND", test, self.const(mask, len(pattern)))
            hit = self.make("OR", hit, self.make("EQUAL", masked, want))
        return self.bit(hit)
