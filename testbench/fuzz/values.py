"""Random contents of memories, dense in the values that arithmetic gets wrong."""

from typing import Any

import numpy as np
import numpy.typing as npt

SPECIAL = np.array(
    [
        *(0x0000, 0x8000, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F81),
        *(0x0001, 0x8001, 0x007F, 0x0080, 0x8080, 0x7F7F, 0xFF7F, 0x3F81, 0x42B0, 0xC2B0),
    ],
    np.uint16,
)


def bf16_values(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    """BF16 patterns: numbers of like size, any pattern, and special values."""
    kind = rng.random(shape)
    exponents = rng.integers(120, 134, shape)
    signs, fractions = rng.integers(0, 2, shape), rng.integers(0, 128, shape)
    near = signs << 15 | exponents << 7 | fractions
    anything = rng.integers(0, 1 << 16, shape)
    share = rng.choice((0.0, 0.05, 0.3))
    values: npt.NDArray[Any] = np.where(kind < 2 * share, anything, near)
    values = np.where(kind < share, rng.choice(SPECIAL, shape), values)
    return values.astype(np.uint16)


def mx_bytes(rng: np.random.Generator, elements: int, scales: int) -> npt.NDArray[np.uint8]:
    """Element codes, then block scales: mostly near 1, some at the ends of their range."""
    codes = rng.integers(0, 256, elements)
    factors = rng.integers(118, 132, scales)
    ends = rng.choice(np.array([0, 1, 2, 253, 254, 255]), scales)
    factors = np.where(rng.random(scales) < rng.choice((0.0, 0.1)), ends, factors)
    return np.concatenate([codes, factors]).astype(np.uint8)
