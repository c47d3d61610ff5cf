"""Directed programs: two instructions that meet in given scoreboard slots."""

import random
from collections.abc import Callable, Iterator

from isa.config import PlenaConfig
from isa.stages import Stage
from testbench.fuzz.case import Device, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents

__all__ = ["meetings"]

_ROUNDS = 24
Step = Callable[["_Pairs"], None]


def meetings(config: PlenaConfig, count: int = 6) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs, with a name each."""
    for seed in range(count):
        source = _Pairs(config, seed)
        for _ in range(_ROUNDS):
            source.meeting()
        device = Device(seed=seed, extra_latency=(0, 400, 150)[seed % 3])
        yield f"pairs in slots {seed}", source.case(contents(config, 100 + seed), device)


class _Pairs(Source):
    """`meeting` puts an older and a younger instruction behind a crowd of transfers, which keeps
    the slots before theirs, and waits for all of them at a C_BREAK. Meetings go through all slots
    and all kinds of conflicts in turn."""

    def __init__(self, config: PlenaConfig, seed: int) -> None:
        super().__init__(config)
        self.rng = random.Random(f"pairs {seed}")
        self.number = _ROUNDS * seed  # of the meeting, in all programs
        self.gp(12, 2048)
        self.op("C_SET_SCALE_REG", 12)
        self.gp(12, 0)

    def meeting(self) -> None:
        """One pair, in the next slot, on the same rows, tiles and words, or beside them."""
        rng, c = self.rng, self.config
        first = rng.randrange(64)
        near = rng.choice((0, 0, 0, 1, -1, 3, -3, 4, -4, 1 << rng.randrange(6)))
        second = (first + near) % (c.VRAM_ROWS // 2 - c.MLEN * c.heads)
        tile = rng.randrange(4)
        other = rng.choice((tile, tile, tile ^ 1, tile ^ 2))
        for register, row in ((1, first), (2, second), (3, rng.choice((first, second)))):
            self.gp(register, row * c.MLEN)
        self.gp(4, tile * c.tile_elements)
        self.gp(5, other * c.tile_elements)
        self.gp(6, rng.randrange(8))
        self.gp(7, (c.VRAM_ROWS // 2 + 4 * rng.randrange(64)) * c.MLEN)
        self.gp(8, (4 + rng.randrange(c.MRAM_TILES - 4)) * c.tile_elements)
        older, younger = rng.choice(_STEPS), rng.choice(_STEPS)
        slot, conflict = self.number % c.INFLIGHT, self.number // c.INFLIGHT % len(_CONFLICTS)
        self.number += 1
        if rng.random() < 0.8:
            older, younger = (rng.choice(steps) for steps in _CONFLICTS[conflict])
        self.mark(rng.choice(list(Stage)).label)
        for _ in range(slot):
            if rng.random() < 0.2:
                self.op("H_PREFETCH_M", 8, 12, 0, 0, 0)
            else:
                self.op("H_PREFETCH_V", 7, 12, 0, 0, 0)
        self.mark(rng.choice(list(Stage)).label)
        older(self)
        if rng.random() < 0.5:
            self.mark(rng.choice(list(Stage)).label)
        younger(self)
        if rng.random() < 0.3:
            rng.choice(_STEPS)(self)
        self.op("C_BREAK")


def _f(source: _Pairs) -> int:
    return source.rng.randrange(1, 4)


def _r(source: _Pairs) -> int:
    return source.rng.randrange(1, 4)


def _m(source: _Pairs) -> int:
    return source.rng.randrange(4, 6)


_STEPS: tuple[Step, ...] = (
    lambda s: s.op("V_ADD_VV", _r(s), _r(s), _r(s), 0),
    lambda s: s.op("V_EXP_V", _r(s), _r(s), 0),
    lambda s: s.op("V_RED_SUM", _f(s), _r(s), 0),
    lambda s: s.op("V_MUL_VF", _r(s), _r(s), _f(s), 0),
    lambda s: s.op("S_MAP_V_FP", _r(s), 6, 0),
    lambda s: s.op("S_LD_FP", _f(s), 6, 0),
    lambda s: s.op("S_ST_FP", _f(s), 6, 1),
    lambda s: s.op("S_LD_INT", 9, 6, 0),
    lambda s: s.op("S_ST_INT", 1, 6, 0),
    lambda s: s.op("V_TOPK", 6, _r(s), 6, 0),
    lambda s: s.op("M_MM", 0, _m(s), _r(s)),
    lambda s: s.op("M_TMM", 0, _r(s), _m(s)),
    lambda s: s.op("M_MM_WO", _r(s), 0, 0),
    lambda s: s.op("M_MV", 0, _m(s), _r(s)),
    lambda s: s.op("M_MV_WO", _r(s), 0),
    lambda s: s.op("M_BMM", 0, _m(s), _r(s)),
    lambda s: s.op("M_BMM_WO", _r(s), 0),
    lambda s: s.op("M_BMV", 0, _m(s), _r(s)),
    lambda s: s.op("M_BMV_WO", _r(s), 0),
    lambda s: s.op("H_PREFETCH_M", _m(s), 12, 0, 0, 0),
    lambda s: s.op("H_PREFETCH_V", _r(s), 12, 0, 0, 0),
    lambda s: s.op("H_STORE_V", _r(s), 12, 0, 0, 0),
)

_MNEMONICS: tuple[str, ...] = (
    *("V_ADD_VV", "V_EXP_V", "V_RED_SUM", "V_MUL_VF", "S_MAP_V_FP", "S_LD_FP", "S_ST_FP"),
    *("S_LD_INT", "S_ST_INT", "V_TOPK", "M_MM", "M_TMM", "M_MM_WO", "M_MV", "M_MV_WO"),
    *("M_BMM", "M_BMM_WO", "M_BMV", "M_BMV_WO", "H_PREFETCH_M", "H_PREFETCH_V", "H_STORE_V"),
)
_STEP_OF: dict[str, Step] = dict(zip(_MNEMONICS, _STEPS, strict=True))


def _named(*mnemonics: str) -> tuple[Step, ...]:
    return tuple(_STEP_OF[m] for m in mnemonics)


_FP, _INT, _TOPK = ("S_LD_FP", "S_ST_FP", "S_MAP_V_FP"), ("S_LD_INT", "S_ST_INT"), ("V_TOPK",)
_PRODUCTS = ("M_MM", "M_TMM", "M_MV", "M_BMM", "M_BMV")
_TWO_ROWS, _TRANSFERS = ("V_ADD_VV",), ("H_PREFETCH_V", "H_STORE_V")
_WRITERS = ("H_PREFETCH_V", "S_MAP_V_FP", "M_MM_WO", "M_MV_WO", "M_BMV_WO")
#: Older and younger ones that meet in one of the scoreboard's rules: words, tiles, rows.
_CONFLICTS = (
    (_named(*_FP), _named(*_TOPK)),
    (_named(*_TOPK), _named(*_FP)),
    (_named(*_INT), _named(*_TOPK)),
    (_named(*_TOPK), _named(*_INT)),
    (_named(*_PRODUCTS), _named("H_PREFETCH_M")),
    (_named("H_PREFETCH_M"), _named(*_PRODUCTS, "H_PREFETCH_M")),
    (_named(*_TWO_ROWS), _named(*_WRITERS)),
    (_named(*_WRITERS), _named(*_TWO_ROWS, "V_EXP_V", "M_MM", "V_TOPK")),
    (_named(*_TRANSFERS), _named(*_WRITERS, *_TWO_ROWS)),
    (_named(*_PRODUCTS, *_TOPK), _named(*_TRANSFERS, *_TWO_ROWS)),
)
