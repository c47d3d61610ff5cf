"""Operands of the leaves: all of them where there are few, else patterns and related random
ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[Any]

_RANDOM = 400_000
_FEW = 17  # bits of all inputs together
_SCALES = (0, 1, 2, 4, 7, 8, 100, 119, 120, 127, 130, 200, 246, 248, 251, 253, 254, 255)


def is_exhaustive(widths: Sequence[int]) -> bool:
    """Whether `operands` are all that there are, for inputs of these widths."""
    return sum(widths) <= _FEW


def operands(title: str, inputs: dict[str, int], seed: int = 0) -> dict[str, Words]:
    """Arrays of operands by port, for the leaf with this title and these input widths."""
    rng = np.random.default_rng(seed)
    if is_exhaustive(widths := list(inputs.values())):
        every = np.arange(1 << sum(widths), dtype=np.uint32)
        found: dict[str, Words] = {}
        for port, width in inputs.items():
            found[port] = every & np.uint32((1 << width) - 1)
            every = every >> np.uint32(width)
        return found
    if title.startswith("MxEncode"):
        words = np.arange(1 << 16, dtype=np.uint32)
        values = np.tile(words, len(_SCALES))
        scales = np.repeat(np.array(_SCALES, np.uint32), len(words))
        return dict(zip(inputs, (values, scales), strict=True))
    if title.startswith("MxBlockScale"):
        return _blocks(rng, inputs)
    if len(inputs) == 1:
        words = np.concatenate([_patterns(23), _words(rng, 23, _RANDOM), _ties(rng)])
        return {port: words.astype(np.uint32) for port in inputs}
    return _related(rng, inputs)


def _ties(rng: np.random.Generator) -> Words:
    """FP32 words half way between two BF16 numbers, and one bit away from that; NaNs of one bit."""
    low = 0x8000 ^ 1 << rng.integers(0, 17, _RANDOM)
    words = rng.integers(0, 1 << 16, _RANDOM) << 16 | low & 0xFFFF
    return np.concatenate([words, 0x7F800000 | 1 << np.arange(23)])


def _blocks(rng: np.random.Generator, inputs: dict[str, int]) -> dict[str, Words]:
    """Blocks of random, of small, and of special numbers, and of zeros with one number each."""
    count, size = 20_000, len(inputs)
    any_ = rng.integers(0, 1 << 16, (count, size))
    small = rng.integers(0, 0x0500, (count, size))
    special = rng.choice([0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 1, 0x3F80], (count, size))
    single = np.zeros((count, size), np.int64)
    single[np.arange(count), rng.integers(0, size, count)] = rng.integers(0, 1 << 16, count)
    blocks = np.concatenate([any_, small, special, single]).astype(np.uint32)
    return {port: blocks[:, i].copy() for i, port in enumerate(inputs)}


def _related(rng: np.random.Generator, inputs: dict[str, int]) -> dict[str, Words]:
    """Two floating-point operands (8 exponent bits), and what else there is at random: crossed
    patterns; exponents near each other; sums of exponents near both limits; cancelling pairs."""
    (first, second), others = list(inputs.items())[:2], list(inputs.items())[2:]
    a_man, b_man = first[1] - 9, second[1] - 9
    cross = [g.ravel() for g in np.meshgrid(_patterns(a_man), _patterns(b_man))]
    a, b = (_words(rng, man, _RANDOM) for man in (a_man, b_man))
    exponents = a >> a_man & 255
    near = exponents + rng.integers(-a_man - 4, a_man + 5, _RANDOM)
    total = rng.choice([0, 1], _RANDOM) * 251 + rng.integers(96, 136, _RANDOM) - exponents
    kind = rng.integers(0, 4, _RANDOM)
    wanted = np.where(kind == 0, near, np.where(kind == 1, total, b >> b_man & 255))
    b = b & ~(255 << b_man) | np.clip(wanted, 0, 255) << b_man
    if a_man == b_man:
        mirrored = (a ^ 1 << (a_man + 8)) + rng.integers(-3, 4, _RANDOM)
        b = np.where(kind == 3, mirrored & ((1 << (a_man + 9)) - 1), b)
    found: dict[str, Words] = {
        first[0]: np.concatenate([cross[0], a]).astype(np.uint32),
        second[0]: np.concatenate([cross[1], b]).astype(np.uint32),
    }
    size = len(found[first[0]])
    return found | {p: rng.integers(0, 1 << w, size).astype(np.uint32) for p, w in others}


def _patterns(man: int) -> Words:
    """Exponents at all limits, with the significands 0, 1, a half, all ones and those beside."""
    top, bias = 255, 127
    exponents = [0, 1, 2, 3, man - 1, man, man + 1, top - 3, top - 2, top - 1, top]
    exponents += [bias + d for d in (-man - 2, -man - 1, -man, -8, -2, -1, 0, 1, 2)]
    exponents += [bias + d for d in (7, 8, 9, man - 1, man, man + 1, man + 2)]
    half = 1 << (man - 1)
    significands = [0, 1, 2, half - 1, half, half + 1, (1 << man) - 2, (1 << man) - 1]
    return np.array(
        [s << (man + 8) | e << man | m for s in (0, 1) for e in exponents for m in significands]
    )


def _words(rng: np.random.Generator, man: int, count: int) -> Words:
    """Any sign and exponent; significands that end in runs of zeros or of ones."""
    cut = rng.integers(0, man + 1, count)
    low = (1 << cut) - 1
    words = rng.integers(0, 1 << (man + 9), count)
    return np.where(rng.random(count) < 0.5, words | low, words & ~low)
