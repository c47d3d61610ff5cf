"""Bit fields of an instruction word, and the operand kinds that occupy them."""

import enum
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """A contiguous bit field of the 32-bit word: `width` bits from bit `base` up."""

    name: str
    base: int
    width: int

    @property
    def limit(self) -> int:
        """The largest value that fits."""
        return (1 << self.width) - 1

    @property
    def mask(self) -> int:
        """The field's bits, in place."""
        return self.limit << self.base

    def get(self, word: int) -> int:
        """The field's value in `word`."""
        return (word >> self.base) & self.limit

    def put(self, value: int) -> int:
        """`value` in place; ValueError when it does not fit."""
        if not 0 <= value <= self.limit:
            raise ValueError(f"{self.name} = {value}: the field holds 0 to {self.limit}")
        return value << self.base


#: Every field of the word (isa.md, "Word format"). Forms overlap: imm18 and imm22 cover rs2, rs3
#: and funct1.
FIELDS: dict[str, Field] = {
    f.name: f
    for f in (
        Field("opcode", 0, 6),
        Field("rd", 6, 4),
        Field("rs1", 10, 4),
        Field("rs2", 14, 4),
        Field("rs3", 18, 4),
        Field("funct1", 22, 4),
        Field("imm18", 14, 18),
        Field("imm22", 10, 22),
    )
}


class Kind(enum.Enum):
    """What an operand's field holds."""

    GP = "gp"
    F = "f"
    A = "a"
    IMM = "imm"
    FLAG = "flag"
    ZERO = "zero"


#: Registers of each file; an index beyond it is a REGISTER_INDEX trap and an assembler error.
REGISTER_COUNT: dict[Kind, int] = {Kind.GP: 16, Kind.F: 8, Kind.A: 8}


@dataclass(frozen=True)
class Operand:
    """One operand, in the assembler's order.

    `reads`/`writes` are about the register that the field names. `allowed` limits a flag's values;
    empty is any that fits. `limit` bounds an immediate below its field's width.
    """

    name: str
    field: Field
    kind: Kind
    reads: bool = False
    writes: bool = False
    allowed: tuple[int, ...] = ()
    limit: int | None = None

    @property
    def largest(self) -> int:
        """The largest value that the assembler accepts."""
        if self.kind in REGISTER_COUNT:
            return REGISTER_COUNT[self.kind] - 1
        if self.kind is Kind.ZERO:
            return 0
        return self.field.limit if self.limit is None else self.limit

    @property
    def is_register(self) -> bool:
        """Whether the field names a register."""
        return self.kind in REGISTER_COUNT


def gp(field: str) -> Operand:
    """A general-purpose register that is read."""
    return Operand(field, FIELDS[field], Kind.GP, reads=True)


def gp_out(field: str = "rd", *, reads: bool = False) -> Operand:
    """A general-purpose register that is written (and read first, when `reads`)."""
    return Operand(field, FIELDS[field], Kind.GP, reads=reads, writes=True)


def fp(field: str) -> Operand:
    """A BF16 register that is read."""
    return Operand(field, FIELDS[field], Kind.F, reads=True)


def fp_out(field: str = "rd", *, reads: bool = False) -> Operand:
    """A BF16 register that is written (and read first, when `reads`)."""
    return Operand(field, FIELDS[field], Kind.F, reads=reads, writes=True)


def address(field: str) -> Operand:
    """An HBM address register that is read."""
    return Operand(field, FIELDS[field], Kind.A, reads=True)


def address_out(field: str = "rd") -> Operand:
    """An HBM address register that is written."""
    return Operand(field, FIELDS[field], Kind.A, writes=True)


def flag(name: str, field: str, *allowed: int) -> Operand:
    """A small selector; trailing flags may be left out in the source, and are then 0."""
    return Operand(name, FIELDS[field], Kind.FLAG, allowed=allowed)


IMM18 = Operand("imm", FIELDS["imm18"], Kind.IMM)
IMM22 = Operand("imm", FIELDS["imm22"], Kind.IMM)
#: S_LUI_INT shifts by 12, so only 20 bits stay inside the register.
IMM_UPPER = Operand("imm", FIELDS["imm22"], Kind.IMM, limit=(1 << 20) - 1)
#: The literal 0 that M_MM and its kin carry in the place of rd.
ZERO_RD = Operand("0", FIELDS["rd"], Kind.ZERO)

RMASK = flag("rmask", "rs3", 0, 1)
RMASK_TOPK = flag("rmask", "rs3", 0, 1, 15)
RORDER = flag("rorder", "funct1", 0, 1)
RSTRIDE = flag("rstride", "rs3", 0, 1)
PRECISION = flag("precision", "funct1", 0, 1)
