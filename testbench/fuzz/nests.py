"""A directed program that fills the instruction memory with loops to full depth, at pcs with every
bit."""

from collections.abc import Iterator

from isa.config import PlenaConfig
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents

__all__ = ["nests"]


def nests(config: PlenaConfig) -> Iterator[tuple[str, FuzzCase]]:
    """One program, with its name."""
    source = Source(config)
    number, size = 0, 2 * config.LOOP_DEPTH + 1
    while len(source.lines) + size + number % size <= config.IMEM_WORDS:
        _nest(source, number % config.LOOP_DEPTH)
        for _ in range(number % size):  # so that each level begins at odd and at even pcs
            source.op("S_ADDI_INT", 15, 15, 1)
        number += 1
    yield "nests", source.case(contents(config, 0))


def _nest(source: Source, again: int) -> None:
    """Loops in loops; the one at level `again` goes back once."""
    depth = source.config.LOOP_DEPTH
    for level in range(depth):
        source.op("C_LOOP_START", 1 + level, 2 if level == again else 1)
    source.op("S_ADDI_INT", 14, 14, 1)
    for level in reversed(range(depth)):
        source.op("C_LOOP_END", 1 + level)
