"""All mutants of a unit in one design: an input selects the one that is active, 0 is none."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sim.compiled.lower import Assign, Branch, Deposit, Statement
from sim.compiled.netlist import Net, Netlist
from sim.compiled.term_factory import TermFactory
from sim.compiled.terms import Term
from testbench.mutation.sites import Planned

__all__ = ["SELECT_BITS", "Rewriter", "build_in"]

SELECT_BITS = 16

Place = tuple[int, int | str]


class Rewriter:
    """Terms of one module with mutants at their inputs.

    Args:
        factory: makes the terms.
        select: the number of the active mutant, `SELECT_BITS` wide.
        mutants: numbers and mutants of the module.
    """

    def __init__(
        self, factory: TermFactory, select: Term, mutants: Iterable[tuple[int, Planned]]
    ) -> None:
        self._factory, self._select = factory, select
        self._mutants: dict[Place, list[tuple[int, Planned]]] = {}
        for number, planned in mutants:
            self._mutants.setdefault(planned.input.place, []).append((number, planned))
        self._done: dict[int, Term] = {}
        self._kept: list[object] = []  # so that ids stay their own

    def root(self, owner: object, role: str, term: Term) -> Term:
        """What a statement, port or leaf takes instead of a term."""
        self._kept.append(owner)
        return self._mutated((id(owner), role), self.term(term))

    def at(self, place: Place, term: Term) -> Term:
        """As `root`, by the place."""
        return self._mutated(place, self.term(term))

    def term(self, term: Term) -> Term:
        """The term with the mutants inside it."""
        if id(term) not in self._done:
            args = tuple(
                self._mutated((id(term), number), self.term(operand))
                for number, operand in enumerate(term.args)
            )
            changed = any(new is not old for new, old in zip(args, term.args, strict=True))
            self._done[id(term)] = (
                self._factory._make(term.op, term.width, args, term.attr) if changed else term
            )
        return self._done[id(term)]

    def _mutated(self, place: Place, operand: Term) -> Term:
        f, width = self._factory, operand.width
        for number, planned in self._mutants.get(place, ()):
            active = f.compare("eq", self._select, f.const(number, SELECT_BITS))
            mode = planned.mutant.mode
            if planned.control is not None:
                control = f.ref(*planned.control, 1)
                active = f.op("and", active, control if mode == "cnot1" else f.op("not", control))
            above = width - planned.bit - 1
            mask = f.cat((f.const(0, planned.bit), active, f.const(0, above)))
            if mode == "const0":
                operand = f.op("and", operand, f.op("not", mask))
            elif mode == "const1":
                operand = f.op("or", operand, mask)
            else:
                operand = f.op("xor", operand, mask)
        return operand

    def statements(self, statements: Sequence[Statement]) -> list[Statement]:
        """Statements with the mutants in their terms."""
        return [self._statement(s) for s in statements]

    def _statement(self, statement: Statement) -> Statement:
        match statement:
            case Assign(net, start, value):
                return Assign(net, start, self.root(statement, "value", value))
            case Deposit(net, at, value):
                new_at = self.root(statement, "at", at)
                return Deposit(net, new_at, self.root(statement, "value", value))
            case Branch(test, cases):
                test = self.root(statement, "test", test)
                bodies = tuple((p, tuple(self.statements(body))) for p, body in cases)
                return Branch(test, bodies)


def build_in(netlist: Netlist, mutants: Sequence[Planned], top: int) -> int:
    """Put mutants, numbered from 1, into a netlist; returns the net that selects one.

    `top`: elements of the netlist's paths that lie above the top.
    """
    netlist.nets.append(Net(len(netlist.nets), "mutant", SELECT_BITS, 0, "input"))
    select = len(netlist.nets) - 1
    chosen = netlist.factory.ref(select, 0, SELECT_BITS)
    by_module: dict[tuple[str, ...], list[tuple[int, Planned]]] = {}
    for number, planned in enumerate(mutants, 1):
        by_module.setdefault(planned.input.module, []).append((number, planned))
    rewriters = {
        module: Rewriter(netlist.factory, chosen, planned) for module, planned in by_module.items()
    }
    for process in netlist.processes:
        rewriter = rewriters.get(process.path[top:])
        if rewriter is not None:
            process.statements = rewriter.statements(process.statements)
    for memory in netlist.memories:
        rewriter = rewriters.get(tuple(memory.name.split("."))[top:-1])
        if rewriter is None:
            continue
        memory.writes = [
            replace(w, **{f: rewriter.root(w, f, getattr(w, f)) for f in ("address", "data", "en")})
            for w in memory.writes
        ]
        memory.reads = [
            replace(r, **{f: rewriter.root(r, f, getattr(r, f)) for f in ("address", "en")})
            for r in memory.reads
        ]
    for leaf in netlist.leaves:
        rewriter = rewriters.get(leaf.path[top:-1])
        if rewriter is not None:
            leaf.inputs = {p: rewriter.root(leaf, p, t) for p, t in leaf.inputs.items()}
    return select
