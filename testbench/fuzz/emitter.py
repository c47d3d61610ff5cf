"""Emits legal instructions of any opcode, setting up the registers that address its operands."""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from isa.config import PlenaConfig
from isa.instruction import Instruction
from isa.opcodes import BY_MNEMONIC, Access, Extent
from isa.operands import IMM18, Kind
from testbench.fuzz.addresses import AddressRules, Known
from testbench.fuzz.case import Item, Line, Loop

#: How often a register that already holds a legal address is used instead of a new one.
REUSE = 0.7
#: f registers that most instructions use, so that they meet; the others come up now and then.
BUSY_F_REGISTERS = 3
#: a7 is left for addresses that trap.
A_REGISTERS = 7
MAX_ITERATIONS = 64
_ADDI_LARGEST = IMM18.largest


class Emitter:
    """The program so far, and what its registers are known to hold.

    `emit` appends one instruction of any opcode; hints fix operands: `rd=24` as an address for an
    operand that addresses memory, else as the register's index or the field's value.
    """

    def __init__(self, config: PlenaConfig, rng: random.Random) -> None:
        self.config = config
        self.rng = rng
        self.rules = AddressRules(config)
        self.items: list[Item] = []
        self.known: list[Known | None] = [Known.exactly(0)] * 16
        self._locked: set[int] = {0}
        self._in_use: set[int] = set()  # operands of the instruction that is being set up
        self._depth = 0
        self._iterations = 1

    # Structure.

    def line(self, mnemonic: str, *values: int) -> None:
        """Append exactly this instruction."""
        self.items.append(Line(Instruction.make(mnemonic, *values).text()))

    def raw(self, word: int) -> None:
        """Append a word."""
        self.items.append(Line(f".word 0x{word:08X}"))

    def block(self, lines: Sequence[Line], registers: Iterable[int]) -> None:
        """Append a finished block that leaves anything in these registers; not in a loop."""
        assert self._depth == 0
        self.items += lines
        for register in registers:
            self.known[register] = None

    @contextmanager
    def loop(self) -> Iterator[None]:
        """A loop around what is emitted inside: few registers are rewritten, some walk on."""
        rng = self.rng
        free = [r for r in range(1, 16) if r not in self._locked]
        rng.shuffle(free)
        counter, *free = free
        count = rng.choice((1, 2, 2, 3, 4))
        times = self._iterations * count
        walkers = [r for r in free[:6] if (k := self.known[r]) and k.high < 4096 and k.align >= 4]
        walkers = walkers[: rng.randrange(3)]
        mlen = self.config.MLEN
        for register in walkers:
            known = self.known[register]
            assert known is not None
            self.known[register] = known.walked(mlen, times)
        written = [r for r in free if r not in walkers][:4]
        for register in written:
            self.known[register] = None
        outer, locked = self.items, self._locked
        self.items = []
        self._locked = set(range(16)) - set(written)
        self._iterations, self._depth = times, self._depth + 1
        self.known[counter] = None
        yield
        for register in walkers:
            self.line("S_ADDI_INT", register, register, mlen)
        body, self.items, self._locked = self.items, outer, locked
        self._iterations, self._depth = times // count, self._depth - 1
        self.known[counter] = Known.exactly(0)
        self.items.append(Loop(counter, count, tuple(body)))

    @property
    def outside(self) -> bool:
        """Whether this is no loop's body."""
        return self._depth == 0

    @property
    def may_nest(self) -> bool:
        """Whether another loop fits: registers, depth, and the number of iterations."""
        free = 16 - len(self._locked)
        return free >= 2 and self._depth < 4 and self._iterations < MAX_ITERATIONS

    # Registers.

    def target(self) -> int:
        """A gp register that may be overwritten."""
        taken = self._locked | self._in_use
        return self.rng.choice([r for r in range(16) if r not in taken] or [0])

    def set_gp(self, value: int, register: int | None = None) -> int:
        """Make a register hold `value`, by an addition or through INT_MEM; returns it."""
        register = self.target() if register is None else register
        if value <= _ADDI_LARGEST:
            self.line("S_ADDI_INT", register, 0, value)
        else:
            self.line("S_LUI_INT", register, value >> 12)
            self.line("S_ADDI_INT", register, register, value & 0xFFF)
        if register and self.rng.random() < 0.15:
            word = self.rules.pick(self.rng, Extent.WORD)
            self.line("S_ST_INT", register, 0, word)
            self.line("S_LD_INT", register, 0, word)
        if register:
            self.known[register] = Known.exactly(value)
        return register

    def address(self, extent: Extent, value: int | None = None) -> int:
        """A register with a legal address for an access (with exactly `value`, when given)."""
        fits = [
            r
            for r, k in enumerate(self.known)
            if k is not None
            and (self.rules.allows(k, extent) if value is None else k.exact and k.low == value)
        ]
        if fits and (value is not None or self.rng.random() < REUSE):
            return self.rng.choice(fits)
        return self.set_gp(self.rules.pick(self.rng, extent) if value is None else value)

    # Instructions.

    def emit(self, mnemonic: str, **hints: int) -> None:
        """Append one instruction, after what sets up its registers."""
        opcode = BY_MNEMONIC[mnemonic]
        fields: dict[str, int] = {}
        for access in opcode.accesses:
            if access.base:
                self._place(access, fields, hints)
                self._in_use = {r for f, r in fields.items() if f in ("rd", "rs1", "rs2")}
        values: list[int] = []
        for operand in opcode.operands:
            name = operand.name
            if name in fields:
                values.append(fields[name])
            elif name in hints:
                values.append(hints[name])
            elif operand.kind is Kind.F:
                values.append(
                    self.rng.randrange(8 if self.rng.random() < 0.2 else BUSY_F_REGISTERS)
                )
            elif operand.kind is Kind.GP:
                values.append(self.target() if operand.writes else self.rng.randrange(16))
            elif operand.kind is Kind.FLAG:
                values.append(self.rng.choice(operand.allowed or (0,)))
            else:
                values.append(self.rng.randrange(64) if operand.kind is Kind.IMM else 0)
        if any(access.extent is Extent.STRIDED_ROWS for access in opcode.accesses):
            values[1] = self._stride(values[1], "rs1" in hints)
        self._in_use.clear()
        self.line(mnemonic, *values)
        for operand, value in zip(opcode.operands, values, strict=True):
            if operand.kind is Kind.GP and operand.writes and value:
                self.known[value] = None

    def _stride(self, register: int, fixed: bool) -> int:
        """A register with a small row stride for M_MM_WO, or 0."""
        known = self.known[register]
        if fixed or register == 0 or (known is not None and known.high <= 4):
            return register
        return 0 if self.rng.random() < 0.5 else self.set_gp(self.rng.randrange(5))

    def _place(self, access: Access, fields: dict[str, int], hints: dict[str, int]) -> None:
        """Choose the registers (and the immediate) that one access is addressed by."""
        if access.extent is Extent.HBM_ROWS:
            fields["rs2"] = hints.get("rs2", self.rng.randrange(A_REGISTERS))
            fields["rs1"] = self.address(Extent.HBM_ROWS, hints.get("rs1"))
            return
        field = access.base[0]
        if field in fields:
            return
        value = hints.get(field)
        if access.imm:
            fields["imm"] = self.rules.pick(self.rng, access.extent) if value is None else value
            fields[field] = 0
            known = [r for r, k in enumerate(self.known) if k and k.exact and k.low < 128]
            base = self.rng.choice(known or [0])
            offset = self.known[base]
            if offset is not None and offset.low <= fields["imm"]:
                fields[field], fields["imm"] = base, fields["imm"] - offset.low
            return
        others = access.base[1:]
        if others and value is None and self.rng.random() < 0.3:
            whole = self.rules.pick(self.rng, access.extent)
            part = self.rng.randrange(whole + 1)
            fields[field] = self.set_gp(whole - part)
            self._in_use.add(fields[field])
            fields[others[0]] = self.set_gp(part)
            return
        fields[field] = self.address(access.extent, value)
        fields |= dict.fromkeys(others, 0)
