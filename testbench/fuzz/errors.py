"""Directed programs in which memory answers one beat of one transfer with an error, while others
are under way."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from isa.config import PlenaConfig
from testbench.fuzz.case import Device, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents
from testbench.fuzz.values import mx_bytes

__all__ = ["errors"]

#: Bytes of elements; as many for the scales follow.
_ELEMENTS = 4096
_KINDS = ("H_PREFETCH_M", "H_PREFETCH_V", "H_PREFETCH_V", "H_STORE_V")


@dataclass(frozen=True)
class _Transfer:
    """One transfer: where its elements begin, and the distance of its rows."""

    mnemonic: str
    start: int
    stride: int

    def rows(self, config: PlenaConfig) -> int:
        """How many it moves."""
        rows = {"H_PREFETCH_M": config.m_prefetch, "H_PREFETCH_V": config.v_prefetch}
        return rows.get(self.mnemonic, config.v_writeback)

    def byte(self, rng: random.Random, config: PlenaConfig) -> int:
        """The address of an element or of a scale of one of its rows."""
        at = self.start + rng.randrange(self.rows(config)) * self.stride
        is_scale = rng.random() < 0.4
        return at // config.MX_BLOCK + _ELEMENTS if is_scale else at + rng.randrange(config.MLEN)


def errors(config: PlenaConfig, count: int = 8) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs, with a name each."""
    for seed in range(count):
        rng = random.Random(f"errors {seed}")
        source = Source(config)
        transfers = _program(source, rng)
        faulty = transfers[rng.randrange(len(transfers) // 3, len(transfers))]
        device = Device(
            seed,
            capacity=rng.choice((None, None, 2, 6)),
            extra_latency=rng.choice((0, 0, 8, 40)),
            backpressure=rng.choice((0.0, 0.0, 0.3)),
            faults=(faulty.byte(rng, config),),
        )
        data = np.random.default_rng(seed)
        given = replace(contents(config, seed), hbm=mx_bytes(data, _ELEMENTS, _ELEMENTS))
        yield f"errors {seed}", source.case(given, device)


def _program(source: Source, rng: random.Random) -> list[_Transfer]:
    """Transfers, one behind the other, each to rows or to a tile that no other one writes soon."""
    c = source.config
    strides = [s for s in (c.MX_BLOCK, c.MLEN, 64, 72, 0) if s % c.MX_BLOCK == 0]
    stride = rng.choice(strides)
    source.gp(1, _ELEMENTS)
    source.op("C_SET_SCALE_REG", 1)
    source.gp(1, stride)
    source.op("C_SET_STRIDE_REG", 1)
    transfers: list[_Transfer] = []
    for number in range(14):
        mnemonic = rng.choice(_KINDS)
        start = rng.randrange(0, _ELEMENTS // 2, c.MX_BLOCK if number % 2 else 64)
        by_register = rng.randrange(2)
        source.gp(2, start)
        if mnemonic == "H_PREFETCH_M":
            source.gp(3, number % c.MRAM_TILES * c.tile_elements)
        else:
            source.gp(3, 4 * number * c.MLEN)
        source.op(mnemonic, 3, 2, 0, by_register, rng.randrange(2))
        transfers.append(_Transfer(mnemonic, start, stride if by_register else c.MLEN))
    return transfers
