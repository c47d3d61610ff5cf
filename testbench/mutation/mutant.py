"""A mutant: where it is, what it does, and a key by which it is found again."""

import hashlib
import linecache
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: What a mutant does to one bit of a cell's input, as in yosys: inverts it; holds it at 0 or 1;
#: inverts it while another bit, the control, is 0 or 1.
MODES = ("inv", "const0", "const1", "cnot0", "cnot1")

SourceLine = tuple[str, int]


@dataclass(frozen=True)
class Mutant:
    """One mutant of a unit.

    Attributes:
        key: unit, module, driven signal, cell, input bit, mode; it outlives changes elsewhere.
        file, line: where the changed value is written in the RTL.
    """

    key: str
    unit: str
    mode: str
    file: str
    line: int

    @property
    def text(self) -> str:
        """The source line."""
        return linecache.getline(str(ROOT / self.file), self.line).strip()

    @property
    def source(self) -> str:
        """`file: text`, which outlives changes of the line numbers."""
        return f"{self.file}: {self.text}"


def rank(seed: int, text: str) -> int:
    """A number that only depends on the seed and the text: sorting by it is a stable shuffle."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest())
