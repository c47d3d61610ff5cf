"""How large a file will be, before it is written."""

from collections.abc import Sequence
from dataclasses import dataclass

from isa.image import ProgramImage
from isa.opcodes import BY_MNEMONIC
from isa.operands import FIELDS
from waveforms.contents import Contents
from waveforms.wave import Group, width_of

#: Bytes per cycle that every file has: two time stamps and the clock.
FRAME = 20
#: Rows of a memory that are written per cycle. Like `Group.activity`, measured on shared experts.
ROW_ACTIVITY = {"vram": 0.33, "mram": 0.15}
#: A line before the run from here on, and ways out.
LONG_CYCLES = 100_000
LARGE_BYTES = 100_000_000

_LOOP_START, _LOOP_END = BY_MNEMONIC["C_LOOP_START"].code, BY_MNEMONIC["C_LOOP_END"].code


def instructions_of(image: ProgramImage) -> int:
    """Instructions that a run executes, by its loop counts: its cycles are at least as many."""
    total, times, open_loops = 0, 1, []
    count = FIELDS["imm22"]
    for w in image.words:
        code = int(w) & 0x3F
        total += times
        if code == _LOOP_START:
            open_loops.append(times)
            times *= max(1, int(w) >> count.base & ((1 << count.width) - 1))
        elif code == _LOOP_END and open_loops:
            times = open_loops.pop()
    return total


@dataclass(frozen=True)
class Projection:
    """What a file will be like: `cycles` recorded, bytes per cycle of every `shares`' group."""

    cycles: int
    shares: dict[str, float]

    @classmethod
    def of(cls, groups: Sequence[Group], contents: Sequence[Contents], cycles: int) -> "Projection":
        """From a selection; a bit is a byte of the file."""
        shares = {g.name: g.activity * sum(width_of(w.source) for w in g.waves) for g in groups}
        for memory in contents:
            if memory.name in ROW_ACTIVITY:
                shares[memory.name] = ROW_ACTIVITY[memory.name] * memory.cells[0].width
        return cls(cycles, shares)

    @property
    def bytes_per_cycle(self) -> float:
        """Of the whole file."""
        return FRAME + sum(self.shares.values())

    @property
    def size(self) -> float:
        """Bytes of the file."""
        return self.cycles * self.bytes_per_cycle

    @property
    def is_long(self) -> bool:
        """Worth a line before the run."""
        return self.cycles >= LONG_CYCLES or self.size >= LARGE_BYTES / 10

    def __str__(self) -> str:
        text = (
            f"about {self.bytes_per_cycle:.0f} bytes per cycle, at least {self.cycles:,} cycles: "
            f"{self.size / 1e6:,.0f} MB"
        )
        return f"{text}\n{ways_out(self.shares)}" if self.size >= LARGE_BYTES else text


def ways_out(shares: dict[str, float]) -> str:
    """How to get a smaller file, with the groups that cost most."""
    most = sorted(shares, key=lambda name: shares[name], reverse=True)[:3]
    return (
        "  to make it smaller: window=(first, stop) records a part of the run, units=('matrix',) "
        "one unit,\n  memory_rows=0 no memories; most bytes come from "
        f"{', '.join(most)}"
    )
