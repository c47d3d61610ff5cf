"""The waveform file of a run: a selection of waves and the memories, as a value change dump (VCD)."""

import sys
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import Any

from isa.opcodes import State
from sim.observers import Completed, Dispatched, Observer, Written
from sim.simulation import Simulation
from waveforms.contents import Cell, memories
from waveforms.dump import Dump, write_empty
from waveforms.flight import Flight
from waveforms.gtkw import write_gtkw
from waveforms.sampler import Channel, Sampler
from waveforms.selection import limit, select
from waveforms.size import LARGE_BYTES, Projection, instructions_of, ways_out
from waveforms.surfer import write_sucl
from waveforms.wave import Computed, Group, number
from waveforms.window import Window, WindowLike

DEFAULT_MEMORY_ROWS = 256
CHECK_CYCLES = 4096  # between two looks at the file's size


class VcdWriter(Observer):
    """Writes the waves of one run to `path`, and beside it a GTKWave save file and a Surfer command file.

    Cycle n is from n to n + 1 clock periods; its values are those that settled in it, and a register or
    memory that is written in it shows the new value in cycle n + 1. After the last cycle the machine's final
    state is shown once more. An enumeration NAME is two variables, the string NAME and the number
    NAME_index. The file is complete whenever the run ends, by an error or an interrupt too.

    Args:
        path: the file. Replaced; PATH.gtkw and PATH.sucl (for PATH.vcd) too.
        simulation: the one that it will observe.
        window: `(first, stop)`, cycles to record, `stop` (or None) not included; everything by default.
        units: units or groups to record, besides `run` and `dispatch`: see `selection.UNITS`.
        memory_rows: how many rows of every memory (words of FP_MEM and INT_MEM) from the first one on,
            or which ones.
        lanes: a variable per lane of the SRAM rows as well.
        expected_cycles: of the run, for the projection of the file's size; by default the number of its
            instructions. Long runs have their projection printed to standard error.

    Raises:
        ValueError: an impossible window, an unknown unit, a path that is taken by the viewers' files.
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        simulation: Simulation,
        *,
        window: WindowLike = None,
        units: Collection[str] | None = None,
        memory_rows: int | range = DEFAULT_MEMORY_ROWS,
        lanes: bool = False,
        expected_cycles: int | None = None,
    ) -> None:
        self.path = Path(path)
        if self.path.suffix in (".gtkw", ".sucl"):
            raise ValueError(f"{self.path}: {self.path.suffix} is the viewer's file; use .vcd")
        self._simulation = simulation
        self._engine = simulation.engine
        self._window = Window.of(window)
        self._flight = Flight()
        self._events: list[Dispatched | Completed] = []
        self._cycle = 0  # the one that is being sampled
        top = self._engine.top
        rows = range(memory_rows) if isinstance(memory_rows, int) else memory_rows
        every = memories(top, rows, lanes=lanes)
        groups = select(top, simulation.image, self._flight)
        groups[0] = _with_cycle(groups[0], Computed(lambda: self._cycle, 48))
        chosen = limit([*groups, *(Group(m.name, m.unit, 0.0, ()) for m in every)], units)
        names = {group.name for group in chosen}
        self._groups = [group for group in groups if group.name in names]
        self._memories = [memory for memory in every if memory.name in names]
        self._sampler = Sampler(self._engine, self._groups)
        self._raws: list[int] = []
        self._variables: dict[Channel, Any] = {}
        self._cells: list[dict[Cell, Any]] = []
        self._dump: Dump | None = None
        self._done = False
        self._warned = False
        expected = instructions_of(simulation.image) if expected_cycles is None else expected_cycles
        self.projection = Projection.of(
            self._groups, self._memories, self._window.cycles_of(expected)
        )
        write_empty(self.path, "nothing was recorded")
