"""The outcome of a run, and its report for a person."""

from dataclasses import dataclass, field

from isa.image import ProgramImage
from isa.instruction import word_text
from isa.traps import TRAP_HELP, Trap

DEADLOCK_HELP = (
    "nothing comes from what it waits for; if that is only slow, allow more cycles without an event"
)


@dataclass(frozen=True)
class RunResult:
    """How a run ended, and what the hardware counted.

    `counters[name][stage]` are the per-stage counters of `rtl.profile.COUNTERS`; cycles are those
    of the run, without the host's loading. `precise` is false only for a memory error under issue
    policy `overlap`. Of the watchdog: `waiting` says who waits for whom, `deadlock` that nothing
    happened any more; without it the cycle limit was reached.
    """

    cause: Trap
    pc: int
    word: int
    operand: int
    precise: bool
    cycles: int
    engine: str
    issue: str
    wall_seconds: float
    counters: dict[str, list[int]] = field(repr=False)
    overlap_cycles: int = 0
    waiting: str = ""
    deadlock: bool = False

    @property
    def ok(self) -> bool:
        """Whether the program ran to its end (or to a breakpoint)."""
        return not self.cause.is_error

    def report(self, image: ProgramImage) -> str:
        """What stopped the run: cause, instruction, source line, stage, operand, and the way
        out."""
        if self.cause is Trap.DONE:
            return f"DONE after {self.cycles} cycles"
        where = describe(image, self.pc)
        lines = [f"{self.cause.name} at cycle {self.cycles}: {where}"]
        if self.cause is Trap.WATCHDOG:
            lines += [f"  {line}" for line in self.waiting.splitlines()]
        elif self.cause.is_error:
            lines.append(f"  operand 0x{self.operand:X} ({self.operand}), word 0x{self.word:08X}")
            if not self.precise:
                lines.append(
                    "  not precise: under issue policy overlap, younger instructions may have "
                    "completed"
                )
        if self.deadlock:
            lines.append(f"  {DEADLOCK_HELP}")
        elif self.cause in TRAP_HELP:
            lines.append(f"  {TRAP_HELP[self.cause]}")
        return "\n".join(lines)


def describe(image: ProgramImage, pc: int) -> str:
    """`pc 12 (line 34, stage gather): V_ADD_VF gp1, gp2, f0, 0`."""
    if not 0 <= pc < len(image.words):
        return f"pc {pc} (past the program's {len(image.words)} words)"
    stage = image.vocabulary[int(image.stages[pc])]
    return (
        f"pc {pc} (line {int(image.lines[pc])}, stage {stage}): {word_text(int(image.words[pc]))}"
    )
