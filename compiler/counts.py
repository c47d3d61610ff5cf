"""How often the machine will issue each instruction of a program, from its loop counts."""

from collections import Counter
from dataclasses import dataclass

from compiler.errors import CompileError
from isa import Instruction, ProgramImage


@dataclass(frozen=True)
class IssueCounts:
    """Issued instructions by (stage name, mnemonic)."""

    by_stage_and_mnemonic: dict[tuple[str, str], int]

    @property
    def total(self) -> int:
        """All issued instructions: the least cycles that the dispatcher needs."""
        return sum(self.by_stage_and_mnemonic.values())

    def of(self, *, label: str | None = None, mnemonic: str | None = None) -> int:
        """Those of the stage called `label`, of one mnemonic, or of both; None is any."""
        return sum(
            count
            for (has_label, has_mnemonic), count in self.by_stage_and_mnemonic.items()
            if label in (None, has_label) and mnemonic in (None, has_mnemonic)
        )

    @property
    def by_stage(self) -> dict[str, int]:
        """Issued instructions per stage that has any, in program order."""
        counts: Counter[str] = Counter()
        for (stage, _), count in self.by_stage_and_mnemonic.items():
            counts[stage] += count
        return dict(counts)


def count_issued(image: ProgramImage) -> IssueCounts:
    """Count a program whose loop counters are never rewritten in their bodies.

    C_LOOP_START is issued once per entry, the body and C_LOOP_END once per iteration.
    """
    counts: Counter[tuple[str, str]] = Counter()
    iterations = [1]
    for word, stage in zip(image.words.tolist(), image.stages.tolist(), strict=True):
        instruction = Instruction.decode(word)
        mnemonic = instruction.opcode.mnemonic
        counts[image.vocabulary[stage], mnemonic] += iterations[-1]
        if mnemonic == "C_LOOP_START":
            iterations.append(iterations[-1] * instruction.value("imm"))
        elif mnemonic == "C_LOOP_END":
            iterations.pop()
    if len(iterations) != 1:
        raise CompileError(
            f"{len(iterations) - 1} loops are not closed (emit loops with loops.loop)"
        )
    return IssueCounts(dict(counts))
