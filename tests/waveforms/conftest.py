"""One small program that uses every unit, run with a waveform file and an observer of our own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.observers import Completed, Dispatched, Observer
from sim.result import RunResult
from sim.simulation import Simulation
from waveforms.vcd import VcdWriter

SOURCE = """
; @stage=residual_setup
S_ADDI_INT gp1, gp0, 8
S_ADDI_INT gp2, gp0, 64
S_ADDI_INT gp3, gp0, 96
S_ADDI_INT gp4, gp0, 128
; @stage=gather
H_PREFETCH_V gp2, gp0, a0, 0, 0
C_LOOP_START gp5, 3
V_ADD_VF gp1, gp2, f1, 0
C_LOOP_END gp5
; @stage=expert_projection
S_ADDI_INT gp6, gp0, 64
V_RED_SUM f2, gp4, 0
V_ADD_VF gp1, gp4, f0, 0
M_MM 0, gp6, gp4
M_MM 0, gp6, gp4
M_MM_WO gp3, gp0, 0
H_STORE_V gp3, gp1, a0, 0, 0
; @stage=non_moe
V_RED_SUM f1, gp3, 0
S_ST_FP f1, gp0, 3
S_ST_INT gp4, gp0, 5
S_MAP_V_FP gp1, gp0, 0
"""


class Seen(Observer):
    """What happened, by the events and the engine."""

    def __init__(self, simulation: Simulation) -> None:
        self._engine = simulation.engine
        self.dispatches: list[Dispatched] = []
        self.completions: list[Completed] = []
        self.cycles: list[dict[str, Any]] = []

    def cycle(self, cycle: int) -> None:
        get, top = self._engine.get, self._engine.top
        self.cycles.append(
            {
                "m_acc": top.matrix.m_acc(get),
                "request": get(top.hbm_request.payload.data),
                "response": get(top.hbm_response.payload.data),
                "busy": get(top.dispatcher.scoreboard.busy_vector),
                "fp": self._engine.read_memory(top.scalar.fp_mem, 0, 1)[0],
                "vram": self._engine.read_memory(top.vector_sram.storage, 0, 20),
            }
        )

    def dispatched(self, event: Dispatched) -> None:
        self.dispatches.append(event)

    def completed(self, event: Completed) -> None:
        self.completions.append(event)


@dataclass
class Recording:
    path: Path
    simulation: Simulation
    seen: Seen
    result: RunResult | None = None
    error: BaseException | None = None
    period: int = 1000
    extra: list[Observer] = field(default_factory=list)


Record = Callable[..., Recording]


@pytest.fixture
def prepare(program: Callable[..., Simulation]) -> Callable[..., Simulation]:
    """The program, loaded, with data in the memories."""

    def load(source: str = SOURCE) -> Simulation:
        simulation = program(source)
        simulation.hbm.write(0, bytes(range(0x20, 0x60)) * 4)
        lanes = np.arange(64, dtype=np.uint16).reshape(8, 8)
        simulation.memories.write_matrix(1, 0x3F80 + lanes)
        simulation.memories.write_vector(16, 0x4000 + lanes)
        simulation.memories.write_fp(0, np.arange(8, dtype=np.uint16) + 0x4080)
        return simulation

    return load


@pytest.fixture
def record(prepare: Callable[..., Simulation], tmp_path: Path) -> Record:
    """`record(source=SOURCE, observers=(), **options of VcdWriter)`; a raised error is kept."""

    def run(
        source: str = SOURCE,
        observers: Callable[[Simulation], list[Observer]] = lambda _: [],
        max_cycles: int = 5000,
        **options: Any,
    ) -> Recording:
        simulation = prepare(source)
        seen, path = Seen(simulation), tmp_path / "waves.vcd"
        recording = Recording(path, simulation, seen)
        writer = VcdWriter(path, simulation, **options)
        watching = [seen, writer, *observers(simulation)]
        try:
            recording.result = simulation.run(max_cycles=max_cycles, observers=watching)
        except (KeyboardInterrupt, AssertionError) as error:
            recording.error = error
        return recording

    return run
