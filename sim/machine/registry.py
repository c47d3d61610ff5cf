"""Which function gives an opcode its meaning."""

from collections.abc import Callable

from isa.instruction import Instruction
from isa.opcodes import BY_MNEMONIC
from sim.machine.state import MachineState

Step = Callable[[], int | None]
"""Executes one instruction: returns the next pc, None for pc + 1; raises `Stop`, before any change
of state, when it traps."""
Builder = Callable[[MachineState, Instruction, int], Step]
"""Makes the Step of an instruction at a pc, once per word of the image."""

BUILDERS: dict[int, Builder] = {}


def executes(*mnemonics: str) -> Callable[[Builder], Builder]:
    """Register the builder of some opcodes; every opcode has exactly one."""

    def register(builder: Builder) -> Builder:
        for mnemonic in mnemonics:
            code = BY_MNEMONIC[mnemonic].code
            assert code not in BUILDERS, f"{mnemonic} has two builders"
            BUILDERS[code] = builder
        return builder

    return register
