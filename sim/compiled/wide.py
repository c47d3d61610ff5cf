"""C for the design's processes: nets in storage, and values of more than 64 bits as arrays of
words."""

from collections.abc import Callable, Sequence

from sim.compiled.layout import Layout
from sim.compiled.lower import UnsupportedError
from sim.compiled.scalar import ScalarEmitter, ctype, literal, mask_of
from sim.compiled.terms import Term

__all__ = ["StorageEmitter", "Tables", "words"]

_WIDE_BINARY = {"and": "w_and", "or": "w_or", "xor": "w_xor", "add": "w_add", "sub": "w_sub"}
_WIDE_TESTS = {
    "eq": "w_eq({0}, {1}, {n})", "ne": "!w_eq({0}, {1}, {n})",
    "ult": "w_ult({0}, {1}, {n})", "ule": "!w_ult({1}, {0}, {n})",
    "slt": "w_slt({0}, {1}, {n}, {w})", "sle": "!w_slt({1}, {0}, {n}, {w})",
    "rany": "w_any({0}, {n})", "rall": "w_all({0}, {n}, {w})", "rxor": "w_parity({0}, {n})",
}  # fmt: skip


def words(width: int) -> int:
    """Words of 64 bits."""
    return (width + 63) // 64


class Tables:
    """Constants of the generated C, each once."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self._names: dict[tuple[str, tuple[int, ...]], str] = {}

    def table(self, kind: str, values: Sequence[int]) -> str:
        """The name of a constant array."""
        key = kind, tuple(values)
        if key not in self._names:
            name = self._names[key] = f"K{len(self._names)}"
            body = ",".join(f"{v:#x}ull" if kind == "u64" else str(v) for v in values)
            self.text.append(f"static const {kind} {name}[{len(values)}] = {{{body}}};")
        return self._names[key]


class StorageEmitter(ScalarEmitter):
    """Emits values that are read from storage at `M`.

    `local` maps nets to C variables that hold their value (at most 64 bits) ahead of storage.
    """

    def __init__(self, layout: Layout, tables: Tables) -> None:
        super().__init__()
        self.layout = layout
        self.tables = tables
        self.local: dict[int, str] = {}
        self.touch = ""  #: line that every list of statements with an assignment begins with

    # Scalars

    def reference(self, net: int, start: int, width: int) -> str:
        whole = self.layout.nets[net].width
        if net in self.local:
            return self.extract(self.local[net], whole, start, width)
        slot = self.layout.slots[net]
        if slot.size <= 8:
            return self.extract(f"L{8 * slot.size}({slot.at})", whole, start, width)
        if start % 8 == 0 and width in (8, 16, 32, 64):
            return f"L{width}({slot.at + start // 8})"
        return self._word_bits(lambda k: f"L64({slot.at + 8 * k})", start, width)

    def _word_bits(self, word: Callable[[int], str], start: int, width: int) -> str:
        index, low = divmod(start, 64)
        if low + width <= 64:
            text = f"({word(index)} >> {low})" if low else word(index)
        else:
            text = f"({word(index)} >> {low} | {word(index + 1)} << {64 - low})"
        if width < 64 and low + width != 64:
            text = f"{text} & {mask_of(width, 64)}"
        return f"(u32)({text})" if width <= 32 else text

    def wide_bits(self, term: Term, start: int, width: int) -> str:
        if term.op == "lshr":
            source, amount = term.args
            at = f"{self._amount(amount)} + {start}" if start else self._amount(amount)
            text = f"w_bits({self.wide(source)}, {words(source.width)}, {at})"
            text = f"{text} & {mask_of(width, 64)}" if width < 64 else text
            return f"(u32)({text})" if width <= 32 else text
        pointer = self.wide(term)
        return self._word_bits(lambda k: f"{pointer}[{k}]", start, width)

    def wide_test(self, term: Term) -> str:
        width = term.args[0].width
        if term.op == "match":
            return self._wide_match(term.args[0], term.attr)
        if term.op not in _WIDE_TESTS:
            raise UnsupportedError(f"the operation {term.op} on {width} bits")
        pointers = [self.wide(a) for a in term.args]
        return _WIDE_TESTS[term.op].format(*pointers, n=words(width), w=width)

    def _wide_match(self, test: Term, patterns: tuple[str, ...]) -> str:
        pointer = self.wide(test)
        fits: list[str] = []
        for pattern in patterns:
            mask = int(pattern.replace("0", "1").replace("-", "0"), 2)
            value = int(pattern.replace("-", "0"), 2)
            parts = []
            for k in range(words(test.width)):
                m, v = mask >> 64 * k & (1 << 64) - 1, value >> 64 * k & (1 << 64) - 1
                if m:
                    parts.append(f"({pointer}[{k}] & {literal(m, 64)}) == {literal(v, 64)}")
            fits.append(f"({' && '.join(parts) or '1'})")
        return " || ".join(fits)

    def _amount(self, term: Term) -> str:
        if term.width > 64:
            raise UnsupportedError(f"a shift by an amount of {term.width} bits")
        return f"(u64){self.scalar(term)}"

    # Wide values

    def wide(self, term: Term) -> str:
        """A pointer to the words of a value; it must not be written through."""
        if term.width <= 64:
            return self.remember_wide(term)
        known = self.recall(term)
        if known is not None:
            return known
        if term.op == "const":
            values = [term.attr >> 64 * k & (1 << 64) - 1 for k in range(words(term.width))]
            return self.tables.table("u64", values)
        if term.op == "ref":
            net, start = term.attr
            whole = self.layout.nets[net].width
            if start % 64 == 0 and (term.width % 64 == 0 or start + term.width == whole):
                return f"P64({self.layout.slots[net].at + start // 8})"
        name = self.name("w")
        self.line(f"u64 {name}[{words(term.width)}];")
        self.wide_into(term, name)
        return self.remember(term, name)

    def remember_wide(self, term: Term) -> str:
        """A value of at most 64 bits as an array of one word."""
        name = self.name("w")
        self.line(f"const u64 {name}[1] = {{{self.as_width(term, 64)}}};")
        return name

    def wide_into(self, term: Term, target: str) -> None:
        """Computes a value into the words at `target`, which no operand shares."""
        op, width, args, n = term.op, term.width, term.args, words(term.width)
        if op == "ref":
            net, start = term.attr
            source = f"P64({self.layout.slots[net].at})"
            self._slice_into(source, self.layout.nets[net].width, start, width, target)
        elif op == "const":
            self.line(
                f"w_copy({target}, {self.wide(term)}, {n});"
                if term.attr
                else f"w_zero({target}, {n});"
            )
        elif op == "cat":
            self._cat_into(term, target)
        elif op == "slice":
            self._slice_op_into(term, target)
        elif op == "mux":
            condition = self.scalar(args[0])
            with self.block(f"if ({condition})"):
                self.wide_into(args[1], target)
            with self.block("else"):
                self.wide_into(args[2], target)
        elif op in _WIDE_BINARY:
            self.line(
                f"{_WIDE_BINARY[op]}({target}, {self.wide(args[0])}, {self.wide(args[1])}, {n});"
            )
            if op in ("add", "sub"):
                self._trim(target, width)
        elif op == "not":
            self.line(f"w_not({target}, {self.wide(args[0])}, {n});")
            self._trim(target, width)
        elif op == "neg":
            self.line(f"w_neg({target}, {self.wide(args[0])}, {n});")
            self._trim(target, width)
        elif op == "mul":
            self.line(f"w_mul({target}, {self.wide(args[0])}, {self.wide(args[1])}, {n});")
            self._trim(target, width)
        elif op in ("shl", "lshr"):
            self.line(f"w_{op}({target}, {n}, {self.wide(args[0])}, {n}, {self._amount(args[1])});")
            self._trim(target, width)
        elif op == "ashr":
            self.line(
                f"w_ashr({target}, {self.wide(args[0])}, {n}, {width}, {self._amount(args[1])});"
            )
            self._trim(target, width)
        elif op == "sext":
            inner = args[0]
            self.line(f"w_sext({target}, {n}, {self.wide(inner)}, {inner.width});")
            self._trim(target, width)
        else:
            raise UnsupportedError(f"the operation {op} on {width} bits")

    def _trim(self, target: str, width: int) -> None:
        if width % 64:
            self.line(f"{target}[{width // 64}] &= {mask_of(width % 64, 64)};")

    def _slice_into(self, source: str, whole: int, start: int, width: int, target: str) -> None:
        if start % 64 == 0:
            self.line(f"w_copy({target}, {source} + {start // 64}, {words(width)});")
        else:
            self.line(f"w_lshr({target}, {words(width)}, {source}, {words(whole)}, {start});")
        if start + width < whole:
            self._trim(target, width)

    def _slice_op_into(self, term: Term, target: str) -> None:
        inner, n = term.args[0], words(term.width)
        if inner.op == "lshr":
            source, amount = inner.args
            at = f"{self._amount(amount)} + {term.attr}"
            self.line(f"w_lshr({target}, {n}, {self.wide(source)}, {words(source.width)}, {at});")
            self._trim(target, term.width)
        else:
            self._slice_into(self.wide(inner), inner.width, term.attr, term.width, target)

    # Concatenation

    def _address(self, part: Term) -> int | None:
        """Byte address of a part that is whole bytes of storage."""
        if part.op != "ref" or part.attr[0] in self.local or part.width % 8 or part.attr[1] % 8:
            return None
        return self.layout.slots[part.attr[0]].at + part.attr[1] // 8

    def _cat_into(self, term: Term, target: str) -> None:
        parts, n = term.args, words(term.width)
        if all(p is parts[0] for p in parts) and 64 % parts[0].width == 0:
            factor = sum(1 << i for i in range(0, 64, parts[0].width))
            word = self.bind("u64", f"{self.as_width(parts[0], 64)} * {literal(factor, 64)}")
            self.line(f"w_fill({target}, {word}, {n});")
            self._trim(target, term.width)
            return
        copies, single = self._plan_cat(parts)
        if sum(count for _, _, count in copies) * 8 < 64 * n:
            self.line(f"w_zero({target}, {n});")
        for at, address, count in copies:
            self.line(f"memcpy((u8 *)({target}) + {at}, M + {address}, {count});")
        accumulated: dict[int, list[str]] = {}
        for at, part in single:
            if part.width > 64:
                pointer = self.wide(part)
                if at % 8 == 0 and part.width % 8 == 0:
                    self.line(
                        f"memcpy((u8 *)({target}) + {at // 8}, {pointer}, {part.width // 8});"
                    )
                else:
                    self.line(f"w_put({target}, {at}, {pointer}, {part.width});")
                continue
            index, low = divmod(at, 64)
            text = self.as_width(part, 64)
            accumulated.setdefault(index, []).append(f"{text} << {low}" if low else text)
            if low + part.width > 64:
                accumulated.setdefault(index + 1, []).append(f"{text} >> {64 - low}")
        for index, texts in sorted(accumulated.items()):
            self.line(f"{target}[{index}] |= {' | '.join(texts)};")

    def _plan_cat(
        self, parts: Sequence[Term]
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, Term]]]:
        """Parts as copies of bytes (target byte, address, count) and others (first bit, part)."""
        copies: list[tuple[int, int, int]] = []
        single: list[tuple[int, Term]] = []
        at = 0
        for part in parts:
            address = self._address(part) if at % 8 == 0 else None
            if address is not None:
                count = part.width // 8
                last = copies[-1] if copies else None
                if last and last[0] + last[2] == at // 8 and last[1] + last[2] == address:
                    copies[-1] = last[0], last[1], last[2] + count
                else:
                    copies.append((at // 8, address, count))
            elif not (part.op == "const" and not part.attr):
                single.append((at, part))
            at += part.width
        return copies, single

    # Assignment of bits

    def store(self, pointer: str, whole: int, start: int, value: Term) -> None:
        """Bits `start` on of the words at `pointer` (a net of more than 64 bits) take the value."""
        width = value.width
        if start == 0 and width == whole:
            self.wide_into(value, pointer)
        elif width > 64:
            source = self.wide(value)
            if start % 8 == 0 and width % 8 == 0:
                self.line(f"memcpy((u8 *)({pointer}) + {start // 8}, {source}, {width // 8});")
            else:
                self.line(f"w_replace({pointer}, {start}, {source}, {width});")
        elif start % 8 == 0 and width in (8, 16, 32, 64):
            self.line(f"*(u{width}u *)((u8 *)({pointer}) + {start // 8}) = {self.scalar(value)};")
        else:
            self.line(f"w_set({pointer}, {start}, {self.as_width(value, 64)}, {width});")

    def deposit(self, pointer: str, whole: int, at: Term, value: Term) -> None:
        """Like `store`, from a bit on that is known only at run time; what does not fit is lost."""
        source = self.wide(value)
        self.line(f"w_deposit({pointer}, {whole}, {self._amount(at)}, {source}, {value.width});")

    def deposit_scalar(self, old: str, whole: int, at: Term, value: Term) -> str:
        """The new value of a net of at most 64 bits after such an assignment."""
        kind = ctype(whole)
        bits = 32 if whole <= 32 else 64
        if at.width > 64:
            raise UnsupportedError(f"an assignment at an offset of {at.width} bits")
        by = self.scalar(at)
        if value.width > whole:
            if value.width > 64:
                low = self.wide_bits(value, 0, whole)
            else:
                low = f"{self.scalar(value)} & {mask_of(whole, value.width)}"
            text, width = self.bind(kind, f"({kind})({low})"), whole
        else:
            text, width = self.as_width(value, whole), value.width
        sure = self.bind("u32", f"{by} < {whole}")
        shift = self.bind("u32", f"(u32)({by} & {bits - 1})")
        mask = literal((1 << width) - 1, whole)
        new = f"({old} & ~({mask} << {shift})) | (({text} << {shift}) & {mask_of(whole)})"
        return f"{sure} ? {new} : {old}"
