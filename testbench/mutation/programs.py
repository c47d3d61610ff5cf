"""The programs that every mutant runs: fixed seeds of the random generators, and the directed
ones."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from isa.config import ISSUE_POLICIES, PlenaConfig
from testbench.fuzz.accumulators import accumulators
from testbench.fuzz.bursts import bursts
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.crowded import CrowdedGenerator
from testbench.fuzz.dense import dense
from testbench.fuzz.errors import errors
from testbench.fuzz.far import far
from testbench.fuzz.generator import Generator
from testbench.fuzz.meetings import meetings
from testbench.fuzz.run import is_runnable
from testbench.fuzz.session import EVERY_OPCODE
from testbench.fuzz.sweeps import sweeps
from testbench.fuzz.weights import weights

#: Seeds that run before the directed programs: most mutants need no more.
_DIRECTED_BEHIND = 8


@dataclass(frozen=True)
class Program:
    """A case, and how the host runs it.

    Attributes:
        through_traps: it is started again behind each precise trap.
        by_ports: the program is written through the machine's port, and the counters are read
            through theirs, after they were preset to large numbers.
    """

    name: str
    case: FuzzCase
    through_traps: bool = False
    by_ports: bool = False


def _directed(config: PlenaConfig) -> Iterator[tuple[str, FuzzCase]]:
    """More of each kind than in the default tests."""
    yield from meetings(config, 40)
    yield from dense(config, 12)
    yield from errors(config, 40)
    yield from bursts(config, 20)
    yield from weights(config, 6)
    yield from accumulators(config, 64)
    yield from far(config)


def programs(config: PlenaConfig, count: int) -> Iterator[Program]:
    """`count` seeds of each generator, under both issue policies, and the directed programs."""
    for seed in range(count):
        plain = Generator(config, seed, EVERY_OPCODE).case(ISSUE_POLICIES[0])
        if is_runnable(plain):
            for issue in ISSUE_POLICIES:
                yield Program(f"random {seed} {issue}", replace(plain, issue=issue))
        crowded = CrowdedGenerator(config, seed, EVERY_OPCODE).case("overlap")
        if is_runnable(crowded):
            yield Program(f"crowded {seed}", crowded, by_ports=seed < 6)
        if seed == min(count, _DIRECTED_BEHIND) - 1:
            yield from (Program(*named) for named in _directed(config))
            for name, case in sweeps(config):
                yield Program(name, case, through_traps=True)
