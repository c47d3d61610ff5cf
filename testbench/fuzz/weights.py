"""Directed programs of V_TOPK: weights next to the middle between two BF16 numbers, so that the
lowest bit of a term, of their sum or of its reciprocal decides; and logits of all sizes, whose
differences have many bits."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.config import PlenaConfig
from isa.topk import FROM_REGISTER, pack_policy
from sim.numerics.bf16 import BF16
from sim.numerics.topk import exact_weights, falling_exp
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents

__all__ = ["weights"]

Bits = npt.NDArray[np.uint16]

#: Rows with three logits that are tried for each program.
_TRIED = 100_000
_COUNT = 3
_SEGMENTS = 32  # of the exponential
_OF_EACH = 3
_SCATTERED = 100
#: In the lanes beyond the experts: +inf, which would be the largest.
_BEYOND = 0x7F80


def weights(config: PlenaConfig, count: int = 2) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs, with a name each."""
    for seed in range(count):
        rng = np.random.default_rng(3000 + seed)
        rows = np.concatenate([_near(rng), _scattered(rng)])
        vector = np.full((len(rows), config.MLEN), _BEYOND, np.uint16)
        vector[:, :_COUNT] = rows
        source = Source(config)
        source.gp(1, pack_policy(_COUNT, _COUNT))
        source.op("C_SET_TOPK_REG", 1)
        for row in range(len(rows)):
            source.gp(2, row * config.MLEN)
            source.op("V_TOPK", 0, 2, 0, FROM_REGISTER)
        yield f"weights {seed}", source.case(replace(contents(config, seed), vector=vector))


def _scattered(rng: np.random.Generator) -> Bits:
    """Rows of logits from 2^-16 to 8."""
    shape = _SCATTERED, _COUNT
    signs, exponents = rng.integers(0, 2, shape), rng.integers(111, 130, shape)
    return (signs << 15 | exponents << 7 | rng.integers(0, 128, shape)).astype(np.uint16)


def _near(rng: np.random.Generator) -> Bits:
    """Rows 0, -d, -d' whose weights are nearest to a middle: some for each segment of the
    exponential, and some with a subnormal weight."""
    distances = np.arange(0x3B80, 0x4100, dtype=np.uint16)  # 2^-8 to 8
    vanishing = np.arange(0x42AE, 0x42CF, dtype=np.uint16)  # 87 to 103.5
    far = rng.random(_TRIED) < 0.2
    words = np.zeros((_TRIED, _COUNT), np.uint16)
    words[:, 1] = rng.choice(distances, _TRIED)
    words[:, 2] = np.where(far, rng.choice(vanishing, _TRIED), rng.choice(distances, _TRIED))
    term = np.zeros(1 << 16)
    used: Any = np.concatenate([words[:1, 0], distances, vanishing])
    term[used] = [falling_exp(float(value)) for value in used.view(BF16)]
    terms = term[words]
    products = exact_weights(terms)
    _, exponent = np.frexp(products)
    places = np.ldexp(products, -(np.maximum(exponent, -125) - 8))  # in units of the last place
    off = np.abs(places % 1 - 0.5) / np.maximum(places, 1)
    _, exponent = np.frexp(terms)
    group = np.floor(np.ldexp(terms, 1 - exponent + 5)).astype(int) - _SEGMENTS
    group = np.where(exponent < -125, _SEGMENTS, group)
    chosen: list[int] = []
    for column in range(1, _COUNT):
        order = np.argsort(off[:, column])
        for each in range(_SEGMENTS + 1):
            chosen += order[group[order, column] == each][:_OF_EACH].tolist()
    chosen += np.argsort(off[:, 0])[: 10 * _OF_EACH].tolist()
    rows = words[chosen]
    return np.where(rows == 0, rows, rows | 0x8000).astype(np.uint16)
