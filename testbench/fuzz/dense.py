"""Directed programs: unit by unit, on data in which every bit of a sum, a comparison or a transfer
can decide."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from isa.config import PlenaConfig
from testbench.fuzz.case import Contents, Device, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents
from testbench.fuzz.values import bf16_values

__all__ = ["dense"]


def dense(config: PlenaConfig, count: int = 4) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs of each kind, with a name each."""
    kinds: tuple[tuple[str, Callable[..., None], Callable[..., Contents]], ...] = (
        ("ties", _ties, _tie_contents),
        ("rankings", _rankings, _hard_rows),
        ("reductions", _reductions, _summed_rows),
        ("scalars", _scalars, _summed_rows),
        ("transfers", _transfers, _tie_contents),
        ("distant rows", _distant_rows, _tie_contents),
    )
    for name, program, data in kinds:
        for seed in range(count):
            source = Source(config)
            program(source, random.Random(f"{name} {seed}"))
            device = Device(seed=seed)
            if name == "transfers" and seed:
                disturbed = (None, 3, 1, 6)[seed % 4], (0, 0, 5, 40)[seed % 4], 0.2 * (seed % 4)
                device = Device(seed, *disturbed)
            if name == "distant rows":
                device = Device(seed, extra_latency=60 + 40 * seed)
            yield f"{name} {seed}", source.case(data(config, seed), device)


# Reductions and scalars.


def _summed_rows(config: PlenaConfig, seed: int) -> Contents:
    """Rows that tie often, rows of any numbers, rows whose lanes are far apart."""
    rng = np.random.default_rng(2000 + seed)
    given = contents(config, seed)
    vector = _tie_values(rng, given.vector.shape)
    vector[1::3] = bf16_values(rng, vector[1::3].shape)
    vector[2::3] = rng.integers(0, 1 << 16, vector[2::3].shape)
    fp = np.where(rng.random(128) < 0.5, _tie_values(rng, (128,)), rng.integers(0, 1 << 16, 128))
    return replace(given, vector=vector, fp=fp.astype(np.uint16))


def _reductions(source: Source, rng: random.Random) -> None:
    """Sums and maxima of rows, some lanes masked, onto numbers from FP_MEM."""
    c = source.config
    for number in range(100):
        source.gp(1, rng.randrange(64) * c.MLEN)
        source.gp(2, rng.randrange(1 << c.heads))
        source.op("C_SET_V_MASK_REG", 2)
        target = rng.randrange(1, 8)
        source.op("S_LD_FP", target, 0, rng.randrange(128))
        kind = rng.choice(("V_RED_SUM", "V_RED_SUM", "V_RED_MAX"))
        source.op(kind, target, 1, rng.randrange(2))
        if rng.random() < 0.3:
            source.op(kind, target, 1, 0)
        source.op("S_ST_FP", target, 0, 128 + number)


def _scalars(source: Source, rng: random.Random) -> None:
    """Every scalar operation on numbers from FP_MEM; rows made at every offset."""
    c = source.config
    binary = ("S_ADD_FP", "S_SUB_FP", "S_MAX_FP", "S_MUL_FP")
    unary = ("S_EXP_FP", "S_RECI_FP", "S_SQRT_FP")
    for number in range(150):
        source.op("S_LD_FP", 1, 0, rng.randrange(128))
        source.op("S_LD_FP", 2, 0, rng.randrange(128))
        first, second = rng.choice(((1, 2), (2, 1), (1, 0), (0, 2), (1, 1)))
        target = rng.randrange(1, 8)
        if rng.random() < 0.6:
            source.op(rng.choice(binary), target, first, second)
        else:
            source.op(rng.choice(unary), target, first)
        source.op("S_ST_FP", target, 0, 128 + number)
    for offset in range(3 * c.MLEN):
        source.gp(1, (c.VRAM_ROWS - 1 - offset * 41 % c.VRAM_ROWS) * c.MLEN)
        source.gp(2, 1 << offset % 9)
        source.op("S_MAP_V_FP", 1, 2, offset)


# Transfers.


def _transfers(source: Source, rng: random.Random) -> None:
    """Loads and stores at any offset and stride, one behind the other; each store is read back."""
    c = source.config
    for index in range(4):
        source.base(index, rng.randrange(0, 4096, 8), (1, 2))
    for _ in range(70):
        source.gp(1, rng.randrange(4096))
        source.op("C_SET_SCALE_REG", 1)
        source.gp(1, rng.randrange(0, 40) * c.MX_BLOCK)
        source.op("C_SET_STRIDE_REG", 1)
        source.gp(2, rng.randrange(0, 200) * c.MX_BLOCK)
        source.gp(3, rng.randrange(60, c.VRAM_ROWS - 8) * c.MLEN)
        source.gp(4, rng.randrange(c.MRAM_TILES) * c.tile_elements)
        source.gp(5, rng.randrange(60) * c.MLEN)
        base, rstride, precision = rng.randrange(4), rng.randrange(2), rng.randrange(2)
        for _ in range(rng.randrange(1, 4)):
            kind = rng.randrange(3)
            if kind == 0:
                source.op("H_PREFETCH_M", 4, 2, base, rstride, precision)
            elif kind == 1:
                source.op("H_PREFETCH_V", 3, 2, base, rstride, precision)
            else:
                source.op("H_STORE_V", 5, 2, base, rstride, precision)
                source.op("H_PREFETCH_V", 3, 2, base, rstride, precision)


def _distant_rows(source: Source, rng: random.Random) -> None:
    """Loads of rows that share no beat, so many that memory owes as many answers as it may."""
    c = source.config
    source.gp(1, 1 << 14)
    source.op("C_SET_SCALE_REG", 1)
    source.gp(1, 64 * c.MX_BLOCK)
    source.op("C_SET_STRIDE_REG", 1)
    for number in range(40):
        source.gp(2, rng.randrange(0, 512, c.MX_BLOCK))
        source.gp(3, number * c.v_prefetch * c.MLEN)
        source.op("H_PREFETCH_V", 3, 2, 0, 1, 0)
        if rng.random() < 0.1:
            source.op("C_BREAK")


# Ties.


def _tie_values(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    """Few significant bits at many exponents: sums of products often lie half way between two
    BF16 numbers, so that the lowest bit of a partial sum decides."""
    exponents = 127 + rng.integers(-9, 2, shape)
    fractions = rng.choice(np.array([0, 0, 0, 64, 1, 127]), shape)
    signs = rng.integers(0, 2, shape)
    values = signs << 15 | exponents << 7 | fractions
    return np.where(rng.random(shape) < 0.3, 0, values).astype(np.uint16)


def _tie_contents(config: PlenaConfig, seed: int) -> Contents:
    """The products of rows 0 to 7 with tile 0 are half the least BF16 number; so are, with the
    factor of a per-head product, those of rows 8 to 15. Rows 16 to 63 and the other tiles hold
    values that tie often."""
    rng = np.random.default_rng(seed)
    given = contents(config, seed)
    vector, matrix = _tie_values(rng, given.vector.shape), _tie_values(rng, given.matrix.shape)
    vector[:16], matrix[0] = 0, 0
    vector[:8, 0] = (127 - 67) << 7
    vector[8:16, :: config.HLEN] = (127 - 66) << 7
    matrix[0, :: config.HLEN] = (127 - 67) << 7
    return replace(given, vector=vector, matrix=matrix, fp=_tie_values(rng, given.fp.shape))


#: Products with the registers of their operands, and the write-outs, at 0 or with a stride.
_FORMS = (
    ("M_MM", (1, 2), "M_MM_WO", 1),
    ("M_TMM", (2, 1), "M_MM_WO", 0),
    ("M_MV", (1, 2), "M_MV_WO", 0),
    ("M_TMV", (1, 2), "M_MV_WO", 4),
    ("M_BMV", (1, 5), "M_BMV_WO", 0),
    ("M_BTMV", (1, 5), "M_BMV_WO", 0),
    ("M_BMM", (1, 5), "M_BMM_WO", 0),
    ("M_BTMM", (1, 5), "M_BMM_WO", 0),
)


def _ties(source: Source, rng: random.Random) -> None:
    """Products and write-outs of every form, into accumulators that were just cleared."""
    mlen, tile = source.config.MLEN, source.config.tile_elements
    for round_ in range(30):
        small = round_ % 3 == 0
        source.gp(1, 0 if small else rng.randrange(1, 4) * tile)
        source.gp(2, (0 if small else rng.randrange(16, 48)) * mlen)
        source.gp(3, rng.randrange(64, 128) * mlen)
        source.gp(4, rng.randrange(4, 16))
        source.gp(5, (8 if small else rng.randrange(16, 48)) * mlen)
        for product, operands, write_out, target in _FORMS:
            if write_out == "M_BMM_WO" and round_ % 6 > 1:
                continue  # these take long
            for _ in range(1 if small else rng.choice((1, 1, 2, 3))):
                source.op(product, 0, *operands)
            if write_out == "M_MM_WO":
                source.op(write_out, 3, 4 if target else 0, 0)
            else:
                source.op(write_out, 3, target)
        source.op("V_RED_SUM", rng.randrange(1, 8), 2, 0)
        source.op("S_ADD_FP", 1, rng.randrange(8), rng.randrange(8))


# Rankings.


def _hard_rows(config: PlenaConfig, seed: int) -> Contents:
    """Rows of logits: -inf and NaN throughout, several +inf, zeros of both signs, equal ones, ones
    far apart (weights down to the least), ones that differ in the last place."""
    rng = np.random.default_rng(1000 + seed)
    given = contents(config, seed)
    vector = bf16_values(rng, given.vector.shape)
    lanes = config.MLEN
    for row in range(len(vector)):
        far = (rng.random(lanes) * rng.choice((1, 30, 90, 110, 300))).astype(np.float32)
        apart = (far.view(np.uint32) >> 16).astype(np.uint16) | np.uint16(0x8000)
        near = (0x4000 + rng.integers(0, 4, lanes)).astype(np.uint16)
        tiny = rng.integers(0, 300, lanes).astype(np.uint16) | np.uint16(0x8000 * (row % 2))
        nothing = rng.choice(np.array([0xFF80, 0x7FC0, 0xFFC1, 0xFF80], np.uint16), lanes)
        zeros = rng.choice(np.array([0, 0x8000], np.uint16), lanes)
        infinite = rng.choice(np.array([0x7F80, 0xFF80, 0x3F80], np.uint16), lanes)
        almost = np.where(np.arange(lanes) == rng.integers(lanes), np.uint16(0xFF7F), nothing)
        kinds = [vector[row], apart, near, nothing, zeros, infinite, almost, apart, tiny, apart]
        vector[row] = kinds[(row + seed) % len(kinds)]
    return replace(given, vector=vector)


def _rankings(source: Source, rng: random.Random) -> None:
    """Selections of every size over rows of one kind or of several."""
    c = source.config
    for number in range(40):
        experts = rng.choice((1, 2, c.MLEN - 1, c.MLEN, c.MLEN, c.MLEN + 3, 3 * c.MLEN))
        count = rng.randrange(1, min(experts, c.TOPK_MAX) + 1)
        source.gp(1, experts << 8 | count)
        source.op("C_SET_TOPK_REG", 1)
        source.gp(2, (number + rng.randrange(20)) * c.MLEN)
        source.gp(3, 20 * number)
        source.op("V_TOPK", 3, 2, 3, 15)
        source.op("S_LD_FP", 1, 3, 0)
