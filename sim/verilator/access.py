"""C++ accessors of a Verilated machine's values: what the clock loop in C asks for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Signal, Value, ValueLike

from sim.private import ast

__all__ = ["Constant", "Part", "Variable", "VerilatedAccessors", "container_bytes"]


def container_bytes(width: int) -> int:
    """Bytes that Verilator takes for a value: 1, 2, 4, 8, then words of 32 bits."""
    for size in (1, 2, 4, 8):
        if width <= 8 * size:
            return size
    return 4 * -(-width // 32)


@dataclass(frozen=True)
class Variable:
    """A variable of the model: `pointer` is C++ for its address."""

    pointer: str
    width: int

    def bits(self, start: int, width: int) -> str:
        """C++ for at most 64 of its bits, as u64."""
        mask = f" & {(1 << width) - 1:#x}ull" if start + width < self.width else ""
        if self.width <= 64:
            size = 8 * container_bytes(self.width)
            return f"((u64)*(const u{size}u *)({self.pointer}) >> {start}{mask})"
        return f"(words_at((const u32u *)({self.pointer}), {start}, {width}))"


@dataclass(frozen=True)
class Constant:
    """Bits that never change."""

    content: int

    def bits(self, start: int, width: int) -> str:
        """As of a variable."""
        return f"{self.content >> start & (1 << width) - 1:#x}ull"


#: Bits of a variable or constant: (which, first bit, width).
Part = tuple[Variable | Constant, int, int]


class VerilatedAccessors:
    """The accessors of `sim.compiled.host.Accessors`, on a Verilated model.

    Args:
        find: signal -> what it consists of, from the low end on; KeyError if the host cannot see
            it.
        definitions: values by the id of a signal that stands for them outside of the Verilog.
    """

    def __init__(
        self, find: Callable[[Signal], list[Part]], definitions: Mapping[int, Value]
    ) -> None:
        self._find = find
        self._definitions = definitions
        self.text: list[str] = []

    def value(self, name: str, value: ValueLike) -> None:
        result = self._scalar(Value.cast(value))
        self.text.append(f"static u64 {name}(u8 *M) {{ return {result}; }}")

    def values(
        self, name: str, cases: list[list[ValueLike]], lanes: list[ValueLike | None] | None = None
    ) -> None:
        lines = []
        for number, case in enumerate(cases):
            lines.append(f"case {number}:")
            for k, value in enumerate(case):
                lines.append(f"  e[{k}] = {self._scalar(Value.cast(value))};")
            wide = lanes[number] if lanes else None
            if wide is not None:
                lines += self._store(Value.cast(wide), "lanes")
            elif lanes:
                lines.append("  for (int i = 0; i < LANE_WORDS; i++) lanes[i] = ALL_LANES(i);")
            lines.append("  return;")
        more = ", u64u *lanes" if lanes else ""
        self._switch(f"void {name}(u8 *M, int port, u64u *e{more})", lines)

    def wide(self, name: str, cases: list[ValueLike]) -> None:
        lines = []
        for number, value in enumerate(cases):
            lines += [f"case {number}:", *self._store(Value.cast(value), "to"), "  return;"]
        self._switch(f"void {name}(u8 *M, int port, u64u *to)", lines)

    def _switch(self, head: str, lines: list[str]) -> None:
        self.text += [f"static {head} {{", "  switch (port) {", *lines, "  }", "}"]

    def drive(self, name: str, value: ValueLike) -> None:
        signal = self._variable(value)
        place = f"*(u{8 * container_bytes(signal.width)}u *)({signal.pointer})"
        self.text.append(
            f"static void {name}(u8 *M, u32 x) "
            f"{{ if ({place} != x) {{ {place} = x; SETTLED = 0; }} }}"
        )

    def present(self, name: str, value: ValueLike) -> None:
        signal = self._variable(value)
        assert signal.width == 513
        self.text.append(
            f"static void {name}(u8 *M, const u64 *data, u32 error) "
            f"{{ u32u *to = (u32u *)({signal.pointer}); memcpy(to, data, 64); to[16] = error; "
            "SETTLED = 0; }"
        )

    def _variable(self, value: ValueLike) -> Variable:
        """The variable of an input."""
        ((variable, start, _),) = self._parts(Value.cast(value))
        assert isinstance(variable, Variable), value
        assert start == 0, value
        return variable

    def _store(self, value: Value, target: str) -> list[str]:
        lines = [f"  memset({target}, 0, {8 * -(-len(value) // 64)});"]
        at = 0
        for signal, start, width in self._parts(value):
            for done in range(0, width, 64):
                count = min(64, width - done)
                word, shift = divmod(at + done, 64)
                bits = signal.bits(start + done, count)
                lines.append(f"  {target}[{word}] |= {bits} << {shift};")
                if shift + count > 64:
                    lines.append(f"  {target}[{word + 1}] |= {bits} >> {64 - shift};")
            at += width
        return lines

    def _parts(self, value: Value) -> Iterator[Part]:
        """What a value that is only wiring consists of, from the low end on."""
        kind: Any = value
        if isinstance(value, Signal):
            yield from self._find(value)
        elif isinstance(value, ast.Slice):
            at = 0
            for signal, start, width in self._parts(kind.value):
                low, high = max(at, kind.start), min(at + width, kind.stop)
                if low < high:
                    yield signal, start + low - at, high - low
                at += width
        elif isinstance(value, ast.Concat):
            for part in kind.parts:
                yield from self._parts(part)
        elif isinstance(value, ast.Operator) and kind.operator in ("u", "s"):
            yield from self._parts(kind.operands[0])
        else:
            raise NotImplementedError(f"the host reads {value!r}, which is not only wiring")

    def _scalar(self, value: Value) -> str:
        """C++ for an unsigned value of at most 64 bits."""
        value = self._definitions.get(id(value), value)
        kind: Any = value
        assert len(value) <= 64, value
        if isinstance(value, ast.Const):
            return f"{kind.value & (1 << len(value)) - 1:#x}ull"
        if isinstance(value, ast.Operator) and kind.operator not in ("u", "s"):
            return self._operator(kind)
        if isinstance(value, ast.Concat):
            parts, at = [], 0
            for part in kind.parts:
                parts.append(f"({self._scalar(part)} << {at})" if at else self._scalar(part))
                at += len(part)
            return f"({' | '.join(parts)})" if parts else "0"
        if isinstance(value, ast.Slice) and not _is_wiring(kind.value):
            mask = (1 << len(value)) - 1
            return f"({self._scalar(kind.value)} >> {kind.start} & {mask:#x}ull)"
        parts, at = [], 0
        for signal, start, width in self._parts(value):
            bits = signal.bits(start, width)
            parts.append(f"{bits} << {at}" if at else bits)
            at += width
        return f"({' | '.join(parts)})"

    def _operator(self, value: Any) -> str:
        operands = [self._scalar(operand) for operand in value.operands]
        mask = f"{(1 << len(value)) - 1:#x}ull"
        if any(operand.shape().signed for operand in value.operands):
            raise NotImplementedError(f"the host reads {value!r}, which is signed")
        match value.operator, operands:
            case "b", [a]:
                return f"(u64)({a} != 0)"
            case "~", [a]:
                return f"(~{a} & {mask})"
            case "&" | "|" | "^" | "+" | "*" | "-", [a, b]:
                return f"(({a} {value.operator} {b}) & {mask})"
            case "==" | "!=" | "<" | "<=" | ">" | ">=", [a, b]:
                return f"(u64)({a} {value.operator} {b})"
            case operator, _:
                raise NotImplementedError(f"the host reads an expression with {operator!r}")


def _is_wiring(value: Any) -> bool:
    if isinstance(value, ast.Slice):
        return _is_wiring(value.value)
    if isinstance(value, ast.Concat):
        return all(_is_wiring(part) for part in value.parts)
    return isinstance(value, Signal)
