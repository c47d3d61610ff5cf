"""The bench of the top-k unit: unit, SRAM, and the words that it writes."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from amaranth.hdl import Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from isa.config import PRESETS, PlenaConfig
from rtl.topk import TopkUnit
from rtl.vector import VectorSram

CONFIGS = {
    "tiny": PRESETS["tiny"],
    "small": PRESETS["small"],
    "default": PRESETS["default"],
    "one": PRESETS["tiny"].replace(name="one", TOPK_MAX=1),
    "three": PRESETS["tiny"].replace(name="three", TOPK_MAX=3),
}
CYCLE_LIMIT = 3000

Bits = npt.NDArray[np.uint16]
BF16 = ml_dtypes.bfloat16
INF, MINUS_INF, NAN = 0x7F80, 0xFF80, 0x7FC0


@dataclass(frozen=True)
class Job:
    """One V_TOPK on logits that lie in the SRAM from row 0, or `row`, on."""

    num_experts: int
    top_k: int
    row: int = 0
    weight_address: int = 0
    index_address: int = 0
    gap: int = 0  # cycles without `valid` once the unit is ready


@dataclass
class Run:
    """What a job did: (cycle, address, value) of every write, and its cycles of issue and end."""

    issued: int = -1
    done: int = -1
    tag: tuple[int, int, int] = (0, 0, 0)
    weights: list[tuple[int, int, int]] = field(default_factory=list)
    indices: list[tuple[int, int, int]] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def result(self) -> tuple[list[int], list[int]]:
        return [value for *_, value in self.indices], [value for *_, value in self.weights]


class Rig:
    """Unit and SRAM, elaborated once; every run starts from reset."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config, self.unit, self.sram = config, TopkUnit(config), VectorSram(config)
        m = Module()
        m.submodules.unit, m.submodules.sram = self.unit, self.sram
        connect(m, self.unit.vram_read, self.sram.topk_read)
        self.sim = Simulator(m)
        self.sim.add_clock(1e-9)
        self.sim.add_testbench(self._host)
        self._used = False

    def run(self, logits: Bits, jobs: Sequence[Job], *, garbage: Bits | None = None) -> list[Run]:
        """Jobs one after another on one SRAM; the rest of the last row is `garbage`."""
        lanes = self.config.MLEN
        count = -(-len(logits) // lanes) * lanes
        rest = np.full(count, INF, np.uint16) if garbage is None else garbage[:count]
        self._words = np.where(np.arange(count) < len(logits), np.resize(logits, count), rest)
        self._jobs, self._runs = jobs, [Run() for _ in jobs]
        if self._used:
            self.sim.reset()
        self._used = True
        self.sim.run()
        return self._runs

    def one(self, logits: npt.ArrayLike, top_k: int, **more: Any) -> tuple[list[int], list[int]]:
        """(indices, weights) of the first `top_k` of these logits, as patterns."""
        words = np.asarray(logits, np.uint16)
        return self.run(words, [Job(len(words), top_k)], **more)[0].result

    async def _host(self, ctx: Any) -> None:
        unit: Any = self.unit
        for row, words in enumerate(self._words.reshape(-1, self.config.MLEN)):
            ctx.set(self.sram.storage[row], int.from_bytes(words.astype("<u2").tobytes(), "little"))
        jobs = list(enumerate(self._jobs))
        active, gap = 0, jobs[0][1].gap
        for cycle in range(CYCLE_LIMIT):
            issuing = False
            if jobs and ctx.get(unit.issue.ready):
                issuing, gap = gap == 0, gap - 1
            ctx.set(unit.issue.valid, int(issuing))
            if issuing:
                active, job = jobs.pop(0)
                gap = jobs[0][1].gap if jobs else 0
                p = unit.issue.payload
                for name in ("num_experts", "top_k", "row", "weight_address", "index_address"):
                    ctx.set(getattr(p, name), getattr(job, name))
                ctx.set(p.tag.pc, 100 + active)
                ctx.set(p.tag.slot, active % 16)
                self._runs[active].issued = cycle
            run = self._runs[active]
            if ctx.get(unit.vram_read.en):
                run.reads.append((cycle, ctx.get(unit.vram_read.row)))
            for port, log in ((unit.int_write, run.indices), (unit.fp_write, run.weights)):
                if ctx.get(port.valid):
                    log.append((cycle, ctx.get(port.address), ctx.get(port.value)))
            if ctx.get(unit.done.valid):
                assert run.done < 0, "done twice"
                run.done = cycle
                run.tag = (ctx.get(unit.done.tag.pc), ctx.get(unit.done.tag.slot), active)
                if not jobs:
                    break
            await ctx.tick()
        else:
            raise AssertionError(f"not done after {CYCLE_LIMIT} cycles")
        ctx.set(unit.issue.valid, 0)
        await ctx.tick().repeat(5)
        assert not ctx.get(unit.fp_write.valid | unit.int_write.valid | unit.done.valid)


@cache
def rig(name: str) -> Rig:
    return Rig(CONFIGS[name])


def bits_of(*values: float) -> Bits:
    return np.array(values, np.float32).astype(BF16).view(np.uint16)


def random_logits(rng: random.Random, count: int) -> Bits:
    """Logits with many ties, specials, or any patterns at all."""
    kind = rng.randrange(5)
    if kind == 0:
        return np.array([rng.randrange(1 << 16) for _ in range(count)], np.uint16)
    if kind == 1:
        few = [0, 0x8000, INF, MINUS_INF, NAN, 0xFFC1, 0x0001, 0x8001, 0x3F80, 0x7F7F, 0xFF7F]
        return np.array(rng.choices(few, k=count), np.uint16)
    if kind == 2:
        return bits_of(*(rng.choice((-1.5, -0.0, 0.0, 0.5, 2.0)) for _ in range(count)))
    scale = 10 ** rng.uniform(-2, 2)
    return bits_of(*(rng.gauss(0, scale) for _ in range(count)))


def exact_softmax(selected: Bits) -> npt.NDArray[np.float64]:
    """In float64, of logits largest first."""
    values = selected.view(BF16).astype(np.float64)
    values = np.where(np.isnan(values), -np.inf, values)
    if values[0] == -np.inf:
        return np.zeros(len(values))
    with np.errstate(invalid="ignore"):
        terms = np.where(values == values[0], 1.0, np.exp(values - values[0]))
    terms = np.where(np.isnan(terms), 0.0, terms)
    return terms / terms.sum()


def ulps(weights: Bits, exact: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Distances in units of the last place of a BF16 number as large as the exact one."""
    exponent = np.maximum(np.frexp(exact)[1] - 1, -126)
    return np.abs(weights.view(BF16).astype(np.float64) - exact) / np.exp2(exponent - 7)
