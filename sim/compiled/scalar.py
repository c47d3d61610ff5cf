"""C expressions for terms of at most 64 bits. Every value is clean: bits above its width are 0."""

from collections.abc import Iterator
from contextlib import contextmanager

from sim.compiled.lower import UnsupportedError
from sim.compiled.terms import Term, effective_width

__all__ = ["ScalarEmitter", "ctype", "literal", "mask_of"]


def ctype(width: int) -> str:
    """The C type that holds a value of this width."""
    return "u32" if width <= 32 else "u64"


def literal(value: int, width: int) -> str:
    """A C constant of the type for this width."""
    suffix = "u" if width <= 32 else "ull"
    return f"{value}{suffix}" if value < 10 else f"{value:#x}{suffix}"


def mask_of(width: int, kind: int | None = None) -> str:
    """A constant of ones, of the type for `kind` bits."""
    return literal((1 << width) - 1, width if kind is None else kind)


def _bits(width: int) -> int:
    return 32 if width <= 32 else 64


_INFIX = {"and": "&", "or": "|", "xor": "^", "add": "+", "sub": "-", "mul": "*"}
_COMPARE = {"eq": "==", "ne": "!=", "ult": "<", "ule": "<=", "slt": "<", "sle": "<="}


class ScalarEmitter:
    """Writes the lines of one C function; values that were computed in an open block are used
    again."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: list[dict[int, str]] = [{}]
        self._names = 0
        self._indent = 1

    # Lines and blocks

    def line(self, text: str) -> None:
        """Appends a line."""
        self.lines.append("  " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head { ... }`; what is computed inside is not known outside."""
        self.line(head + " {")
        self._known.append({})
        self._indent += 1
        yield
        self._indent -= 1
        self._known.pop()
        self.line("}")

    def name(self, prefix: str = "t") -> str:
        """A new C name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def bind(self, kind: str, expression: str) -> str:
        """A new constant of type `kind`."""
        name = self.name()
        self.line(f"const {kind} {name} = {expression};")
        return name

    def recall(self, term: Term) -> str | None:
        """The name under which a term is known here."""
        for known in reversed(self._known):
            if id(term) in known:
                return known[id(term)]
        return None

    def remember(self, term: Term, name: str) -> str:
        """Makes a term known in the current block."""
        self._known[-1][id(term)] = name
        return name

    def forget(self) -> None:
        """Nothing is known any more: storage has changed."""
        for known in self._known:
            known.clear()

    # Values

    def reference(self, net: int, start: int, width: int) -> str:
        """Bits of a net."""
        raise NotImplementedError  # storage and the locals of a leaf differ

    def wide_bits(self, term: Term, start: int, width: int) -> str:
        """Up to 64 bits of a term of more than 64."""
        raise UnsupportedError(f"a value of {term.width} bits in a leaf")

    def wide_test(self, term: Term) -> str:
        """A comparison or reduction of wide operands."""
        raise UnsupportedError(f"a test of {term.args[0].width} bits in a leaf")

    def scalar(self, term: Term) -> str:
        """A C name or constant with the value."""
        if term.op == "const":
            return literal(term.attr, term.width)
        return self.recall(term) or self.remember(
            term, self.bind(ctype(term.width), self._scalar(term))
        )

    def as_width(self, term: Term, width: int) -> str:
        """The value in the type for `width` bits."""
        text = self.scalar(term)
        return text if ctype(term.width) == ctype(width) else f"({ctype(width)}){text}"

    def extract(self, text: str, whole: int, start: int, width: int) -> str:
        """Bits of a clean value of `whole` bits."""
        if start:
            text = f"({text} >> {start})"
        if start + width < whole:
            text = f"({text} & {mask_of(width, whole)})"
        return text if ctype(whole) == ctype(width) else f"({ctype(width)}){text}"

    def _masked(self, text: str, width: int) -> str:
        return text if width == _bits(width) else f"({text}) & {mask_of(width)}"

    def _scalar(self, term: Term) -> str:
        op, width, args = term.op, term.width, term.args
        if op == "ref":
            return self.reference(term.attr[0], term.attr[1], width)
        if op == "cat":
            return self._cat(term)
        if op == "slice":
            inner = args[0]
            if inner.width > 64:
                return self.wide_bits(inner, term.attr, width)
            return self.extract(self.scalar(inner), inner.width, term.attr, width)
        if args[0].width > 64:
            return self.wide_test(term)
        if op in ("and", "or", "xor"):
            return f"{self.scalar(args[0])} {_INFIX[op]} {self.scalar(args[1])}"
        if op in ("add", "sub", "mul"):
            return self._arithmetic(term)
        if op == "not":
            return f"{self.scalar(args[0])} ^ {mask_of(width)}"
        if op == "neg":
            return self._masked(f"0 - {self.scalar(args[0])}", width)
        if op in _COMPARE:
            return self._compare(term)
        if op == "mux":
            return f"{self.scalar(args[0])} ? {self.scalar(args[1])} : {self.scalar(args[2])}"
        if op in ("shl", "lshr", "ashr"):
            return self._shift(term)
        if op == "sext":
            return self._masked(self._signed(args[0], width, unsigned=True), width)
        if op == "rany":
            return f"{self.scalar(args[0])} != 0"
        if op == "rall":
            return f"{self.scalar(args[0])} == {mask_of(args[0].width)}"
        if op == "rxor":
            return f"(u32)__builtin_parityll({self.scalar(args[0])})"
        if op == "match":
            return self.match(args[0], term.attr)
        if op == "leading":
            return f"p_leading({self.scalar(args[0])} << {32 - args[0].width})"
        if op in ("udiv", "umod"):
            a, b = self.scalar(args[0]), self.scalar(args[1])
            return f"{b} ? {a} {'/' if op == 'udiv' else '%'} {b} : 0"
        if op in ("sdiv", "smod"):
            a, b = (self._signed(x, 64) for x in args)
            return self._masked(f"({ctype(width)})p_{op}({a}, {b})", width)
        raise UnsupportedError(f"the operation {op}")

    def _cat(self, term: Term) -> str:
        width, kind = term.width, ctype(term.width)
        pieces: list[str] = []
        at = 0
        parts = term.args
        index = 0
        while index < len(parts):
            part = parts[index]
            count = 1
            while index + count < len(parts) and parts[index + count] is part:
                count += 1
            total = part.width * count
            if not (part.op == "const" and part.attr == 0):
                text = self.as_width(part, width)
                if count > 2 and part.width == 1:
                    text = f"((0 - {text}) & {mask_of(count, width)})"
                elif count > 1:
                    factor = sum(1 << part.width * i for i in range(count))
                    text = f"({text} * {literal(factor, width)})"
                pieces.append(f"({text} << {at})" if at else text)
            at += total
            index += count
        return " | ".join(pieces) if pieces else f"({kind})0"

    def _arithmetic(self, term: Term) -> str:
        a, b = (self.scalar(x) for x in term.args)
        text = f"{a} {_INFIX[term.op]} {b}"
        used = [effective_width(x) for x in term.args]
        fits = {"add": max(used) + 1, "mul": sum(used), "sub": 65}[term.op] <= term.width
        return text if fits else self._masked(text, term.width)

    def _compare(self, term: Term) -> str:
        a, b = term.args
        width = a.width
        if term.op in ("slt", "sle"):
            up = _bits(width) - width
            kind = f"i{_bits(width)}"
            left, right = (
                (f"({kind})({self.scalar(x)} << {up})" if up else f"({kind}){self.scalar(x)}")
                for x in (a, b)
            )
        elif (
            term.op in ("ult", "ule")
            and width <= 32
            and max(effective_width(a), effective_width(b)) < 32
        ):
            # AVX2 compares signed numbers only.
            left, right = f"(i32){self.scalar(a)}", f"(i32){self.scalar(b)}"
        else:
            left, right = self.scalar(a), self.scalar(b)
        return f"{left} {_COMPARE[term.op]} {right}"

    def _signed(self, term: Term, width: int, *, unsigned: bool = False) -> str:
        """The value with its sign extended to the type for `width` bits."""
        bits = _bits(width)
        up = bits - term.width
        text = self.as_width(term, width)
        if up:
            text = f"((i{bits})({text} << {up}) >> {up})"
        return f"(u{bits}){text}" if unsigned else f"(i{bits}){text}"

    def _shift(self, term: Term) -> str:
        value, amount = term.args
        width, bits = term.width, _bits(term.width)
        if amount.width > 64:
            raise UnsupportedError(f"a shift by an amount of {amount.width} bits")
        by = self.scalar(amount)
        most = (1 << effective_width(amount)) - 1
        if term.op == "ashr":
            if most >= bits:
                by = f"({by} < {bits} ? {by} : {bits - 1})"
            return self._masked(f"(u{bits})({self._signed(value, width)} >> {by})", width)
        text = self.scalar(value)
        left = term.op == "shl"
        shifted = self._masked(f"{text} << {{}}", width) if left else f"{text} >> {{}}"
        if most < bits:
            return shifted.format(by)
        return f"{by} < {bits} ? ({shifted.format(f'({by} & {bits - 1})')}) : 0"

    def match(self, test: Term, patterns: tuple[str, ...]) -> str:
        """Whether a value fits one of the patterns."""
        text = self.scalar(test)
        tests: list[str] = []
        for pattern in patterns:
            mask = int(pattern.replace("0", "1").replace("-", "0"), 2)
            value = literal(int(pattern.replace("-", "0"), 2), test.width)
            whole = mask == (1 << test.width) - 1
            tests.append(
                f"{text} == {value}"
                if whole
                else f"({text} & {literal(mask, test.width)}) == {value}"
            )
        return tests[0] if len(tests) == 1 else " | ".join(f"({t})" for t in tests)
