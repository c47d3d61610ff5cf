"""Endless programs that keep one part of the machine busy, and how fast an engine runs them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from isa.assembler import assemble
from isa.config import PlenaConfig
from isa.image import ProgramImage
from sim.engine import Engine
from sim.hbm import HbmDevice
from sim.memories import Memories
from sim.simulation import Simulation

__all__ = ["WORKLOADS", "Rate", "Workload", "rate"]

#: Cycles of the first stretch, which also warms up; each later one is longer.
_FIRST, _FACTOR = 256, 4
_WAIT = 4000  # cycles of memory latency when the machine is to be idle
_TURNS = 1_000_000


@dataclass(frozen=True)
class Workload:
    """An endless program.

    Attributes:
        body: instructions of a loop, given the configuration.
        counter: the counter that says how busy it keeps the machine; None: it should be idle.
    """

    name: str
    body: Callable[[PlenaConfig], str]
    counter: str | None
    memory_latency: int | None = None

    def image(self, config: PlenaConfig) -> ProgramImage:
        """The program."""
        text = (
            f"{_registers(config)}C_LOOP_START gp14, {_TURNS}\nC_LOOP_START gp15, {_TURNS}\n"
            f"{self.body(config)}C_LOOP_END gp15\nC_LOOP_END gp14\n"
        )
        return assemble(text, source_name=self.name, config=config)


@dataclass(frozen=True)
class Rate:
    """Cycles per second of a stretch, and the share of its cycles in which the counter counted."""

    cycles: int
    seconds: float
    busy: float

    @property
    def cycles_per_second(self) -> float:
        """What it is about."""
        return self.cycles / self.seconds


def _registers(config: PlenaConfig) -> str:
    """gp1 to gp4: tiles 0 to 3, and gp5 to gp12: rows 0, 4, ..., 28."""
    tiles = "".join(f"S_ADDI_INT gp{1 + i}, gp0, {i * config.MLEN**2}\n" for i in range(4))
    rows = "".join(f"S_ADDI_INT gp{5 + i}, gp0, {4 * i * config.MLEN}\n" for i in range(8))
    return tiles + rows


def _matrix(_config: PlenaConfig) -> str:
    lines = [
        f"M_MM 0, gp{1 + i % 4}, gp{5 + i % 4}\nM_MM_WO gp{11 + i % 2}, gp0, 0\n" for i in range(16)
    ]
    return "".join(lines)


def _vector(_config: PlenaConfig) -> str:
    ops = ("V_ADD_VV", "V_MUL_VV", "V_SUB_VV")
    return "".join(
        f"{ops[i % 3]} gp{9 + i % 4}, gp{5 + i % 4}, gp{5 + (i + 1) % 4}\n" for i in range(24)
    )


def _idle(_config: PlenaConfig) -> str:
    return "H_PREFETCH_V gp9, gp0, a0\nV_ADD_VV gp10, gp9, gp9\n"


WORKLOADS = (
    Workload("idle", _idle, None, _WAIT),
    Workload("matrix", _matrix, "multipliers"),
    Workload("vector", _vector, "busy_vector"),
)


def rate(workload: Workload, engine: Engine, seconds: float) -> Rate:
    """Runs a workload in stretches that grow until one takes `seconds`; the last one counts, and
    never the first, which starts the machine."""
    config = engine.config
    latency = config.HBM_LATENCY if workload.memory_latency is None else workload.memory_latency
    device = HbmDevice(config.replace(HBM_LATENCY=latency))
    simulation = Simulation(config, workload.image(config), device, engine=engine)
    _fill(simulation.memories, config)
    stretch, entry, before, counted = _FIRST, 0, 0, 0
    while True:
        started = time.perf_counter()
        result = simulation.run(max_cycles=stretch, entry=entry, max_idle=2 * _WAIT)
        passed = time.perf_counter() - started
        if result.cycles - before < stretch:
            raise RuntimeError(f"{workload.name}: {result.report(simulation.image)}")
        total = 0 if workload.counter is None else sum(result.counters[workload.counter])
        if before and passed >= seconds:
            cycles = result.cycles - before
            return Rate(cycles, passed, (total - counted) / cycles)
        before, counted, entry = result.cycles, total, None
        stretch *= _FACTOR if passed < seconds / _FACTOR else 2


def _fill(memories: Memories, config: PlenaConfig) -> None:
    """Random operands, so that the arithmetic has something to do."""
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> npt.NDArray[np.generic]:
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)

    for tile in range(4):
        memories.write_matrix(tile, numbers(config.MLEN, config.MLEN))
    memories.write_vector(0, numbers(32, config.MLEN))
