"""The hunt for one unit: its mutants, each run until a check notices it, results kept as they
come."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sim.observers import TagError
from testbench.mutation.engine import MutantEngine, engine_of
from testbench.mutation.leaves import bench_of
from testbench.mutation.mutant import Mutant
from testbench.mutation.programs import Program
from testbench.mutation.runner import Hang, Prepared, Runner
from testbench.mutation.sources import sources_digest
from testbench.mutation.trace import Difference, Trace, difference
from testbench.mutation.units import CONFIG, LeafUnit, MachineUnit

__all__ = ["CHECKS", "Job", "Verdict", "hunt"]

#: What can notice a mutant, and how it is told from the others.
CHECKS: dict[str, str] = {
    "lock step": "another instruction, result, memory content or halt record than the machine's",
    "tags": "the stage or pc of an event or a request is not the image's",
    "watchdog": "the program does not end",
    "settling": "combinational logic does not settle",
    "timing": "a dispatch or completion in another cycle",
    "counters": "a profile counter, in a run that is otherwise equal",
    "leaf": "another result for operands of the leaf's tests",
}
EQUAL = "equal"  #: the leaf was run on all of its inputs
_STRONG = {Difference.RESULT: "lock step"}
_WEAK = {Difference.TIMING: "timing", Difference.COUNTERS: "counters"}
#: How many more programs a mutant runs that was noticed by its timing or its counters, for lock
#: step to notice it too.
_PATIENCE = 30


@dataclass(frozen=True)
class Job:
    """What to hunt, how many of them, and where to keep what follows from it."""

    unit: MachineUnit | LeafUnit
    mutants: int
    seed: int
    folder: Path
    keys: frozenset[str] | None = None


@dataclass(frozen=True)
class Verdict:
    """`by`: the check that noticed the mutant, "equal" when it is proven equal to the original, ""
    when it survived; `where`: the program, or the operands."""

    mutant: Mutant
    by: str
    where: str


def hunt(
    job: Job, programs: Sequence[Program], progress: Callable[[int, int], None]
) -> list[Verdict]:
    """All verdicts of a unit; those that an interrupted hunt has left are used.

    `progress` is called with the number of mutants that are done, and of all.

    Raises:
        CompilerError, FormalToolsMissing: see `engine_of`.
    """
    engines = job.folder / "engines"
    if isinstance(job.unit, LeafUnit):
        hunter = bench_of(job.unit, count=job.mutants, seed=job.seed, folder=engines, keys=job.keys)
    else:
        engine = engine_of(
            job.unit.name, count=job.mutants, seed=job.seed, folder=engines, keys=job.keys
        )
        programs = [p for p in programs if not p.kind or p.kind in job.unit.kinds]
        hunter = MachineBench(engine, programs)
    store = _Store(job, programs)
    verdicts: list[Verdict] = []
    for number, mutant in enumerate(hunter.mutants, 1):
        verdict = store.known.get(mutant.key)
        if verdict is None:
            verdict = Verdict(mutant, *hunter.judge(number))
            store.add(verdict)
        verdicts.append(verdict)
        progress(number, len(hunter.mutants))
    return verdicts


class MachineBench:
    """The machine with `mutants`; `judge` runs the programs with one of them. They are loaded, and
    run without one, when they are first needed."""

    def __init__(self, engine: MutantEngine, programs: Sequence[Program]) -> None:
        self.mutants = engine.mutants
        self._engine, self._programs = engine, programs
        self._runner = Runner(engine)
        self._loaded: list[tuple[Prepared, Trace]] = []
        self._state_registers = len(engine.probe.state_registers)

    def _all(self) -> Iterator[tuple[Prepared, Trace]]:
        yield from self._loaded
        while len(self._loaded) < len(self._programs):
            prepared = self._runner.prepare(self._programs[len(self._loaded)])
            self._loaded.append((prepared, self._runner.run(prepared, 0)))
            yield self._loaded[-1]

    def judge(self, number: int) -> tuple[str, str]:
        """The check that notices a mutant, and the program."""
        weak: tuple[str, str] | None = None
        patience = _PATIENCE
        for prepared, wanted in self._all():
            name = prepared.program.name
            by = self._noticed(prepared, wanted, number)
            if by in _STRONG.values() or by in ("tags", "watchdog", "settling"):
                return by, name
            if by and weak is None:
                weak = by, name
            if weak is not None:
                patience -= 1
                if not patience:
                    break
        return weak or ("", "")

    def _noticed(self, prepared: Prepared, wanted: Trace, number: int) -> str:
        try:
            found = self._runner.run(prepared, number)
        except Hang:
            return "watchdog"
        except (TagError, IndexError):  # the check's, of a pc beyond the program
            return "tags"
        except RuntimeError:
            return "settling"
        noticed = difference(found, wanted, CONFIG, self._state_registers)
        return "" if noticed is None else (_STRONG | _WEAK)[noticed]


class _Store:
    """Verdicts in a file, a line each; those of other sources or other programs do not count."""

    def __init__(self, job: Job, programs: Sequence[Program]) -> None:
        part = "" if job.keys is None else "-some"
        self._path = job.folder / f"{job.unit.name}-{job.mutants}-{job.seed}{part}.jsonl"
        sources = sources_digest("isa", "rtl", "sim", "testbench/fuzz", "testbench/mutation")
        head = {"sources": sources, "programs": len(programs)}
        self.known: dict[str, Verdict] = {}
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        if lines and json.loads(lines[0]) == head:
            for line in lines[1:]:
                entry = json.loads(line)
                mutant = Mutant(**entry["mutant"])
                self.known[mutant.key] = Verdict(mutant, entry["by"], entry["where"])
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def add(self, verdict: Verdict) -> None:
        """Keep one more."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")
