"""Which dependencies two neighbouring instructions can have, from the ISA table alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from isa.opcodes import BY_MNEMONIC, Access, Opcode
from isa.operands import Operand

#: Nothing but that one is dispatched right after the other.
ADJACENT = "adjacent"


@dataclass(frozen=True)
class Use:
    """One way in which an opcode reads or writes a resource.

    `resource`: a register file ("gp", "f", "a") or a state's name; `field`: the operand that names
    the register, or those that address the access ("" for a state as a whole).
    """

    resource: str
    field: str
    writes: bool
    operand: Operand | None = None
    access: Access | None = None


@dataclass(frozen=True, order=True)
class Dependency:
    """Between two neighbours: the hazard, the resource, and the fields of both that meet there."""

    first: str
    second: str
    hazard: str
    resource: str = ""
    fields: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        if self.hazard == ADJACENT:
            return f"{self.first}; {self.second}"
        a, b = (f".{f}" if f else "" for f in self.fields)
        return f"{self.first}{a}; {self.second}{b}: {self.hazard} through {self.resource}"


@cache
def uses(mnemonic: str) -> tuple[Use, ...]:
    """Everything that the opcode reads and writes, in declaration order."""
    opcode: Opcode = BY_MNEMONIC[mnemonic]
    found: list[Use] = []
    for operand in opcode.operands:
        if operand.is_register:
            kind, name = operand.kind.value, operand.field.name
            found += [Use(kind, name, False, operand)] * operand.reads
            found += [Use(kind, name, True, operand)] * operand.writes
    for access in opcode.accesses:
        found.append(Use(access.state.value, "+".join(access.base), access.writes, access=access))
    return tuple(found)


def hazard_of(first: Use, second: Use) -> str:
    """RAW, WAR or WAW when both are of one resource and one writes; else empty."""
    if first.resource != second.resource or not (first.writes or second.writes):
        return ""
    if first.writes:
        return "WAW" if second.writes else "RAW"
    return "WAR"


def between(first: str, second: str) -> Iterator[Dependency]:
    """All dependencies that an instruction of `first` and one of `second` behind it can have."""
    yield Dependency(first, second, ADJACENT)
    for a in uses(first):
        for b in uses(second):
            if hazard := hazard_of(a, b):
                yield Dependency(first, second, hazard, a.resource, (a.field, b.field))


def possible() -> list[Dependency]:
    """Of every ordered pair of opcodes."""
    names = list(BY_MNEMONIC)
    return list(dict.fromkeys(d for a in names for b in names for d in between(a, b)))
