"""Which dependencies between neighbouring instructions have occurred."""

from collections import Counter
from collections.abc import Sequence

from isa.opcodes import OPCODES
from sim.machine import Machine
from testbench.fuzz.dependencies import ADJACENT, Dependency, Use, hazard_of, possible
from testbench.fuzz.footprints import Place, footprint


class PairCoverage:
    """Counts dependencies of neighbours in dispatch order; give `saw` to `Lockstep`, and call
    `begin` before each program.

    Attributes: `counts` by dependency.
    """

    def __init__(self) -> None:
        self.counts: Counter[Dependency] = Counter()
        self._before: tuple[str, list[tuple[Use, Place]]] | None = None

    def begin(self) -> None:
        """The next instruction is the first of a program."""
        self._before = None

    def saw(self, machine: Machine, word: int) -> None:
        """The instruction `word` was dispatched; `machine` is about to execute it."""
        name = OPCODES[word & 0x3F].mnemonic
        touched = footprint(machine.memories, word)
        if self._before is not None:
            first, before = self._before
            self.counts[Dependency(first, name, ADJACENT)] += 1
            for a, there in before:
                for b, here in touched:
                    hazard = hazard_of(a, b)
                    if hazard and there.meets(here):
                        fields = a.field, b.field
                        self.counts[Dependency(first, name, hazard, a.resource, fields)] += 1
        self._before = name, touched

    def missing(self) -> list[Dependency]:
        """Those that can be, and have not been."""
        return [d for d in possible() if not self.counts[d]]


def summary(
    all_of_them: Sequence[Dependency], *stages: Counter[Dependency]
) -> dict[tuple[str, str], list[int]]:
    """By (resource, hazard): how many there can be, and how many each stage has seen so far."""
    rows: dict[tuple[str, str], list[int]] = {}
    ordered = sorted(all_of_them, key=lambda d: (d.resource, d.hazard))
    for dependency in ordered:
        row = rows.setdefault((dependency.resource, dependency.hazard), [0] * (1 + len(stages)))
        row[0] += 1
        for i, counts in enumerate(stages, 1):
            row[i] += bool(counts[dependency])
    return rows
