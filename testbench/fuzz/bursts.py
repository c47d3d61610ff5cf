"""Directed programs of transfers without a pause: the queues of the memory port fill, and answers
that came late come one behind the other."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from isa.config import PlenaConfig
from testbench.fuzz.case import Contents, Device, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents
from testbench.fuzz.values import mx_bytes

__all__ = ["bursts"]

#: Bytes of elements; as many for the scales follow.
_ELEMENTS = 8192
_DEVICES = ((None, 0, 0.0), (None, 300, 0.0), (None, 60, 0.1), (12, 100, 0.0), (2, 0, 0.3))


def bursts(config: PlenaConfig, count: int = 5) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs, with a name each."""
    for seed in range(count):
        source = Source(config)
        _program(source, random.Random(f"bursts {seed}"))
        device = Device(seed, *_DEVICES[seed % len(_DEVICES)])
        yield f"bursts {seed}", source.case(_contents(config, seed), device)


def _contents(config: PlenaConfig, seed: int) -> Contents:
    """Rows of numbers of like size, in some of them one NaN or infinity of any pattern of at most
    one bit: it does not count for the scale of its block, or more than all others."""
    rng = np.random.default_rng(seed)
    rows, lanes = config.VRAM_ROWS, config.MLEN
    vector = 120 + rng.integers(0, 12, (rows, lanes)) << 7 | rng.integers(0, 128, (rows, lanes))
    single = (0x7F80 | 1 << rng.integers(0, 8, rows)) & 0x7FFF
    vector[np.arange(rows), rng.integers(0, lanes, rows)] = single
    vector |= rng.integers(0, 2, (rows, lanes)) << 15
    given = replace(contents(config, seed), hbm=mx_bytes(rng, _ELEMENTS, _ELEMENTS))
    return replace(given, vector=vector.astype(np.uint16))


def _program(source: Source, rng: random.Random) -> None:
    """Groups of transfers between registers that were set before, in turn: tiles that lie in few
    beats, tiles of a beat per row, rows; in some groups stores."""
    c = source.config
    source.gp(1, _ELEMENTS)
    source.op("C_SET_SCALE_REG", 1)
    for _ in range(6):
        source.gp(1, rng.choice((0, 64, 72, 64)) // c.MX_BLOCK * c.MX_BLOCK)
        source.op("C_SET_STRIDE_REG", 1)
        tiles, rows, offsets = range(2, 9), range(9, 14), range(14, 16)
        for number, register in enumerate(tiles):
            source.gp(register, (number + 2) % c.MRAM_TILES * c.tile_elements)
        for number, register in enumerate(rows):
            source.gp(register, (4 * number + rng.randrange(c.VRAM_ROWS - 24)) * c.MLEN)
        for register in offsets:
            source.gp(register, rng.randrange(0, _ELEMENTS // 2, rng.choice((64, c.MX_BLOCK))))
        shares = rng.choice(((8, 0, 0), (8, 1, 0), (4, 4, 1), (1, 8, 1), (2, 2, 4)))
        for number in range(24):
            [kind] = rng.choices(("H_PREFETCH_M", "H_PREFETCH_V", "H_STORE_V"), shares)
            places = tiles if kind == "H_PREFETCH_M" else rows
            place, by_register = places[number % len(places)], number // 4 % 2
            source.op(kind, place, rng.choice(offsets), 0, by_register, rng.randrange(2))
