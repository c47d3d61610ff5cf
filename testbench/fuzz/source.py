"""Source text of directed programs, line by line."""

from isa.config import PlenaConfig
from isa.instruction import Instruction
from testbench.fuzz.case import Contents, Device, FuzzCase, Line


class Source:
    """A program under construction; every method appends."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config = config
        self.lines: list[Line] = []

    def op(self, mnemonic: str, *values: int) -> None:
        """Exactly this instruction."""
        self.lines.append(Line(Instruction.make(mnemonic, *values).text()))

    def word(self, word: int) -> None:
        """A word, legal or not."""
        self.lines.append(Line(f".word 0x{word:08X}"))

    def mark(self, name: str) -> None:
        """A stage marker."""
        self.lines.append(Line(f"; @stage={name}"))

    def gp(self, register: int, value: int) -> None:
        """gp[register] = value, modulo 2^32; two instructions for a large one."""
        value &= 0xFFFF_FFFF
        if value < 1 << 18:
            self.op("S_ADDI_INT", register, 0, value)
        else:
            self.op("S_LUI_INT", register, value >> 12)
            self.op("S_ADDI_INT", register, register, value & 0xFFF)

    def base(self, index: int, value: int, scratch: tuple[int, int]) -> None:
        """a[index] = value, 64 bits, through two gp registers."""
        high, low = scratch
        self.gp(high, value >> 32)
        self.gp(low, value)
        self.op("C_SET_ADDR_REG", index, high, low)

    def case(
        self, contents: Contents, device: Device | None = None, issue: str = "overlap"
    ) -> FuzzCase:
        """The program with its data."""
        return FuzzCase(self.config, tuple(self.lines), contents, device or Device(), issue)
