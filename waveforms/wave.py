"""What a waveform file shows: waves in named groups, as data."""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Value

from isa.opcodes import OPCODES
from isa.stages import Stage

#: What a string wave shows while its valid bit is low, or when there is nothing to name.
NOTHING = "-"

Names = Callable[[int], str]


class Kind(enum.Enum):
    """How a wave is written, and how viewers show it."""

    BIT = "bit"  #: one wire
    DECIMAL = "decimal"  #: a count, pc or index: a vector, shown as an unsigned number
    HEX = "hex"  #: a word, row or address: a vector, shown in hexadecimal
    ENUM = "enum"  #: a string variable NAME with member names, beside it a vector NAME_index
    TEXT = "text"  #: a string variable only


@dataclass(frozen=True, eq=False)
class Computed:
    """A source that is not a signal: the host's own book-keeping, read once per cycle.

    Args:
        read: its value for the cycle that is being sampled.
        width: in bits.
    """

    read: Callable[[], int]
    width: int


@dataclass(frozen=True, eq=False)
class Banked:
    """One of several equally wide signals: `banks[select]`."""

    select: Any
    banks: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Mapped:
    """What a table of the host says about a signal, for example the source line of a pc."""

    source: Any
    table: Callable[[int], int]
    width: int


#: A signal, a fixed part of one, a memory row, a constant (or anything that casts to one of these),
#: `Computed`, `Banked` or `Mapped`.
Source = Any


@dataclass(frozen=True)
class Wave:
    """One declared wave.

    Args:
        name: lower case, digits and underscores, unique in its group; an array's element i is
            NAME_i.
        kind: see `Kind`.
        source: see `Source`. No other expressions: every engine can look a signal up, not every
            one can evaluate.
        names: ENUM and TEXT: what an integer is called.
        valid: ENUM and TEXT: the string is `-` while this bit is low; the index stays as it is.
    """

    name: str
    kind: Kind
    source: Source
    names: Names | None = None
    valid: Source | None = None


@dataclass(frozen=True)
class Group:
    """Waves that are shown together; the group's name is their scope in the file.

    Args:
        unit: whose waves these are, for selections by unit; None is in every selection.
        activity: measured share of the group's bits that is written in a cycle, for projections.
    """

    name: str
    unit: str | None
    activity: float
    waves: tuple[Wave, ...]


def width_of(source: Source) -> int:
    """Bits of a source."""
    if isinstance(source, Computed | Mapped):
        return source.width
    if isinstance(source, Banked):
        return width_of(source.banks[0])
    return len(Value.cast(source))


def bit(name: str, source: Source) -> Wave:
    """A wire."""
    return Wave(name, Kind.BIT, source)


def number(name: str, source: Source) -> Wave:
    """A vector that viewers show as an unsigned decimal number."""
    return Wave(name, Kind.DECIMAL, source)


def word(name: str, source: Source) -> Wave:
    """A vector that viewers show in hexadecimal."""
    return Wave(name, Kind.HEX, source)


def stage(name: str, source: Source, valid: Source | None = None) -> Wave:
    """A stage, by its label."""
    return Wave(name, Kind.ENUM, source, _STAGES, valid)


def opcode(name: str, source: Source) -> Wave:
    """An opcode, by its mnemonic; 0 is no instruction."""
    return Wave(name, Kind.ENUM, source, _opcode_name)


def member(name: str, source: Source, members: Iterable[enum.Enum]) -> Wave:
    """An enumeration, by its members' names in lower case."""
    return Wave(name, Kind.ENUM, source, _named({int(m.value): m.name.lower() for m in members}))


def _named(names: dict[int, str]) -> Names:
    return lambda value: names.get(value) or f"0x{value:X}"


_STAGES = _named({int(s): s.label for s in Stage})


def _opcode_name(code: int) -> str:
    if code in OPCODES:
        return OPCODES[code].mnemonic
    return f"0x{code:02X}" if code else NOTHING
