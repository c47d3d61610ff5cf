"""Amaranth's values and statements as terms and plain assignments."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.compiled.term_factory import TermFactory
from sim.compiled.terms import Term
from sim.private import ast

__all__ = [
    "Assign",
    "Branch",
    "Deposit",
    "Lowering",
    "Statement",
    "UnsupportedError",
    "driven_nets",
]


class UnsupportedError(NotImplementedError):
    """The design uses something that the compiled engine does not implement; the message says what
    and where."""

    def __init__(self, what: str, source: object = None) -> None:
        where = f" ({source[0]}:{source[1]})" if isinstance(source, tuple) else ""
        super().__init__(f"the compiled engine does not support {what}{where}; use engine pysim")


@dataclass(frozen=True)
class Assign:
    """Bits of a net, from `start` on, take the value."""

    net: int
    start: int
    value: Term


@dataclass(frozen=True)
class Deposit:
    """Bits of a net from bit `at` on take the value, as far as the net has them."""

    net: int
    at: Term
    value: Term


@dataclass(frozen=True)
class Branch:
    """The first case whose patterns match `test` (None: always) is carried out."""

    test: Term
    cases: tuple[tuple[tuple[str, ...] | None, tuple["Statement", ...]], ...]


Statement = Assign | Deposit | Branch


def driven_nets(statements: Iterable[Statement]) -> dict[int, None]:
    """Nets that the statements assign, in order of appearance."""
    nets: dict[int, None] = {}
    for statement in statements:
        if isinstance(statement, Branch):
            for _, body in statement.cases:
                nets |= driven_nets(body)
        else:
            nets[statement.net] = None
    return nets


_COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_REDUCTIONS = {"b": "rany", "r|": "rany", "r&": "rall", "r^": "rxor"}
_BITWISE = {"&": "and", "|": "or", "^": "xor"}


class Lowering:
    """Turns values into terms, with widths and signs as Amaranth's netlist builder has them.

    Args:
        factory: makes the terms.
        signal: the term of a signal.
        net: the net that a signal's driver is stored in.
    """

    def __init__(
        self,
        factory: TermFactory,
        signal: Callable[[Any], Term],
        net: Callable[[Any], int],
    ) -> None:
        self.factory = factory
        self._signal = signal
        self._net = net
        #: id -> (value, term, signed); the value is kept so that its id stays its own.
        self._cache: dict[int, tuple[Any, Term, bool]] = {}

    def term(self, value: Any) -> Term:
        """The bits of a value."""
        return self.rhs(value)[0]

    def rhs(self, value: Any) -> tuple[Term, bool]:
        """The bits of a value, and whether it is signed."""
        known = self._cache.get(id(value))
        if known is not None:
            return known[1], known[2]
        term, signed = self._rhs(value)
        assert term.width == len(value), (value, term.width)
        self._cache[id(value)] = value, term, signed
        return term, signed

    def _rhs(self, value: Any) -> tuple[Term, bool]:
        f = self.factory
        match value:
            case ast.Const():
                return f.const(value.value, len(value)), value.shape().signed
            case ast.Signal():
                return self._signal(value), value.shape().signed
            case ast.Operator():
                operands = [self.rhs(o) for o in value.operands]
                if len(operands) == 1:
                    return self._unary(value.operator, *operands[0])
                return self._binary(value, *operands[0], *operands[1])
            case ast.Slice():
                return f.slice(self.term(value.value), value.start, len(value)), False
            case ast.Part():
                inner, signed = self.rhs(value.value)
                at = self._scaled(self.term(value.offset), value.stride)
                inner = f.extend(inner, signed, max(inner.width, value.width))
                return f.slice(
                    f.shift("ashr" if signed else "lshr", inner, at), 0, value.width
                ), False
            case ast.SwitchValue():
                return self._switch(value)
            case ast.Concat():
                return f.cat(self.term(p) for p in value.parts), False
        raise UnsupportedError(f"the value {value!r}", value.src_loc)

    def _scaled(self, offset: Term, stride: int) -> Term:
        """offset * stride, exact."""
        f = self.factory
        if not offset.width:
            return f.const(0, 1)
        if stride & (stride - 1) == 0:
            return f.cat((f.const(0, stride.bit_length() - 1), offset))
        width = offset.width + stride.bit_length()
        return f.op("mul", f.zext(offset, width), f.const(stride, width))

    def _unary(self, operator: str, a: Term, signed: bool) -> tuple[Term, bool]:
        f = self.factory
        if operator in ("u", "s"):
            return a, operator == "s"
        if operator == "-":
            return f.op("neg", f.extend(a, signed, a.width + 1)), True
        if operator == "~":
            return f.op("not", a), signed
        return f.reduce(_REDUCTIONS[operator], a), False

    def _unify(self, a: Term, sa: bool, b: Term, sb: bool) -> tuple[Term, Term, bool]:
        shape = ast.Shape._unify((ast.Shape(a.width, sa), ast.Shape(b.width, sb)))
        f = self.factory
        return f.extend(a, sa, shape.width), f.extend(b, sb, shape.width), shape.signed

    def _binary(self, value: Any, a: Term, sa: bool, b: Term, sb: bool) -> tuple[Term, bool]:
        f, operator = self.factory, value.operator
        if operator in _BITWISE:
            a, b, signed = self._unify(a, sa, b, sb)
            return f.op(_BITWISE[operator], a, b), signed
        if operator in ("+", "-"):
            a, b, signed = self._unify(a, sa, b, sb)
            width = a.width + 1
            term = f.op(
                "add" if operator == "+" else "sub",
                f.extend(a, signed, width),
                f.extend(b, signed, width),
            )
            return term, signed or operator == "-"
        if operator == "*":
            width = a.width + b.width
            return f.op("mul", f.extend(a, sa, width), f.extend(b, sb, width)), sa or sb
        if operator == "<<":
            return f.shift("shl", f.extend(a, sa, len(value)), b), sa
        if operator == ">>":
            return f.shift("ashr" if sa else "lshr", a, b), sa
        if operator in _COMPARISONS:
            a, b, signed = self._unify(a, sa, b, sb)
            kind = _COMPARISONS[operator]
            if kind in ("eq", "ne"):
                return f.compare(kind, a, b), False
            if kind in ("gt", "ge"):
                a, b, kind = b, a, "lt" if kind == "gt" else "le"
            return f.compare(("s" if signed else "u") + kind, a, b), False
        if operator in ("//", "%"):
            width = len(value)
            a, b, signed = self._unify(a, sa, b, sb)
            wide = max(width, a.width)
            a, b = f.extend(a, signed, wide), f.extend(b, signed, wide)
            name = ("s" if signed else "u") + ("div" if operator == "//" else "mod")
            return f.slice(f.op(name, a, b), 0, width), value.shape().signed
        raise UnsupportedError(f"operator {operator!r}", value.src_loc)

    def _switch(self, value: Any) -> tuple[Term, bool]:
        f, shape = self.factory, value.shape()
        test = self.term(value.test)
        term = f.const(0, shape.width)
        for patterns, element in reversed(value.cases):
            bits, signed = self.rhs(element)
            bits = f.extend(bits, signed, shape.width)
            term = bits if patterns is None else f.mux(f.match(test, patterns), bits, term)
        return term, shape.signed

    # Statements

    def statements(
        self, statements: Iterable[Any], wanted: Callable[[Any], bool] | None = None
    ) -> list[Statement]:
        """Statements as assignments to nets; only those to `wanted` signals, if given."""
        result: list[Statement] = []
        for statement in statements:
            result += self._statement(statement, wanted)
        return result

    def _statement(self, statement: Any, wanted: Callable[[Any], bool] | None) -> list[Statement]:
        if wanted is not None and not any(wanted(s) for s in statement._lhs_signals()):
            return []
        if isinstance(statement, ast.Assign):
            bits, signed = self.rhs(statement.rhs)
            bits = self.factory.extend(bits, signed, len(statement.lhs))
            return self.assign(statement.lhs, 0, bits, wanted)
        if isinstance(statement, ast.Switch):
            test = self.term(statement.test)
            cases = [
                (patterns, self.statements(body, wanted)) for patterns, body, _ in statement.cases
            ]
            return _branch(test, cases)
        raise UnsupportedError(f"a {type(statement).__name__} statement", statement.src_loc)

    def assign(
        self,
        lhs: Any,
        start: int,
        bits: Term,
        wanted: Callable[[Any], bool] | None = None,
    ) -> list[Statement]:
        """Assignment of `bits` to lhs[start : start + len(bits)]; bits beyond the end are
        dropped."""
        f = self.factory
        bits = f.slice(bits, 0, min(bits.width, max(len(lhs) - start, 0)))
        if not bits.width:
            return []
        match lhs:
            case ast.Signal():
                return (
                    [Assign(self._net(lhs), start, bits)] if wanted is None or wanted(lhs) else []
                )
            case ast.Operator() if lhs.operator in ("u", "s"):
                return self.assign(lhs.operands[0], start, bits, wanted)
            case ast.Slice():
                return self.assign(lhs.value, start + lhs.start, bits, wanted)
            case ast.Concat():
                result: list[Statement] = []
                at = 0
                for part in lhs.parts:
                    low, high = max(start, at), min(start + bits.width, at + len(part))
                    if low < high:
                        piece = f.slice(bits, low - start, high - low)
                        result += self.assign(part, low - at, piece, wanted)
                    at += len(part)
                return result
            case ast.Part():
                return self._assign_part(lhs, start, bits, wanted)
            case ast.SwitchValue():
                cases = [(p, self.assign(element, start, bits, wanted)) for p, element in lhs.cases]
                return _branch(self.term(lhs.test), cases)
        raise UnsupportedError(f"an assignment to {lhs!r}", lhs.src_loc)

    def _assign_part(
        self, lhs: Any, start: int, bits: Term, wanted: Callable[[Any], bool] | None
    ) -> list[Statement]:
        offset = self.term(lhs.offset)
        if isinstance(lhs.value, ast.Signal) and start == 0:
            if wanted is not None and not wanted(lhs.value):
                return []
            return [Deposit(self._net(lhs.value), self._scaled(offset, lhs.stride), bits)]
        count = min(-(-len(lhs.value) // lhs.stride), 1 << offset.width)
        cases = [
            (
                (format(i, f"0{offset.width}b") if offset.width else "",),
                self.assign(lhs.value, start + i * lhs.stride, bits, wanted),
            )
            for i in range(count)
        ]
        return _branch(offset, cases)


def _branch(
    test: Term, cases: Sequence[tuple[tuple[str, ...] | None, list[Statement]]]
) -> list[Statement]:
    if not any(body for _, body in cases):
        return []
    return [Branch(test, tuple((patterns, tuple(body)) for patterns, body in cases))]
