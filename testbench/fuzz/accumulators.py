"""Directed programs of products and write-outs without a pause, on data in which one low bit of an
accumulator decides how it is rounded."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from isa.config import PlenaConfig
from testbench.fuzz.case import Contents, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents

__all__ = ["accumulators"]

Bits = npt.NDArray[np.uint16]

_ROWS = 64
#: An exponent field: the product of two such numbers is the least normal one.
_SMALL = 64
_GROUPS = 60
#: Parts of a sum that a tile picks: all of it, the number, its half in the last place. The lowest
#: bits go with any of them.
_ALL, _NUMBER, _HALF = (1, 1), (1, 0), (0, 1)
_PARTS = (_ALL, _ALL, _NUMBER, _HALF)
#: gp registers: one tile for each form of product, its rows, targets, a stride.
_TILE, _ROW, _TARGET, _STRIDE = (1, 2, 3, 4), (5, 6), (7, 8, 9), 10
_PRODUCTS = (
    ("M_MM", "M_TMM"),
    ("M_MV", "M_TMV"),
    ("M_BMV", "M_BTMV"),
    ("M_BMM", "M_BTMM"),
)
_WRITE_OUTS = ("M_MM_WO", "M_MV_WO", "M_BMV_WO", "M_BMM_WO")


def accumulators(config: PlenaConfig, count: int = 3) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs, with a name each; heads of four lanes or more."""
    for seed in range(count):
        source = Source(config)
        _program(source, random.Random(f"accumulators {seed}"))
        yield f"accumulators {seed}", source.case(_contents(config, 4000 + seed))


def _contents(config: PlenaConfig, seed: int) -> Contents:
    """Lanes of a head: an even number, half of its last place, single bits below that. A tile adds
    them up, or subtracts the bits, in each column other ones; and it does so for one head's lanes,
    which are the whole sum for a product of all lanes. Some are near the least normal number."""
    rng = np.random.default_rng(seed)
    shape, bits = (_ROWS, config.heads, config.HLEN), (_ROWS, config.heads, config.HLEN - 2)
    exponents = rng.integers(120, 134, shape[:2])
    exponents[::2] = _SMALL
    exponents = np.repeat(exponents[..., np.newaxis], config.HLEN, 2)
    exponents[..., 1] -= 8
    exponents[..., 2:] -= rng.choice(rng.permutation(np.arange(9, 24))[:5], bits)
    fractions = np.zeros(shape, int)
    fractions[..., 0] = rng.integers(0, 64, shape[:2]) * 2
    signs = np.repeat(rng.integers(0, 2, shape[:2])[..., np.newaxis], config.HLEN, 2)
    vector = (signs << 15 | exponents << 7 | fractions).reshape(_ROWS, config.MLEN)
    given = contents(config, seed)
    return replace(given, vector=vector.astype(np.uint16), matrix=_tiles(config, rng))


def _tiles(config: PlenaConfig, rng: np.random.Generator) -> Bits:
    """For each of `_PARTS` a tile and its transpose, for numbers as they are and for small ones;
    in half of the columns the second part of a sum takes away the bits of the first one."""
    ones = 127, int(rng.integers(_SMALL, _SMALL + 2))
    tiles: list[Bits] = []
    before = np.zeros((len(ones), config.HLEN - 2, config.MLEN), int)
    for head, parts in enumerate(_PARTS):
        for which, one in enumerate(ones):
            tile = np.zeros((config.MLEN, config.MLEN), np.uint16)
            lanes = tile[head % config.heads * config.HLEN :][: config.HLEN]
            lanes[0], lanes[1] = parts[0] * one << 7, parts[1] * one << 7
            bits = rng.choice((0, 1, -1), before[which].shape, p=(0.7, 0.15, 0.15))
            if parts == _HALF:
                bits = np.where(rng.random(config.MLEN) < 0.5, -before[which], bits)
            before[which] = bits
            lanes[2:] = np.where(bits == 0, 0, (bits < 0) << 15 | one << 7)
            tiles += [tile, tile.T]
    return np.array(tiles)


def _program(source: Source, rng: random.Random) -> None:
    """Groups of products and write-outs of two forms between registers that were set before."""
    c = source.config
    for group in range(_GROUPS):
        small, columns = rng.randrange(2), rng.randrange(0, c.MLEN, c.BLEN) * c.MLEN
        pair = rng.choice(((2, 3), (3, 2), rng.choices(range(len(_PARTS)), k=2)))
        for register, transposed, per_head in zip(_TILE, (0, 1, 0, 1), (0, 0, 1, 1), strict=True):
            number = pair[transposed]
            head = number % c.heads * c.HLEN
            offset = head * (1 if transposed else c.MLEN) if per_head else columns
            tile = 4 * number + 2 * small + transposed
            source.gp(register, tile * c.tile_elements + offset)
        rows = [rng.randrange(_ROWS - c.MLEN) for _ in _ROW]
        for register, row in zip(_ROW, rows, strict=True):
            source.gp(register, (rows[0] if group % 3 else row) * c.MLEN)
        stride = rng.randrange(1, (c.VRAM_ROWS - _ROWS) // c.BLEN)
        rows = max((c.BLEN - 1) * stride + 1, c.heads * c.MLEN)
        for register in _TARGET:
            source.gp(register, rng.randrange(_ROWS, c.VRAM_ROWS - rows) * c.MLEN)
        source.gp(_STRIDE, stride)
        forms = rng.sample(range(4 if group % 6 == 0 else 3), 2)  # M_BMM takes long
        for _ in range(rng.randrange(4, 10)):
            form = rng.choice(forms)
            if rng.random() < 0.6:
                transposed = rng.randrange(2)
                operands = (_TILE[2 * (form > 1) + transposed], rng.choice(_ROW))
                reverse = _PRODUCTS[form][transposed] == "M_TMM"
                source.op(
                    _PRODUCTS[form][transposed], 0, *(operands[::-1] if reverse else operands)
                )
            else:
                _write_out(source, rng, form)
        for form in forms:
            _write_out(source, rng, form)


def _write_out(source: Source, rng: random.Random, form: int) -> None:
    mnemonic, target = _WRITE_OUTS[form], rng.choice(_TARGET)
    if mnemonic == "M_MM_WO":
        source.op(mnemonic, target, rng.choice((0, _STRIDE)), 0)
    else:
        source.op(mnemonic, target, 0)
