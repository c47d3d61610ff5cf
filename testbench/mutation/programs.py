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
from testbench.fuzz.faults import faults
from testbench.fuzz.generator import Generator
from testbench.fuzz.meetings import meetings
from testbench.fuzz.nests import nests
from testbench.fuzz.run import is_runnable
from testbench.fuzz.session import EVERY_OPCODE
from testbench.fuzz.sweeps import sweeps
from testbench.fuzz.tiles import tiles
from testbench.fuzz.traffic import traffic
from testbench.fuzz.weights import weights

#: Seeds that run before the directed programs: most mutants need no more.
_DIRECTED_BEHIND = 8
#: Programs of `traffic`, and how many of them are `by_ports`, behind as many others.
_TRAFFIC, _BY_PORTS = 420, 48
_CROWDED_BY_PORTS = 6


@dataclass(frozen=True)
class Program:
    """A case, and how the host runs it.

    Attributes:
        through_traps: it is started again behind each precise trap.
        by_ports: the program is written through the machine's port, and the counters are read
            through theirs, after they were preset to large numbers; the number of the preset.
        kind: "" runs for every unit, others for those that ask for them.
    """

    name: str
    case: FuzzCase
    through_traps: bool = False
    by_ports: int | None = None
    kind: str = ""


def _directed(config: PlenaConfig) -> Iterator[tuple[str, FuzzCase]]:
    """More of each kind than in the default tests."""
    yield from meetings(config, 40)
    yield from dense(config, 12)
    yield from errors(config, 40)
    yield from bursts(config, 20)
    yield from weights(config, 6)
    yield from accumulators(config, 64)
    yield from far(config)
    yield from nests(config)
    yield from tiles(config, 8)


def programs(config: PlenaConfig, count: int, kinds: frozenset[str]) -> Iterator[Program]:
    """`count` seeds of each generator, under both issue policies, and the directed programs; of
    those that not every unit runs, these kinds."""
    for seed in range(count):
        plain = Generator(config, seed, EVERY_OPCODE).case(ISSUE_POLICIES[0])
        if is_runnable(plain):
            for issue in ISSUE_POLICIES:
                yield Program(f"random {seed} {issue}", replace(plain, issue=issue))
        crowded = CrowdedGenerator(config, seed, EVERY_OPCODE).case("overlap")
        if is_runnable(crowded):
            yield Program(
                f"crowded {seed}", crowded, by_ports=seed if seed < _CROWDED_BY_PORTS else None
            )
        if seed == min(count, _DIRECTED_BEHIND) - 1:
            yield from (Program(*named) for named in _directed(config))
            for name, case in faults(config):
                yield Program(name, case, through_traps=case.issue == "serial")
            if "sweeps" in kinds:
                for name, case in sweeps(config):
                    yield Program(name, case, through_traps=True, kind="sweeps")
    many = _TRAFFIC if "traffic" in kinds else _BY_PORTS if "ports" in kinds else 0
    for number, (name, case) in enumerate(traffic(config, many)):
        if number < _BY_PORTS and "ports" in kinds:
            yield Program(name, case, by_ports=_CROWDED_BY_PORTS + number, kind="ports")
        elif "traffic" in kinds:
            yield Program(name, case, kind="traffic")
