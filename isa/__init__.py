"""The PLENA instruction set: its declaration, the configuration, and the tools for programs."""

from typing import TYPE_CHECKING, Any

from isa.config import PRESETS, ConfigError, PlenaConfig, load_config
from isa.image import VOCABULARY, ImageError, ProgramImage
from isa.instruction import DecodeError, Instruction, InstructionError
from isa.opcodes import BY_MNEMONIC, OPCODES, Access, Extent, Op, Opcode, State, Unit
from isa.stages import BRANCH_OF, PAIRLESS_STAGES, Branch, Stage
from isa.traps import TRAP_HELP, Trap

if TYPE_CHECKING:
    from isa.assembler import AssemblyError, assemble

__all__ = [
    "BRANCH_OF",
    "BY_MNEMONIC",
    "OPCODES",
    "PAIRLESS_STAGES",
    "PRESETS",
    "TRAP_HELP",
    "VOCABULARY",
    "Access",
    "AssemblyError",
    "Branch",
    "ConfigError",
    "DecodeError",
    "Extent",
    "ImageError",
    "Instruction",
    "InstructionError",
    "Op",
    "Opcode",
    "PlenaConfig",
    "ProgramImage",
    "Stage",
    "State",
    "Trap",
    "Unit",
    "assemble",
    "load_config",
]


def __getattr__(name: str) -> Any:
    """Load the assembler on first use: `python -m isa.assembler` must not find itself imported."""
    if name in ("AssemblyError", "assemble"):
        from isa import assembler

        return getattr(assembler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
