"""The architectural machine for tests: assemble, load, run, and values as patterns."""

from typing import Any

import numpy as np
import numpy.typing as npt

from isa.assembler import assemble
from isa.config import PRESETS, PlenaConfig
from sim.hbm import HbmDevice
from sim.machine import Machine
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16, to_bits

TINY = PRESETS["tiny"]
SMALL = PRESETS["small"]


def make(text: str, config: PlenaConfig = TINY, hbm: HbmDevice | None = None) -> Machine:
    """A machine with the program `text`."""
    return Machine(config, assemble(text, config=config), hbm or HbmDevice(config))


def bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Patterns of numbers, rounded once to BF16."""
    return to_bits(round_to_bf16(np.asarray(values, np.float64)))


def numbers(patterns: npt.NDArray[np.uint16]) -> Any:
    """The values of patterns."""
    return from_bits(patterns).astype(np.float64)


def canonical(patterns: npt.NDArray[np.uint16]) -> list[Any]:
    """Patterns with every NaN as 7FC0."""
    return canonical_bits(from_bits(patterns)).tolist()


def row(*values: float, lanes: int = 8) -> npt.NDArray[np.uint16]:
    """[1, lanes] patterns: `values`, then zeros."""
    return bits([[*values, *[0.0] * (lanes - len(values))]])
