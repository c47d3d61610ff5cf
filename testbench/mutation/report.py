"""What a hunt found, per unit: counts, rates, and the survivors that nobody has explained."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table

from testbench.mutation.hunt import CHECKS, EQUAL, Verdict
from testbench.mutation.survivors import Explanation, explanation

#: The part of a unit's mutants that the tests must kill.
REQUIRED = 0.95


@dataclass(frozen=True)
class UnitReport:
    """The result of one unit.

    Attributes:
        killed: by check.
        proven: equal to the original on all inputs; not counted.
        equivalent: equivalent by the argument in the file of survivors; not counted.
        survivors: all others, explained or not.
        unexplained: those that the file does not mention.
        misfits: what the file says and the hunt does not bear out.
    """

    unit: str
    mutants: int
    killed: Counter[str]
    proven: int
    equivalent: int
    survivors: list[Verdict] = field(repr=False)
    unexplained: list[Verdict] = field(repr=False)
    misfits: list[str] = field(repr=False, default_factory=list)

    @property
    def counted(self) -> int:
        """Mutants that can be told from the original."""
        return self.mutants - self.proven - self.equivalent

    @property
    def rate(self) -> float:
        """The part of the counted mutants that was killed."""
        return self.killed.total() / self.counted if self.counted else 1.0

    @property
    def ok(self) -> bool:
        """Whether enough were killed, and every survivor is explained, and nothing else."""
        return self.rate >= REQUIRED and not self.unexplained and not self.misfits


def _misfits(
    unit: str, verdicts: Sequence[Verdict], known: Sequence[Explanation], complete: bool
) -> Iterator[str]:
    """Keys of the file that call a killed mutant equivalent; those that cover no survivor, when the
    hunt was `complete`."""
    for entry in known:
        for key in (k for k in entry.keys if k.startswith(f"{unit}:")):
            covered = [v for v in verdicts if entry.covers_by(key, v.mutant)]
            killed = next((v for v in covered if v.by and v.by != EQUAL), None)
            if entry.equivalent and killed is not None:
                how = f"{killed.by} in {killed.where}"
                yield f"{key}: said to be equivalent, but {killed.mutant.key} is noticed by {how}"
            elif complete and all(v.by for v in covered):
                yield f"{key}: covers no survivor (any more); take it out"


def report_of(
    unit: str,
    verdicts: Sequence[Verdict],
    known: Sequence[Explanation],
    *,
    complete: bool = False,
) -> UnitReport:
    """Counts of one unit; `complete`: these are the mutants and programs that the file is about."""
    alive = [v for v in verdicts if not v.by]
    explained = [(v, explanation(known, v.mutant)) for v in alive]
    equivalent = [v for v, e in explained if e is not None and e.equivalent]
    return UnitReport(
        unit,
        len(verdicts),
        Counter(v.by for v in verdicts if v.by and v.by != EQUAL),
        sum(v.by == EQUAL for v in verdicts),
        len(equivalent),
        [v for v, e in explained if e is None or not e.equivalent],
        [v for v, e in explained if e is None],
        list(_misfits(unit, verdicts, known, complete)),
    )


def table(reports: Sequence[UnitReport]) -> Table:
    """Units by checks."""
    right: Any = {"justify": "right"}
    result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    result.add_column("unit", no_wrap=True)
    for name in ("mutants", *CHECKS, "equal", "alive", "rate"):
        result.add_column(name, **right)
    for r in reports:
        checks = [str(r.killed[name] or "") for name in CHECKS]
        equal = str(r.proven + r.equivalent or "")
        left = f"{len(r.survivors)}" if r.survivors else ""
        mark = "" if r.ok else " FAIL"
        result.add_row(r.unit, str(r.mutants), *checks, equal, left, f"{100 * r.rate:.1f} %{mark}")
    return result


def as_json(reports: Sequence[UnitReport], seed: int) -> dict[str, Any]:
    """The report as a document: per unit the counts, and per survivor its key and line."""
    return {
        "seed": seed,
        "units": {
            r.unit: {
                "mutants": r.mutants,
                "killed": dict(r.killed),
                "proven_equal": r.proven,
                "equivalent": r.equivalent,
                "rate": round(r.rate, 4),
                "survivors": [
                    {"key": v.mutant.key, "source": v.mutant.source, "line": v.mutant.line}
                    for v in r.survivors
                ],
                "unexplained": [v.mutant.key for v in r.unexplained],
                "misfits": r.misfits,
            }
            for r in reports
        },
    }
