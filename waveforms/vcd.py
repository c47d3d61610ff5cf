"""The waveform file of a run: waves and memories, as a value change dump (VCD)."""

import sys
from collections.abc import Collection, Sequence
from itertools import compress
from operator import ne
from os import PathLike
from pathlib import Path
from typing import Any

from sim.observers import Completed, Dispatched, Observer, Samples, Stored, Written
from sim.simulation import Simulation
from waveforms.contents import Cell, Writes, memories
from waveforms.dump import Dump, write_empty
from waveforms.flight import Flight
from waveforms.gtkw import write_gtkw
from waveforms.sampler import Sampler, Show
from waveforms.selection import limit, select
from waveforms.size import LARGE_BYTES, Projection, instructions_of, ways_out
from waveforms.surfer import write_sucl
from waveforms.view import view_of
from waveforms.wave import Computed, Group, number
from waveforms.window import Window, WindowLike

DEFAULT_MEMORY_ROWS = 256
CHECK_CYCLES = 4096  # between two looks at the file's size


class VcdWriter(Observer):
    """Writes the waves of one run, a save file for GTKWave and a command file for Surfer.

    Cycle n lasts from n to n + 1 clock periods; its values are those that settled in it. A register
    or memory that is written in it shows the new value in cycle n + 1. After the last cycle comes
    the machine's final state. An enumeration NAME is two variables, the string NAME and the number
    NAME_index. The file is complete however the run ends, by an error or an interrupt too; it is
    empty but complete until the first cycle of the window. On every engine it is the same, but for
    its comment; on the compiled engine the clock runs on, and the file follows in pieces.

    Args:
        path: the file. Replaced; for NAME.vcd, NAME.gtkw and NAME.sucl too.
        simulation: the one that it will observe, for one run.
        window: `(first, stop)`, the cycles to record, without `stop`; None is the end.
        units: units or groups to record, besides `run` and `dispatch`: see `selection.UNITS`.
        memory_rows: how many rows of every memory (words of FP_MEM and INT_MEM) from the first one
            on, or which ones.
        lanes: a variable per lane of the SRAM rows as well.
        expected_cycles: of the run, for the projected size; by default the number of instructions.
            The projection of a long run is printed to standard error when it starts.

    Raises:
        ValueError: impossible window or rows, an unknown unit, or a viewer's file as path.
        OSError: the file cannot be written.
    """

    accepts_late_events = True

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
        self._writes = Writes(self._memories, top.config.MLEN)
        self._sampler = Sampler(self._engine, self._groups)
        self._raws: list[int] = []
        self._watching: list[list[tuple[Any, Show]]] = []  # per raw value: who shows it
        self._cells: dict[Cell, Any] = {}
        self._dump: Dump | None = None
        self._started = self._recorded = self._loaded = False
        self._warned = False
        expected = instructions_of(simulation.image) if expected_cycles is None else expected_cycles
        self.projection = Projection.of(
            self._groups, self._memories, self._window.cycles_of(expected)
        )
        write_empty(self.path, "nothing was recorded")

    def start(self, simulation: object) -> None:
        """Checks that this is its run, and tells the projected size of a long one."""
        if simulation is not self._simulation:
            raise ValueError("the waveform writer was made for another simulation")
        if self._started:
            raise ValueError("a waveform writer records one run; make another one for the next")
        self._started = True
        if self.projection.is_long:
            self._tell(str(self.projection))
            self._warned = self.projection.size >= LARGE_BYTES

    def samples(self) -> Samples:
        """The signals that are shown."""
        return Samples(self._sampler.signals, self._window.first, self._window.stop)

    def sampling(self, cycle: int) -> None:
        """Reads the memories at the beginning of the window."""
        for memory in self._memories:
            memory.load(self._engine)
        self._loaded = True

    def sampled(self, cycle: int, values: Sequence[int]) -> None:
        """Records a cycle of the window."""
        self._count(cycle)
        self._sample(cycle, values)

    def dispatched(self, event: Dispatched) -> None:
        """Counts the instruction as unfinished from the next cycle on."""
        self._events.append(event)

    def completed(self, event: Completed) -> None:
        """Counts it as finished from the next cycle on."""
        self._events.append(event)

    def written(self, event: Written) -> None:
        """Keeps the row for the next cycle."""
        if event.cycle in self._window:
            self._writes.written(event)

    def stored(self, event: Stored) -> None:
        """Keeps the word for the next cycle."""
        if event.cycle in self._window:
            self._writes.stored(event)

    def cycle(self, cycle: int) -> None:
        """Records the cycle, if it is in the window."""
        if cycle in self._window:
            if not self._loaded:
                self.sampling(cycle)
            self._sample(cycle, None)
        elif self._dump is not None:
            self._close()
        self._count(cycle + 1)

    def _count(self, cycle: int) -> None:
        """Takes the events before `cycle` into account."""
        for place, event in enumerate(self._events):
            if event.cycle >= cycle:
                del self._events[:place]
                return
            if isinstance(event, Dispatched):
                self._flight.enter(event)
            else:
                self._flight.leave(event)
        self._events.clear()

    def stop(self) -> None:
        """Records the final state, and completes the file."""
        if self._dump is None:
            if not self._recorded:
                self._tell(f"the run ended before the window, {self._window}; nothing was recorded")
            return
        failure = sys.exc_info()[0]
        try:
            # After an interrupt the engine may be in the middle of a cycle.
            if failure is not KeyboardInterrupt and self._cycle + 1 in self._window:
                self._count(self._cycle + 1)
                self._sample(self._cycle + 1, None)
        except Exception:
            if failure is None:  # otherwise the run's own failure is the one to report
                raise
        finally:
            self._close()

    def _sample(self, cycle: int, values: Sequence[int] | None) -> None:
        self._cycle = cycle
        raws = self._sampler.read(values)
        dump = self._dump
        if dump is None:
            dump = self._open(cycle, raws)
            dump.begin(cycle)
        else:
            dump.begin(cycle)
            for watching in compress(self._watching, map(ne, raws, self._raws)):
                for variable, show in watching:
                    dump.change(variable, show(raws))
            for memory in self._memories:
                for row in memory.update(cycle):
                    for cell in memory.of_row[row]:
                        dump.change(self._cells[cell], cell.of(memory.rows[row]))
        dump.end()
        self._raws = raws
        if cycle % CHECK_CYCLES == 0:
            dump.flush()
            if dump.bytes_written >= LARGE_BYTES and not self._warned:
                self._warned = True
                ways = ways_out(self.projection.shares)
                self._tell(f"more than {LARGE_BYTES / 1e6:.0f} MB at cycle {cycle}\n{ways}")

    def _open(self, cycle: int, raws: list[int]) -> Dump:
        """Begins the file with the values of its first cycle."""
        config = self._simulation.config
        self._recorded = True
        self._dump = dump = Dump(
            self.path,
            period=config.CLOCK_PERIOD_PS,
            first=cycle,
            comment=f"configuration {config.name}, engine {self._engine.name}",
        )
        variables = {
            c: dump.register(c.scope, c.name, c.width, c.show(raws)) for c in self._sampler.channels
        }
        self._watching = [
            [(variables[c], c.show) for c in channels] for channels in self._sampler.watchers
        ]
        for memory in self._memories:
            for cell in memory.cells:
                value = cell.of(memory.rows[cell.row])
                self._cells[cell] = dump.register(memory.name, cell.name, cell.width, value)
        view = view_of(self._groups, self._sampler.channels, self._memories)
        write_gtkw(self.path, view, config.CLOCK_PERIOD_PS, cycle)
        write_sucl(self.path, view)
        return dump

    def _close(self) -> None:
        if self._dump is not None:
            self._dump.close()
            self._dump = None

    def _tell(self, text: str) -> None:
        print(f"{self.path}: {text}", file=sys.stderr)


def _with_cycle(group: Group, cycle: Computed) -> Group:
    return Group(group.name, group.unit, group.activity, (number("cycle", cycle), *group.waves))
