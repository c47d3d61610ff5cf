"""Makes terms: equal ones are one object, so that sharing in the design stays sharing in the
generated code; wiring (slices, concatenations) dissolves, and arithmetic whose upper bits nobody
uses is narrowed."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from sim.compiled.terms import Term, cuts_of

__all__ = ["TermFactory"]

_BITWISE = frozenset({"and", "or", "xor"})
_NARROWS = frozenset({"add", "sub", "mul", "neg"})


class TermFactory:
    """Makes terms and keeps them unique."""

    def __init__(self) -> None:
        self._table: dict[tuple[object, ...], Term] = {}
        self.zero = self.const(0, 1)
        self.one = self.const(1, 1)

    def _make(self, op: str, width: int, args: Iterable[Term] = (), attr: Any = None) -> Term:
        args = tuple(args)
        key = (op, width, attr, *map(id, args))
        term = self._table.get(key)
        if term is None:
            term = self._table[key] = Term(op, width, args, attr)
        return term

    def const(self, value: int, width: int) -> Term:
        """A constant; `value` is taken modulo 2**width."""
        return self._make("const", width, (), value & ((1 << width) - 1))

    def ref(self, net: int, start: int, width: int) -> Term:
        """Bits of a net."""
        return self._make("ref", width, (), (net, start))

    def cat(self, parts: Iterable[Term]) -> Term:
        """Concatenation, low end first; neighbours that belong together are joined."""
        flat: list[Term] = []
        for part in parts:
            for piece in part.args if part.op == "cat" else (part,):
                if not piece.width:
                    continue
                last = flat[-1] if flat else None
                if last is not None and last.op == piece.op:
                    if piece.op == "const":
                        value = last.attr | piece.attr << last.width
                        flat[-1] = self.const(value, last.width + piece.width)
                        continue
                    if piece.op == "ref" and piece.attr == (
                        last.attr[0],
                        last.attr[1] + last.width,
                    ):
                        flat[-1] = self.ref(*last.attr, last.width + piece.width)
                        continue
                    if (
                        piece.op == "slice"
                        and piece.args == last.args
                        and piece.attr == last.attr + last.width
                    ):
                        flat[-1] = self.slice(last.args[0], last.attr, last.width + piece.width)
                        continue
                flat.append(piece)
        if not flat:
            return self.const(0, 0)
        if len(flat) == 1:
            return flat[0]
        return self._make("cat", sum(p.width for p in flat), flat)

    def slice(self, term: Term, start: int, width: int) -> Term:
        """`width` bits from bit `start` on; they must exist."""
        assert 0 <= start <= start + width <= term.width, (term, start, width)
        if width == term.width:
            return term
        if not width:
            return self.const(0, 0)
        op, stop = term.op, start + width
        if op == "const":
            return self.const(term.attr >> start, width)
        if op == "ref":
            return self.ref(term.attr[0], term.attr[1] + start, width)
        if op == "slice":
            return self.slice(term.args[0], term.attr + start, width)
        if op == "cat":
            return self._slice_cat(term, start, stop)
        if op in _BITWISE or op == "not":
            if not self._worth_slicing(term, width):
                return self._make("slice", width, (term,), start)
            return self.op(op, *(self.slice(a, start, width) for a in term.args))
        if op == "mux":
            if not self._worth_slicing(term, width):
                return self._make("slice", width, (term,), start)
            chosen = (self.slice(a, start, width) for a in term.args[1:])
            return self.mux(term.args[0], *chosen)
        if op == "sext":
            inner = term.args[0]
            if stop <= inner.width:
                return self.slice(inner, start, width)
            if start == 0:
                return self.sext(inner, width)
        if op in _NARROWS and stop < term.width and _kind(stop) < _kind(term.width):
            return self.slice(
                self.op(op, *(self.slice(a, 0, stop) for a in term.args)), start, width
            )
        if op == "shl" and stop < term.width and _kind(stop) < _kind(term.width):
            inner = self.shift("shl", self.slice(term.args[0], 0, stop), term.args[1])
            return self.slice(inner, start, width)
        return self._make("slice", width, (term,), start)

    @staticmethod
    def _worth_slicing(term: Term, width: int) -> bool:
        """Whether the operands had better be sliced than the result: it then fits a smaller C type,
        or wiring goes."""
        return _kind(width) < _kind(term.width) or any(a.op in ("cat", "const") for a in term.args)

    def _slice_cat(self, term: Term, start: int, stop: int) -> Term:
        parts: list[Term] = []
        at = 0
        for part in term.args:
            low, high = max(start - at, 0), min(stop - at, part.width)
            if low < high:
                parts.append(self.slice(part, low, high - low))
            at += part.width
            if at >= stop:
                break
        return self.cat(parts)

    def zext(self, term: Term, width: int) -> Term:
        """Zeros above, or the low bits."""
        if width <= term.width:
            return self.slice(term, 0, width)
        return self.cat((term, self.const(0, width - term.width)))

    def sext(self, term: Term, width: int) -> Term:
        """The top bit repeated above, or the low bits."""
        if width <= term.width:
            return self.slice(term, 0, width)
        if not term.width:
            return self.const(0, width)
        if term.op == "const":
            sign = term.attr >> (term.width - 1)
            return self.const(term.attr - (sign << term.width), width)
        if term.op == "sext":
            return self.sext(term.args[0], width)
        if (
            term.op == "cat"
            and term.args[-1].op == "const"
            and not term.args[-1].attr >> (term.args[-1].width - 1)
        ):
            return self.zext(term, width)
        return self._make("sext", width, (term,))

    def extend(self, term: Term, signed: bool, width: int) -> Term:
        """Extension by sign or by zeros."""
        return self.sext(term, width) if signed else self.zext(term, width)

    def op(self, op: str, *args: Term) -> Term:
        """Operators whose result is as wide as their operands."""
        width = args[0].width
        assert all(a.width == width for a in args), (op, args)
        if not width:
            return self.const(0, 0)
        if op in _BITWISE:
            return self._bitwise(op, *args)
        if op == "not":
            if args[0].op == "not":
                return args[0].args[0]
            if args[0].op == "const":
                return self.const(~args[0].attr, width)
        elif op == "add":
            if args[0].op == args[1].op == "const":
                return self.const(args[0].attr + args[1].attr, width)
            for x, y in (args, args[::-1]):
                if x.op == "const" and not x.attr:
                    return y
        elif op == "sub":
            if args[1].op == "const" and not args[1].attr:
                return args[0]
            if args[0].op == args[1].op == "const":
                return self.const(args[0].attr - args[1].attr, width)
        return self._make(op, width, args)

    def _bitwise(self, op: str, a: Term, b: Term) -> Term:
        if a.op == "const":
            a, b = b, a
        ones = (1 << a.width) - 1
        if b.op == "const":
            if a.op == "const":
                value = {"and": a.attr & b.attr, "or": a.attr | b.attr, "xor": a.attr ^ b.attr}[op]
                return self.const(value, a.width)
            if b.attr == 0:
                return b if op == "and" else a
            if b.attr == ones and op != "xor":
                return a if op == "and" else b
        if a is b:
            return self.const(0, a.width) if op == "xor" else a
        return self._make(op, a.width, (a, b))

    def compare(self, op: str, a: Term, b: Term) -> Term:
        """eq ne ult ule slt sle."""
        assert a.width == b.width
        if not a.width:
            return self.const(int(op in ("eq", "ule", "sle")), 1)
        if a.width == 1 and b.op == "const" and op in ("eq", "ne"):
            return a if (op == "eq") == bool(b.attr) else self.op("not", a)
        return self._make(op, 1, (a, b))

    def reduce(self, op: str, a: Term) -> Term:
        """rany rall rxor."""
        if not a.width:
            return self.const(int(op == "rall"), 1)
        if a.width == 1:
            return a
        if a.op == "const":
            ones = a.attr.bit_count()
            return self.const({"rany": ones > 0, "rall": ones == a.width, "rxor": ones & 1}[op], 1)
        return self._make(op, 1, (a,))

    def shift(self, op: str, a: Term, amount: Term) -> Term:
        """shl lshr ashr; bits that leave are lost."""
        if amount.op == "const" or not amount.width:
            by = min(amount.attr if amount.width else 0, a.width)
            if op == "shl":
                return self.cat((self.const(0, by), self.slice(a, 0, a.width - by)))
            high = self.slice(a, by, a.width - by)
            if op == "lshr":
                return self.zext(high, a.width)
            return self.sext(high if high.width else self.slice(a, a.width - 1, 1), a.width)
        return self._make(op, a.width, (a, amount))

    def mux(self, condition: Term, one: Term, zero: Term) -> Term:
        """`one` if the condition is 1. Bits on which both agree are not chosen between."""
        assert condition.width == 1
        assert one.width == zero.width
        if one is zero or not one.width:
            return one
        if condition.op == "const":
            return one if condition.attr else zero
        if one.width == 1:
            for value, op, first in ((one, "or", condition), (zero, "and", condition)):
                if value.op == "const":
                    other = zero if value is one else one
                    if value.attr == (value is one):
                        return self.op(op, first, other)
                    inverse = self.op("not", condition)
                    return self.op("and" if value is one else "or", inverse, other)
        if one.width <= 64 and (one.op == "cat" or zero.op == "cat"):
            runs = self._agreement(one, zero)
            if len(runs) > 1:
                return self.cat(
                    self.mux(condition, self.slice(one, lo, hi - lo), self.slice(zero, lo, hi - lo))
                    for lo, hi in runs
                )
        if zero.op == "mux" and zero.args[1] is one:
            return self.mux(self.op("or", condition, zero.args[0]), one, zero.args[2])
        return self._make("mux", one.width, (condition, one, zero))

    def _agreement(self, a: Term, b: Term) -> list[tuple[int, int]]:
        """The bits in runs that are equal in both, and runs that are not."""
        cuts = sorted({*cuts_of(a), *cuts_of(b)})
        runs: list[tuple[int, int]] = []
        before = None
        for low, high in pairwise(cuts):
            same = self.slice(a, low, high - low) is self.slice(b, low, high - low)
            if runs and same == before:
                runs[-1] = runs[-1][0], high
            else:
                runs.append((low, high))
            before = same
        return runs

    def match(self, test: Term, patterns: tuple[str, ...]) -> Term:
        """Whether `test` fits one of the patterns."""
        if not patterns:
            return self.zero
        if not test.width:
            return self.one
        if len(patterns) == 1:
            (pattern,) = patterns
            tested = [i for i, c in enumerate(reversed(pattern)) if c != "-"]
            if not tested:
                return self.one
            low, high = tested[0], tested[-1] + 1
            if len(tested) == high - low:
                value = int(pattern[len(pattern) - high : len(pattern) - low], 2)
                return self.compare(
                    "eq", self.slice(test, low, high - low), self.const(value, high - low)
                )
        return self._make("match", 1, (test,), patterns)

    def leading(self, a: Term) -> Term:
        """Leading zeros of a value of at most 32 bits that is not 0; of 0, any number. 5 bits."""
        assert 1 <= a.width <= 32
        return self._make("leading", 5, (a,))


def _kind(width: int) -> int:
    """Size class of a width: 32 bits, 64 bits, words."""
    return (width > 32) + (width > 64)
