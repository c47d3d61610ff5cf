"""Bit-vector terms of Bitwuzla, and Amaranth's operators on them."""

import importlib
from typing import Any


class FormalToolsMissing(RuntimeError):
    """The solver is not installed."""


class UnsupportedDesign(RuntimeError):
    """A construct that the translation does not know."""


def solver_module() -> Any:
    """The package `bitwuzla`; FormalToolsMissing says how to get it."""
    try:
        return importlib.import_module("bitwuzla")
    except ImportError as error:
        raise FormalToolsMissing(
            "the package bitwuzla is not installed; install the extra: pip install "
            "'plena-sim[formal]', or pip install 'bitwuzla>=0.10,<1'"
        ) from error


_SAME_WIDTH = {
    "~": "BV_NOT",
    "+": "BV_ADD",
    "*": "BV_MUL",
    "&": "BV_AND",
    "|": "BV_OR",
    "^": "BV_XOR",
}
_SHIFTS = {"<<": "BV_SHL", "u>>": "BV_SHR", "s>>": "BV_ASHR"}
_COMPARE = {
    "==": "EQUAL",
    "!=": "DISTINCT",
    "u<": "BV_ULT",
    "u>": "BV_UGT",
    "u<=": "BV_ULE",
    "u>=": "BV_UGE",
    "s<": "BV_SLT",
    "s>": "BV_SGT",
    "s<=": "BV_SLE",
    "s>=": "BV_SGE",
}
_REDUCE = {"b": "BV_REDOR", "r|": "BV_REDOR", "r&": "BV_REDAND", "r^": "BV_REDXOR"}


class Builder:
    """Makes terms; everything is a vector of at least one bit unless it is called Boolean."""

    def __init__(self) -> None:
        self.bitwuzla = solver_module()
        self.kind = self.bitwuzla.Kind
        self.tm = self.bitwuzla.TermManager()

    def const(self, value: int, width: int) -> Any:
        """A bit vector."""
        return self.tm.mk_bv_value(self.tm.mk_bv_sort(width), value & ((1 << width) - 1))

    def make(self, kind: str, *args: Any, indices: tuple[int, ...] = ()) -> Any:
        """A term by the name of its kind."""
        return self.tm.mk_term(getattr(self.kind, kind), list(args), list(indices))

    def true(self, bit: Any) -> Any:
        """Whether a vector of one bit is 1, as a Boolean."""
        return self.make("EQUAL", bit, self.const(1, 1))

    def bit(self, boolean: Any) -> Any:
        """A Boolean as a vector of one bit."""
        return self.make("ITE", boolean, self.const(1, 1), self.const(0, 1))

    def cut(self, term: Any, start: int, width: int) -> Any:
        """`width` bits of `term` from bit `start`."""
        if start == 0 and width == term.sort().bv_size():
            return term
        return self.make("BV_EXTRACT", term, indices=(start + width - 1, start))

    def join(self, parts: list[Any]) -> Any:
        """Parts, the lowest first, as one vector."""
        return parts[0] if len(parts) == 1 else self.make("BV_CONCAT", *reversed(parts))

    def operator(self, name: str, args: list[Any]) -> Any:
        """An operator of Amaranth's netlist."""
        if name == "-":
            return self.make("BV_NEG" if len(args) == 1 else "BV_SUB", *args)
        if name in _SHIFTS:
            return self._shift(_SHIFTS[name], *args)
        if name in _SAME_WIDTH:
            return self.make(_SAME_WIDTH[name], *args)
        if name in _COMPARE:
            return self.bit(self.make(_COMPARE[name], *args))
        if name in _REDUCE:
            single = args[0].sort().bv_size() == 1
            return args[0] if single else self.make(_REDUCE[name], args[0])
        if name == "m":
            return self.make("ITE", self.true(args[0]), args[1], args[2])
        raise UnsupportedDesign(f"operator {name!r}")

    def _shift(self, kind: str, left: Any, amount: Any) -> Any:
        width, bits = left.sort().bv_size(), amount.sort().bv_size()
        both = max(width, bits)
        extend = "BV_SIGN_EXTEND" if kind == "BV_ASHR" else "BV_ZERO_EXTEND"
        wide = self.make(extend, left, indices=(both - width,))
        shifted = self.make(kind, wide, self.make("BV_ZERO_EXTEND", amount, indices=(both - bits,)))
        return self.cut(shifted, 0, width)
