"""Short programs that each make one dependency between two neighbouring instructions."""

from collections.abc import Sequence

import numpy as np

from isa.config import PlenaConfig
from isa.instruction import Instruction
from isa.opcodes import BY_MNEMONIC, Access, Opcode, State
from isa.operands import Kind, Operand, address
from isa.topk import FROM_REGISTER, pack_policy
from testbench.fuzz.case import Contents, Device, FuzzCase, Line
from testbench.fuzz.dependencies import Dependency, uses
from testbench.fuzz.values import bf16_values, mx_bytes

#: Scales lie this far behind their elements.
SCALE = 1 << 16
HBM_OFFSET = 64
#: Of the first and of the second instruction.
HBM_BASES = (4096, 8192)
#: The place of accesses that must meet; 0 to 5 are those of the operands.
SHARED = 6
POLICY = pack_policy(8, 2)
_FIELDS = ("rd", "rs1", "rs2")
_OPEN, _CLOSE = "C_LOOP_START", "C_LOOP_END"
_ADDRESSES = (address("rs2"),)
_FLAGS = {"rmask": 1, "rstride": 1, "precision": 0, "rorder": 1}


#: gp registers that a dependency's instructions may change.
REGISTERS = range(1, 9)


class _Side:
    """One of the two instructions: its registers by field, and what they must hold."""

    def __init__(self, config: PlenaConfig, mnemonic: str, second: bool) -> None:
        self.config, self.second = config, second
        self.opcode: Opcode = BY_MNEMONIC[mnemonic]
        #: gp and f registers 1 to 3 belong to the first, 4 to 6 to the second.
        first = 4 if second else 1
        self.registers = {field: first + i for i, field in enumerate(_FIELDS)}
        for operand in self.opcode.operands:
            if operand.kind is Kind.A:
                self.registers[operand.field.name] = 2 if second else 1
        self.values = {
            o.field.name: self._value(o.field.name)
            for o in self.opcode.operands
            if o.kind is Kind.GP and o.reads
        }
        self.imm = 1 if mnemonic == _OPEN else 0

    def is_(self, mnemonic: str) -> bool:
        """Whether it is this opcode."""
        return self.opcode.mnemonic == mnemonic

    def _value(self, field: str) -> int:
        """A legal value of a gp operand; not zero, which a register may hold by chance."""
        opcode, config = self.opcode, self.config
        if opcode.operand("rs2") in _ADDRESSES and field == "rs1":
            return HBM_OFFSET
        for access in opcode.accesses:
            if field in access.base[:1]:
                return self.address(access, 3 * self.second + _FIELDS.index(field))
            if field in access.base:  # added to the first
                return config.tile_elements
        return {
            "C_SET_SCALE_REG": SCALE,
            "C_SET_STRIDE_REG": config.MLEN,
            "C_SET_TOPK_REG": POLICY,
            "C_SET_ADDR_REG": 0 if field == "rs1" else self.hbm_base,
        }.get(opcode.mnemonic, 1)

    @property
    def hbm_base(self) -> int:
        """Where its address register points."""
        return HBM_BASES[self.second]

    def address(self, access: Access, number: int) -> int:
        """What the first base register of an access holds for place `number`, 0 to SHARED."""
        config = self.config
        if access.state is State.MATRIX_SRAM:
            tile = {True: 4, False: 2 + self.second}[number == SHARED]
            return (tile - (len(access.base) - 1)) * config.tile_elements
        if access.state is State.VECTOR_SRAM:
            return number * max(config.heads, 2) * config.tile_elements
        return number * max(config.MLEN, config.TOPK_MAX)

    def words(self) -> list[tuple[int, int]]:
        """(register, value) of every gp operand that is read."""
        return [(self.registers[f], value) for f, value in self.values.items()]

    def line(self) -> Line:
        """The instruction."""
        operands = [self._operand(o) for o in self.opcode.operands]
        return Line(Instruction.make(self.opcode.mnemonic, *operands).text())

    def _operand(self, operand: Operand) -> int:
        if operand.is_register:
            return self.registers[operand.field.name]
        if operand.kind is Kind.IMM:
            return self.imm
        if operand.kind is Kind.FLAG:
            return FROM_REGISTER if FROM_REGISTER in operand.allowed else _FLAGS[operand.name]
        return 0


class Item:
    """The instructions of one dependency, with those that set it up and close its loops."""

    def __init__(self, config: PlenaConfig, dependency: Dependency) -> None:
        self.first = _Side(config, dependency.first, second=False)
        self.second = _Side(config, dependency.second, second=True)
        self._given: set[int] = set()  # registers that the first instruction makes
        self._made = 0
        self._stored: int | None = None  # what an S_LD_INT loads
        if dependency.resource in ("gp", "f", "a"):
            self._share_register(dependency)
        elif dependency.fields[0]:
            self._share_address(dependency)
        if self.first.is_(_OPEN) and self.second.is_(_CLOSE):
            self.second.registers["rd"] = self.first.registers["rd"]

    def _share_register(self, dependency: Dependency) -> None:
        """The operands in `fields` name the same register."""
        first, second = self.first, self.second
        a, b = dependency.fields
        register = second.registers[b] = first.registers[a]
        if dependency.resource != "gp":
            return
        if dependency.hazard == "RAW":
            self._produce(0 if second.is_(_CLOSE) else second.values[b])
            second.values[b] = first.imm if first.is_(_OPEN) else self._made
            self._given.add(register)
        elif second.is_(_CLOSE):  # it closes the loop when the register holds 0
            if a in first.values:
                first.values[a] = 0
            self._produce(0)

    def _produce(self, value: int) -> None:
        """Make the first instruction write `value` to its rd, or 0 when it cannot."""
        first, name = self.first, self.first.opcode.mnemonic
        self._made = value
        if name in ("S_ADD_INT", "S_SUB_INT"):
            first.values |= {"rs1": value, "rs2": 0}
        elif name == "S_MUL_INT":
            first.values |= {"rs1": value, "rs2": 1}
        elif name == "S_ADDI_INT":
            first.values["rs1"], first.imm = 0, value
        elif name == "S_LD_INT":
            self._stored = value
        elif name == _OPEN:
            first.imm = max(value, 1)
        else:
            self._made = 0

    def _share_address(self, dependency: Dependency) -> None:
        """The accesses through `fields` begin at the same address."""
        state = State(dependency.resource)
        if state is State.HBM_MEMORY:
            self.second.registers["rs2"] = self.first.registers["rs2"]
            return
        for side, field in zip((self.first, self.second), dependency.fields, strict=True):
            found = (u.access for u in uses(side.opcode.mnemonic) if u.field == field)
            access = next(a for a in found if a is not None and a.state is state)
            side.values[access.base[0]] = side.address(access, SHARED)

    def lines(self) -> list[Line]:
        """The whole item."""
        first, second = self.first, self.second
        opened = [s.registers["rd"] for s in (second, first) if s.is_(_CLOSE)]
        if first.is_(_OPEN) and second.is_(_CLOSE):
            opened = []
        made = [Line(f"{_OPEN} gp{register}, 1") for register in opened]
        made += self._state()
        counters = {s.registers["rd"] for s in (first, second) if s.is_(_CLOSE)}
        values: dict[int, int] = {}
        for side in (second, first):
            for register, value in side.words():
                is_counter = register in counters and side.is_(_CLOSE)
                if not is_counter and not (side is second and register in self._given):
                    values[register] = value
        if self._stored is not None:
            made += [Line(f"S_ADDI_INT gp7, gp0, {self._stored}")]
            made += [Line(f"S_ST_INT gp7, gp0, {first.values['rs1']}")]
        made += [Line(f"S_ADDI_INT gp{r}, gp0, {v}") for r, v in values.items()]
        made += [first.line(), second.line()]
        left = [s.registers["rd"] for s in (first, second) if s.is_(_OPEN)]
        if first.is_(_OPEN) and second.is_(_CLOSE):
            left = []
        for register in reversed(left):
            made += [Line(f"S_ADDI_INT gp{register}, gp0, 1"), Line(f"{_CLOSE} gp{register}")]
        return made

    def _state(self) -> list[Line]:
        """What the instructions read beside their operands, set to something legal."""
        lines: list[Line] = []
        sides = (self.first, self.second)
        for name, state, value in (
            ("C_SET_SCALE_REG", State.SCALE, SCALE),
            ("C_SET_STRIDE_REG", State.STRIDE, self.first.config.MLEN),
            ("C_SET_TOPK_REG", State.TOPK_POLICY, POLICY),
        ):
            if any(s.opcode.access(state, writes=False) for s in sides):
                lines += [Line(f"S_ADDI_INT gp8, gp0, {value}"), Line(f"{name} gp8")]
        for side in sides:
            field = next((o.field.name for o in side.opcode.operands if o.kind is Kind.A), "")
            if field == "rs2":
                lines.append(Line(f"S_ADDI_INT gp8, gp0, {side.hbm_base}"))
                lines.append(Line(f"C_SET_ADDR_REG a{side.registers[field]}, gp0, gp8"))
        return lines


def directed_case(config: PlenaConfig, dependencies: Sequence[Dependency], seed: int) -> FuzzCase:
    """One program that makes all of these, on random data."""
    rng = np.random.default_rng(seed)
    lines = [line for d in dependencies for line in Item(config, d).lines()]
    contents = Contents(
        vector=bf16_values(rng, (config.VRAM_ROWS, config.MLEN)),
        matrix=bf16_values(rng, (5, config.MLEN, config.MLEN)),
        fp=bf16_values(rng, (8 * config.MLEN,)),
        ints=rng.integers(0, 64, 64, dtype=np.uint32),
        hbm=mx_bytes(rng, SCALE, 1 << 14),
    )
    return FuzzCase(config, tuple(lines), contents, Device(seed=seed))
