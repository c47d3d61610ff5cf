"""The pysim engine: Amaranth's own simulator, needing nothing but pip packages."""

import time
from collections.abc import Sequence
from typing import Any

from amaranth.hdl import MemoryData, Value
from amaranth.sim import Simulator

from isa.config import PlenaConfig
from sim.engine import Engine
from sim.probe import Probe
from sim.pysim_masks import MaskedEngine
from sim.pysim_merge import merged
from sim.pysim_split import split


class PysimEngine(Engine):
    """Amaranth's simulator, driven from outside: a testbench only lends its context to the host.

    Construction elaborates and compiles the design (`elaboration_seconds`); `reset` is cheap, so
    one engine serves many runs.
    """

    name = "pysim"

    def __init__(self, config: PlenaConfig) -> None:
        started = time.perf_counter()
        super().__init__(config)
        self._simulator = self.make_simulator(self.probe)
        self._simulator.add_clock(config.CLOCK_PERIOD_PS * 1e-12)
        self._context: Any = None

        async def lend_context(context: Any) -> None:
            self._context = context

        self._simulator.add_testbench(lend_context)
        self._simulator.advance()
        self._align()
        self.elaboration_seconds = time.perf_counter() - started

    def make_simulator(self, probe: Probe) -> Simulator:
        """The simulator of a machine, in which modules are cut for its speed alone."""
        design = merged(probe)
        split(design)
        return Simulator(design, engine=MaskedEngine)

    def _align(self) -> None:
        # The clock's first event is its start, not an edge.
        self._simulator.advance()

    def reset(self) -> None:
        self._simulator.reset()
        self._simulator.advance()
        self._align()

    def get(self, value: Value) -> int:
        return int(self._context.get(Value.cast(value)))

    def set(self, signal: Value, value: int) -> None:
        self._context.set(Value.cast(signal), value)

    def step(self) -> None:
        self._simulator.advance()
        self._simulator.advance()

    def read_memory(self, memory: MemoryData, start: int, count: int) -> list[int]:
        get = self._context.get
        return [int(get(Value.cast(memory[row]))) for row in range(start, start + count)]

    def write_memory(self, memory: MemoryData, start: int, rows: Sequence[int]) -> None:
        for row, value in enumerate(rows, start):
            self._context.set(Value.cast(memory[row]), value)
