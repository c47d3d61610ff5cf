"""Bit-vector terms: what the design computes, with every width and every sign made explicit.

A term is an unsigned bit pattern of a fixed width. `sim.compiled.term_factory` makes them.
"""

from typing import Any

__all__ = ["WIRING", "Term", "cuts_of", "effective_width"]

#: Terms that compute nothing.
WIRING = frozenset({"const", "ref", "cat"})


class Term:
    """One node: `op`, `width` in bits, operand terms, and what else the op needs in `attr`.

    ========================= =============================================================
    const                     attr: the value
    ref                       attr: (net index, first bit)
    cat                       operands from the low end on
    slice                     attr: first bit
    not neg rany rall rxor    one operand
    add sub mul and or xor    two operands as wide as the result
    udiv umod sdiv smod       two operands as wide as the result; by zero gives 0; rounds down
    shl lshr ashr             an operand as wide as the result, and an amount
    eq ne ult ule slt sle     two operands of one width
    mux                       condition of one bit, value if 1, value if 0
    sext                      a narrower operand, its top bit repeated
    match                     attr: patterns of 0, 1 and -; whether one of them fits
    leading                   zeros above the highest 1, in 5 bits; any number if there is no 1
    ========================= =============================================================
    """

    __slots__ = ("args", "attr", "op", "width")

    def __init__(self, op: str, width: int, args: tuple["Term", ...], attr: Any) -> None:
        self.op, self.width, self.args, self.attr = op, width, args, attr

    def __repr__(self) -> str:
        inner = ", ".join(
            [*map(repr, self.args), *([repr(self.attr)] if self.attr is not None else [])]
        )
        return f"{self.op}{self.width}({inner})"


def effective_width(term: Term) -> int:
    """Bits up to the highest one that can be 1, as far as a glance tells."""
    if term.op == "const":
        return term.attr.bit_length()
    if term.op == "cat":
        top = term.width
        for part in reversed(term.args):
            used = effective_width(part)
            if used:
                return top - part.width + used
            top -= part.width
        return 0
    if term.op == "mux":
        return max(effective_width(term.args[1]), effective_width(term.args[2]))
    if term.op == "and":
        return min(effective_width(a) for a in term.args)
    if term.op in ("or", "xor"):
        return max(effective_width(a) for a in term.args)
    if term.op == "add":
        return min(term.width, max(effective_width(a) for a in term.args) + 1)
    if term.op == "mul":
        return min(term.width, sum(effective_width(a) for a in term.args))
    if term.op == "lshr":
        return effective_width(term.args[0])
    return term.width


def cuts_of(term: Term) -> list[int]:
    """Where the parts of a term meet, both ends included."""
    cuts = [0]
    for part in term.args if term.op == "cat" else (term,):
        cuts.append(cuts[-1] + part.width)
    return cuts
