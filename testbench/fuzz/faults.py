"""Directed programs: the memory answers a transfer in a given scoreboard slot with an error, while
others are unfinished before and behind it."""

import random
from collections.abc import Iterator

from isa.config import PlenaConfig
from isa.stages import Stage
from testbench.fuzz.case import Device, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents

__all__ = ["faults"]

#: Bytes from which all other transfers are, and the one that fails.
_GOOD, _BAD = 0, 1 << 16
_SCALES = 1 << 12
_KINDS = ("H_PREFETCH_V", "H_STORE_V", "H_PREFETCH_M")
#: They have few rows, so that the port takes as many as there are slots.
_SHORT = ("H_PREFETCH_V",)


def faults(config: PlenaConfig) -> Iterator[tuple[str, FuzzCase]]:
    """A program for each slot, with a name each; an error ends the run of each but the last, in
    which many instructions fail one by one (`serial`, so that it can go on behind them)."""
    for slot in range(config.INFLIGHT):
        source, rng = _start(config), random.Random(f"faults {slot}")
        kinds = _KINDS if slot % 2 else _SHORT
        for number in range(slot):
            _transfer(source, rng, number, 1, kinds)
        _transfer(source, rng, slot, 2, kinds)
        behind = config.INFLIGHT - slot if slot % 2 == 0 else slot % 3
        for number in range(behind):
            _transfer(source, rng, slot + 1 + number, 1, kinds)
        source.op("S_ADDI_INT", 9, 0, slot)
        source.op("V_ADD_VV", 8, 8, 8, 0)
        latency = (0, 600)[slot % 4 < 2]
        device = Device(slot, extra_latency=latency, faults=(_BAD + _SCALES * (slot // 3 % 2),))
        yield f"fault in slot {slot}", source.case(contents(config, slot), device)
    source, rng = _start(config), random.Random("faults")
    for number in range(24):
        _transfer(source, rng, number, 2)
        _transfer(source, rng, number, 1)
    device = Device(faults=(_BAD,))
    yield "faults one by one", source.case(contents(config, 99), device, issue="serial")


def _start(config: PlenaConfig) -> Source:
    """Base 1 is good memory, base 2 has the fault."""
    source = Source(config)
    source.gp(1, _SCALES)
    source.op("C_SET_SCALE_REG", 1)
    source.base(1, _GOOD, (1, 2))
    source.base(2, _BAD, (1, 2))
    source.gp(8, (config.VRAM_ROWS - 1) * config.MLEN)
    return source


def _transfer(
    source: Source,
    rng: random.Random,
    number: int,
    base: int,
    kinds: tuple[str, ...] = _KINDS,
) -> None:
    """A transfer, to rows or a tile of its own."""
    c, mnemonic = source.config, rng.choice(kinds)
    rows = number * max(c.v_prefetch, c.v_writeback) % (c.VRAM_ROWS // 2)
    tile = number % c.MRAM_TILES * c.tile_elements
    source.gp(3, tile if mnemonic == "H_PREFETCH_M" else rows * c.MLEN)
    source.mark(rng.choice(list(Stage)).label)
    source.op(mnemonic, 3, 0, base, 0, 0)
