"""The table of the top's ports: directions, widths, and what is in a packed one."""

import enum
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

from amaranth.hdl import Shape, Value, ValueCastable
from amaranth.lib import data, wiring

__all__ = ["Field", "Port", "PortTable", "port_table"]


@dataclass(frozen=True)
class Field:
    """Bits [low + width - 1 : low] of a port; `enumeration` names the meaning of its codes."""

    name: str
    low: int
    width: int
    enumeration: str

    @property
    def bits(self) -> str:
        """As in Verilog: `[5:0]`, `[7]`."""
        high = self.low + self.width - 1
        return f"[{high}:{self.low}]" if self.width > 1 else f"[{self.low}]"


@dataclass(frozen=True)
class Port:
    """A port of the top module; `fields` is empty for a plain number."""

    name: str
    direction: str
    width: int
    fields: tuple[Field, ...] = ()

    @property
    def text(self) -> str:
        """The fields in one line: `pc [21:1]; stage [25:22] Stage`."""
        parts = (
            [f.name, f.bits if f.width < self.width else "", f.enumeration] for f in self.fields
        )
        return "; ".join(" ".join(filter(None, part)) for part in parts)


@dataclass(frozen=True)
class PortTable:
    """All ports, and the codes of the enumerations in them: name -> code -> meaning."""

    ports: tuple[Port, ...]
    enumerations: dict[str, dict[int, str]]

    def lines(self) -> list[str]:
        """Aligned text, for a comment or a terminal."""
        names = max(len(port.name) for port in self.ports)
        lines = [
            f"{p.name:{names}}  {p.direction:6}  {p.width:4}  {p.text}".rstrip() for p in self.ports
        ]
        for name, codes in self.enumerations.items():
            text = ", ".join(f"{code} {meaning}" for code, meaning in codes.items())
            head = f"{name}: "
            lines += textwrap.wrap(head + text, 92, subsequent_indent=" " * len(head))
        return lines

    def markdown(self) -> str:
        """A table of the ports, then one of the codes of each enumeration."""
        rows = [f"| `{p.name}` | {p.direction} | {p.width} | {p.text} |" for p in self.ports]
        lines = ["| port | direction | bits | contents |", "|---|---|---:|---|", *rows]
        for name, codes in self.enumerations.items():
            lines += ["", f"| {name} | |", "|---:|---|"]
            lines += [f"| {code} | {meaning} |" for code, meaning in codes.items()]
        return "\n".join((*lines, ""))

    def json(self) -> str:
        """Objects with the attributes of `Port`, and the enumerations."""
        return json.dumps(asdict(self), indent=2) + "\n"


def port_table(top: Any) -> PortTable:
    """Clock, reset, and the ports of the component `top`, named as in the Verilog."""
    ports = [Port("clk", "input", 1), Port("rst", "input", 1)]
    enumerations: dict[str, dict[int, str]] = {}
    for path, member, value in top.signature.flatten(top):
        if isinstance(value, Value | ValueCastable):
            direction = "input" if member.flow is wiring.In else "output"
            fields = tuple(_fields(member.shape, "", 0, enumerations))
            name = "__".join(map(str, path))
            ports.append(Port(name, direction, len(Value.cast(value)), fields))
    return PortTable(tuple(ports), enumerations)


def _fields(
    shape: Any, name: str, low: int, enumerations: dict[str, dict[int, str]]
) -> Iterator[Field]:
    if isinstance(shape, type) and issubclass(shape, data.Struct | data.Union):
        shape = data.Layout.cast(shape)
    if isinstance(shape, data.Layout):
        for key, field in shape:
            inner = f"{name}.{key}" if name else str(key)
            yield from _fields(field.shape, inner, low + field.offset, enumerations)
        return
    kind = ""
    if isinstance(shape, enum.EnumMeta):
        members: list[Any] = list(shape)
        kind = shape.__name__
        enumerations[kind] = {int(member.value): member.name for member in members}
    if name or kind:
        yield Field(name, low, Shape.cast(cast(Any, shape)).width, kind)
