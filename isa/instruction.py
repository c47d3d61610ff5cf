"""One instruction as a value: made from a mnemonic or a word, printed as canonical assembly."""

import difflib
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from isa.opcodes import BY_MNEMONIC, OPCODES, Opcode
from isa.operands import FIELDS, Kind, Operand
from isa.traps import Trap

WORD_BITS = 32
WORD_LIMIT = (1 << WORD_BITS) - 1

#: What to do instead of an immediate that does not fit, by its field.
_WAY_OUT: dict[str, str] = {
    "imm18": "build a larger value in a register with S_LUI_INT and S_ADDI_INT",
    "imm22": "nest two loops",
}

_REGISTER = re.compile(r"([a-z]+)(0|[1-9][0-9]{0,8})")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
_NUMBER_TEXT: dict[Kind, str] = {
    Kind.ZERO: "the literal 0",
    Kind.FLAG: "a small number, mostly 0 or 1",
    Kind.IMM: "an unsigned number, decimal or 0x hexadecimal",
}
#: Registers that read zero, which may follow the last operand as the number 0 may.
_SURPLUS = ("gp0", "f0")


class InstructionError(ValueError):
    """An instruction that cannot be written: the message names operand, value, limit, way out.

    `token` is the part of the source that is wrong, `rule` what it should be.
    """

    def __init__(self, token: str, rule: str) -> None:
        super().__init__(f"{token}: {rule}")
        self.token = token
        self.rule = rule


class DecodeError(ValueError):
    """A word that is no instruction; `trap` is the cause that the hardware would halt with."""

    def __init__(self, word: int, trap: Trap, reason: str) -> None:
        super().__init__(f"word 0x{word:08X}: {trap.name}: {reason}")
        self.word = word
        self.trap = trap


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint for an unknown `name`: the nearest of `known` in any case, or nothing."""
    by_folded = {k.casefold(): k for k in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    return f"; did you mean {by_folded[found[0]]}?" if found else ""


def find_opcode(mnemonic: str) -> Opcode:
    """The row called `mnemonic`; InstructionError names the nearest one when there is none."""
    row = BY_MNEMONIC.get(mnemonic)
    if row is None:
        hint = nearest(mnemonic, BY_MNEMONIC) or "; python -m isa.reference_table lists them"
        raise InstructionError(mnemonic, f"unknown mnemonic{hint}")
    return row


def required_operands(operands: Sequence[Operand]) -> int:
    """How many operands the source must give: all but the flags at the end."""
    count = len(operands)
    while count and operands[count - 1].kind is Kind.FLAG:
        count -= 1
    return count


def count_problem(row: Opcode, given: int) -> str:
    """The rule about the number of operands, with the names of those that `row` takes."""
    least, most = required_operands(row.operands), len(row.operands)
    wanted = f"{most}" if least == most else f"{least} to {most}"
    names = ", ".join(o.name for o in row.operands) or "none"
    return f"{given} operands given, takes {wanted}: {names}"


def operand_problem(operand: Operand, value: int) -> str | None:
    """The rule that `value` breaks as this operand and the way out; None when it fits."""
    if operand.allowed and value not in operand.allowed:
        return f"must be one of {', '.join(map(str, operand.allowed))}"
    if 0 <= value <= operand.largest:
        return None
    if operand.kind is Kind.ZERO:
        return "must be the literal 0"
    if operand.is_register:
        return f"{operand.kind.value} registers are numbered 0 to {operand.largest}"
    limits = f"must be 0 to {operand.largest}"
    if operand.kind is not Kind.IMM:
        return limits
    if value < 0:
        return f"{limits}: immediates are unsigned; subtract with S_SUB_INT"
    if operand.limit is not None:
        return f"{limits}: the value leaves 32 bits; load its low 32 bits instead"
    return f"{limits}; {_WAY_OUT[operand.field.name]}"


def parse_number(token: str) -> int | None:
    """An unsigned number, decimal or 0x hexadecimal; None when `token` is something else."""
    if not _NUMBER.fullmatch(token):
        return None
    return int(token, 16 if token[:2] in ("0x", "0X") else 10)


def _zero_stands_for_gp0(row: Opcode, operand: Operand) -> bool:
    """Whether a bare 0 is clear in a gp operand: it is read, and not alone an address.

    `M_MM_WO gp1, 0, 0` means stride 1. In `V_ADD_VV gp1, gp2, 0` the 0 would be row 0: there it is
    more likely that rs2 was forgotten.
    """
    alone = (operand.field.name,)
    return not operand.writes and all(a.imm or a.base != alone for a in row.accesses)


def parse_operand(row: Opcode, operand: Operand, token: str) -> int:
    """The value that `token` gives an operand of `row`; InstructionError when it does not fit."""
    subject = f"operand {operand.name} of {row.mnemonic}"
    number = parse_number(token)
    if operand.is_register:
        prefix = operand.kind.value
        register = _REGISTER.fullmatch(token)
        if register is not None and register.group(1) == prefix:
            number = int(register.group(2))
        elif number != 0 or operand.kind is not Kind.GP or not _zero_stands_for_gp0(row, operand):
            raise InstructionError(
                token, f"{subject} is a register, {prefix}0 to {prefix}{operand.largest}"
            )
    if operand.kind is Kind.ZERO and token == "gp0":
        return 0
    if number is None:
        raise InstructionError(token, f"{subject} is {_NUMBER_TEXT[operand.kind]}")
    problem = operand_problem(operand, number)
    if problem is not None:
        raise InstructionError(token, f"{subject}: {problem}")
    return number


def format_operand(operand: Operand, value: int) -> str:
    """`value` in the assembler's notation: a register name, or a decimal number."""
    return f"{operand.kind.value}{value}" if operand.is_register else str(value)


@dataclass(frozen=True)
class Instruction:
    """An opcode and one value per operand, in the assembler's order.

    `make` and `decode` check the values; the constructor does not. An S_LUI_INT immediate above
    20 bits is a legal word that only the assembler refuses, so `decode` accepts it and `make` does
    not.
    """

    opcode: Opcode
    values: tuple[int, ...]

    @classmethod
    def make(cls, mnemonic: str, *values: SupportsIndex) -> "Instruction":
        """The instruction `mnemonic values...`; flags left out at the end are 0.

        Raises:
            InstructionError: unknown mnemonic, wrong number of operands, or a value out of range.
        """
        row = find_opcode(mnemonic)
        least, most = required_operands(row.operands), len(row.operands)
        if not least <= len(values) <= most:
            raise InstructionError(mnemonic, count_problem(row, len(values)))
        numbers = [operator.index(v) for v in values] + [0] * (most - len(values))
        for operand, value in zip(row.operands, numbers, strict=True):
            problem = operand_problem(operand, value)
            if problem is not None:
                raise InstructionError(mnemonic, f"operand {operand.name} = {value}: {problem}")
        return cls(row, tuple(numbers))

    @classmethod
    def parse(cls, statement: str) -> "Instruction":
        """The instruction that `MNEMONIC operand, operand` spells, without label and comment.

        Flags left out at the end are 0; zeros after the last operand are accepted and dropped.

        Raises:
            InstructionError: `token` and `rule` say what is wrong.
        """
        mnemonic, *rest = statement.split(maxsplit=1) or [""]
        tokens = [token.strip() for token in rest[0].split(",")] if rest else []
        row = find_opcode(mnemonic)
        for token in tokens:
            if not token:
                raise InstructionError(statement, "an operand is missing beside a comma")
            if len(token.split()) > 1:
                raise InstructionError(token, "operands are separated by commas")
        most = len(row.operands)
        for token in tokens[most:]:
            if parse_number(token) != 0 and token not in _SURPLUS:
                rule = f"{mnemonic}: {count_problem(row, len(tokens))}; only zeros may follow"
                raise InstructionError(token, rule)
        if len(tokens) < required_operands(row.operands):
            raise InstructionError(mnemonic, count_problem(row, len(tokens)))
        given = zip(row.operands, tokens, strict=False)
        values = [parse_operand(row, operand, token) for operand, token in given]
        return cls(row, tuple(values + [0] * (most - len(values))))

    @classmethod
    def decode(cls, word: SupportsIndex) -> "Instruction":
        """The instruction that the hardware executes for `word`, 0 to 2^32 - 1.

        Raises:
            DecodeError: in the order of the hardware's checks, with `trap` ILLEGAL_OPCODE, then
                ILLEGAL_ENCODING (an unused bit set, a flag value that is not allowed), then
                REGISTER_INDEX (an f or a register above 7).
        """
        bits = operator.index(word)
        if not 0 <= bits <= WORD_LIMIT:
            raise ValueError(f"word {bits}: an instruction word is 0 to 0x{WORD_LIMIT:08X}")
        code = FIELDS["opcode"].get(bits)
        row = OPCODES.get(code)
        if row is None:
            raise DecodeError(bits, Trap.ILLEGAL_OPCODE, f"opcode 0x{code:02X} is not defined")
        unused = bits & ~row.used_mask
        if unused:
            raise DecodeError(
                bits, Trap.ILLEGAL_ENCODING, f"{row.mnemonic} does not use bits 0x{unused:08X}"
            )
        values = tuple(0 if o.kind is Kind.ZERO else o.field.get(bits) for o in row.operands)
        pairs = tuple(zip(row.operands, values, strict=True))
        for operand, value in pairs:
            if operand.allowed and value not in operand.allowed:
                reason = f"{row.mnemonic} {operand.name} = {value}"
                raise DecodeError(bits, Trap.ILLEGAL_ENCODING, reason)
        for operand, value in pairs:
            if operand.is_register and value > operand.largest:
                reason = f"{row.mnemonic} {operand.name} = {operand.kind.value}{value}"
                raise DecodeError(bits, Trap.REGISTER_INDEX, reason)
        return cls(row, values)

    def encode(self) -> int:
        """The 32-bit word; ValueError when a value does not fit its field."""
        word = FIELDS["opcode"].put(self.opcode.code)
        for operand, value in zip(self.opcode.operands, self.values, strict=True):
            word |= operand.field.put(value)
        return word

    def value(self, name: str) -> int:
        """The value of the operand called `name`; KeyError when the form has none."""
        for operand, value in zip(self.opcode.operands, self.values, strict=True):
            if operand.name == name:
                return value
        raise KeyError(f"{self.opcode.mnemonic} has no operand {name!r}")

    def text(self) -> str:
        """Canonical assembly with every flag written out.

        The assembler turns it into the same word again. A legal word that the assembler refuses to
        write by name (S_LUI_INT above 20 bits) is printed as a `.word` directive for that reason.
        """
        pairs = tuple(zip(self.opcode.operands, self.values, strict=True))
        if any(operand_problem(o, v) is not None for o, v in pairs):
            return f".word 0x{self.encode():08X}"
        operands = ", ".join(format_operand(o, v) for o, v in pairs)
        return f"{self.opcode.mnemonic} {operands}".rstrip()

    def __str__(self) -> str:
        return self.text()


def word_text(word: SupportsIndex) -> str:
    """Assembly for any word: the instruction, or `.word` with the trap that it would cause."""
    try:
        return Instruction.decode(word).text()
    except DecodeError as error:
        return f".word 0x{error.word:08X} ; {error.trap.name}"
