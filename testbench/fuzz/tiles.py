"""Directed programs: products with every tile, and products whose rounding one low bit decides."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from isa.config import PlenaConfig
from testbench.fuzz.case import Contents, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents
from testbench.fuzz.values import bf16_values

__all__ = ["tiles"]

#: Products with the registers of their operands.
_PLAIN = (("M_MM", (1, 2)), ("M_TMM", (2, 1)))
_ONE_ROW = (("M_MV", (1, 2)), ("M_TMV", (1, 2)))


def tiles(config: PlenaConfig, count: int = 2) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs of each kind, with a name each."""
    kinds: tuple[tuple[str, Callable[..., None], Callable[..., Contents]], ...] = (
        ("tiles", _tiles, _full_tiles),
        ("low bits", _low_bits, _low_bit_rows),
    )
    for name, program, data in kinds:
        for seed in range(count):
            source = Source(config)
            program(source, random.Random(f"{name} {seed}"))
            yield f"{name} {seed}", source.case(data(config, seed))


def _full_tiles(config: PlenaConfig, seed: int) -> Contents:
    """Numbers in every tile."""
    rng = np.random.default_rng(3000 + seed)
    size = config.MRAM_TILES, config.MLEN, config.MLEN
    return replace(contents(config, seed), matrix=bf16_values(rng, size))


def _tiles(source: Source, rng: random.Random) -> None:
    """Products with every column group, head's rows and head's columns of every tile, in any
    order."""
    c = source.config
    columns = range(0, c.MLEN, c.BLEN)
    heads = range(0, c.MLEN, c.HLEN)
    products = [
        *((name, roles, "M_MM_WO", c.MLEN * g) for name, roles in _PLAIN for g in columns),
        *((name, roles, "M_MV_WO", c.MLEN * g) for name, roles in _ONE_ROW for g in columns),
        *(("M_BMV", (1, 2), "M_BMV_WO", c.MLEN * g) for g in heads),
        *(("M_BTMV", (1, 2), "M_BMV_WO", g) for g in heads),
    ]
    steps = [(tile, product) for tile in range(c.MRAM_TILES) for product in products]
    rng.shuffle(steps)
    for tile, (name, roles, write_out, offset) in steps:
        source.gp(1, tile * c.tile_elements + offset)
        source.gp(2, rng.randrange(48) * c.MLEN)
        source.gp(3, rng.randrange(64, 128) * c.MLEN)
        source.op(name, 0, *roles)
        source.op(write_out, 3, *((0, 0) if write_out == "M_MM_WO" else (0,)))


def _low_bit_rows(config: PlenaConfig, seed: int) -> Contents:
    """Tile 0 is ones. Each row is 1, in another lane one lower bit, and in a third one half the
    last place of a BF16 number: the lower bit alone decides the rounding. It is every bit that FP32
    has beside 1, in every lane, and comes to 1 at every level of an adder tree."""
    given = contents(config, seed)
    lanes, one = config.MLEN, 127 << 7
    rows: list[npt.NDArray[np.uint16]] = []
    for lane in range(lanes):
        for distance in (1 << level for level in range((lanes - 1).bit_length())):
            for bit in range(9, 24):
                row = np.zeros(lanes, np.uint16)
                row[lane], row[lane ^ distance] = (127 - bit) << 7, one
                free = [i for i in range(lanes) if i not in (lane, lane ^ distance)]
                row[free[(seed + bit) % len(free)]] = (127 - 8) << 7
                rows.append(row)
    matrix = given.matrix.copy()
    matrix[0] = one
    return replace(given, vector=np.array(rows[: config.VRAM_ROWS // 2]), matrix=matrix)


def _low_bits(source: Source, rng: random.Random) -> None:
    """The product of every row with tile 0, written out on its own."""
    c = source.config
    rows = len(_low_bit_rows(c, 0).vector)
    for first in range(0, rows - c.BLEN + 1, c.BLEN):
        source.gp(1, rng.randrange(0, c.MLEN, c.BLEN) * c.MLEN)
        source.gp(2, first * c.MLEN)
        source.gp(3, rng.randrange(rows, c.VRAM_ROWS - c.BLEN) * c.MLEN)
        source.op("M_MM", 0, 1, 2)
        source.op("M_MM_WO", 3, 0, 0)
