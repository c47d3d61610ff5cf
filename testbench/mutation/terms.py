"""What is known about the bits of terms without running them: constants, and bits that nothing
uses."""

from collections.abc import Iterable, Iterator

from sim.compiled.lower import Assign, Branch, Deposit, Statement
from sim.compiled.netlist import Netlist
from sim.compiled.terms import Term

#: Terms that are no cell: wires in another order.
WIRES = frozenset({"const", "ref", "cat", "slice", "sext"})
_SAME_BITS = frozenset({"and", "or", "xor", "not", "mux"})
_CARRY_UP = frozenset({"add", "sub", "mul", "neg", "shl"})


def ones(width: int) -> int:
    """`width` ones."""
    return (1 << width) - 1


class Constants:
    """Bits of terms that are constants however the nets are set, as (mask, value)."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, term: Term) -> tuple[int, int]:
        """The mask of the constant bits, and their values."""
        if id(term) not in self._known:
            self._known[id(term)] = self._of(term)
        return self._known[id(term)]

    def _of(self, term: Term) -> tuple[int, int]:
        whole = ones(term.width)
        parts = [self.of(a) for a in term.args]
        match term.op:
            case "const":
                return whole, term.attr
            case "cat":
                mask = value = at = 0
                for part, (m, v) in zip(term.args, parts, strict=True):
                    mask, value, at = mask | m << at, value | v << at, at + part.width
                return mask, value
            case "slice":
                (m, v) = parts[0]
                return m >> term.attr & whole, v >> term.attr & whole
            case "not":
                (m, v) = parts[0]
                return m, ~v & m
            case "and":
                (ma, va), (mb, vb) = parts
                zeros = (ma & ~va) | (mb & ~vb)
                return zeros | (ma & mb), va & vb
            case "or":
                (ma, va), (mb, vb) = parts
                return (ma & mb) | va | vb, va | vb
            case "mux":
                _, (ma, va), (mb, vb) = parts
                same = ma & mb & ~(va ^ vb)
                return same, va & same
        return 0, 0


class Uses:
    """Which bits of each term and each net something depends on.

    Args:
        netlist: the design.
        observed: terms that someone outside looks at.
    """

    def __init__(self, netlist: Netlist, observed: Iterable[Term]) -> None:
        self._netlist = netlist
        self._constants = Constants()
        self.terms: dict[int, int] = {}
        self.nets: dict[int, int] = {}
        self._drivers = drivers(netlist)
        self._waiting: list[int] = []
        for term in observed:
            self._use(term, ones(term.width))
        for memory in netlist.memories:
            for port in memory.writes:
                for term in (port.address, port.data, port.en):
                    self._use(term, ones(term.width))
            for read in memory.reads:
                for term in (read.address, read.en):
                    self._use(term, ones(term.width))
        for leaf in netlist.leaves:
            for term in leaf.inputs.values():
                self._use(term, ones(term.width))
        while self._waiting:
            net = self._waiting.pop()
            for statement in self._drivers.get(net, ()):
                self._statement(statement, net)

    def of_operand(self, term: Term, number: int) -> int:
        """The bits of one operand that something depends on through this term."""
        operand, mask = list(self._operands(term, self.terms.get(id(term), 0)))[number]
        return mask & ones(operand.width) if self.terms.get(id(term), 0) else 0

    def _statement(self, statement: Statement, net: int) -> bool:
        """Uses what decides about the used bits of a net; whether the statement drives it."""
        used = self.nets.get(net, 0)
        match statement:
            case Assign(target, start, value):
                if target == net:
                    self._use(value, used >> start & ones(value.width))
                return target == net
            case Deposit(target, at, value):
                if target == net:
                    self._use(value, ones(value.width))
                    self._use(at, ones(at.width))
                return target == net
            case Branch(test, cases):
                drives = [self._statement(s, net) for _, body in cases for s in body]  # all of them
                if any(drives):
                    for patterns, _ in cases:
                        for pattern in patterns or ():
                            tested = pattern.replace("0", "1").replace("-", "0")
                            self._use(test, int(tested or "0", 2))
                return any(drives)

    def _use(self, term: Term, mask: int) -> None:
        new = mask & ~self.terms.get(id(term), 0)
        if not new:
            return
        self.terms[id(term)] = mask = self.terms.get(id(term), 0) | new
        if term.op == "ref":
            net, start = term.attr
            more = new << start & ~self.nets.get(net, 0)
            if more:
                self.nets[net] = self.nets.get(net, 0) | more
                self._waiting.append(net)
            return
        for operand, part in self._operands(term, mask):
            self._use(operand, part & ones(operand.width))

    def _operands(self, term: Term, mask: int) -> Iterator[tuple[Term, int]]:
        args = term.args
        if term.op == "cat":
            at = 0
            for part in args:
                yield part, mask >> at
                at += part.width
        elif term.op == "slice":
            yield args[0], mask << term.attr
        elif term.op == "sext":
            top = 1 << (args[0].width - 1) if mask >> args[0].width else 0
            yield args[0], mask | top
        elif term.op == "mux":
            yield args[0], 1
            yield args[1], mask
            yield args[2], mask
        elif term.op in ("and", "or"):
            for here, other in (args, args[::-1]):
                known, value = self._constants.of(other)
                decided = known & (value if term.op == "or" else ~value)
                yield here, mask & ~decided
        elif term.op in _SAME_BITS:
            for a in args:
                yield a, mask
        elif term.op in _CARRY_UP:
            yield args[0], ones(mask.bit_length())
            for a in args[1:]:
                yield a, ones(a.width if term.op == "shl" else mask.bit_length())
        elif term.op == "match":
            tested = 0
            for pattern in term.attr:
                tested |= int(pattern.replace("0", "1").replace("-", "0"), 2)
            yield args[0], tested
        else:
            for a in args:
                yield a, ones(a.width)


def drivers(netlist: Netlist) -> dict[int, list[Statement]]:
    """The statements that drive each net."""
    found: dict[int, list[Statement]] = {}
    for process in netlist.processes:
        for net in process.nets:
            found.setdefault(net, []).extend(process.statements)
    return found
