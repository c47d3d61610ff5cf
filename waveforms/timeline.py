"""The timeline of a run: instructions from dispatch to completion, as Chrome-trace JSON."""

import json
from os import PathLike
from pathlib import Path
from typing import Any

from isa.image import write_atomically
from isa.instruction import word_text
from isa.opcodes import OPCODES, Unit
from isa.stages import Stage
from sim.observers import Completed, Dispatched, Observer
from sim.simulation import Simulation
from waveforms.flight import Flight
from waveforms.window import Window, WindowLike

Event = dict[str, Any]

#: The end of an instruction that is still going on.
_NOT_YET = 1 << 62

STAGE_LANE, STALL_LANE, FIRST_UNIT_LANE, LANES_PER_UNIT = 0, 1, 10, 100


class Timeline(Observer):
    """Collects one run and writes `path` when it ends, however it ends; open it at ui.perfetto.dev.

    One cycle is shown as 1 microsecond. Lane `stage` has the stage that every cycle belongs to
    (lengths add up to the profile's wall cycles), lane `stall` why nothing was dispatched. Every
    unit has as many lanes as it had instructions at once. A slice is an instruction from its
    dispatch cycle to its completion cycle, both included, called by its mnemonic, with pc, stage,
    line and word.

    Args:
        path: the file, replaced.
        simulation: the one that it will observe.
        window: `(first, stop)`: only what is dispatched in these cycles.

    Raises ValueError for an impossible window.
    """

    def __init__(
        self, path: str | PathLike[str], simulation: Simulation, *, window: WindowLike = None
    ) -> None:
        self.path = Path(path)
        self._simulation = simulation
        self._window = Window.of(window)
        self._flight = Flight()
        self._events: list[Event] = []
        self._lane_of: dict[int, int] = {}  # by id of the unfinished instruction
        #: Per unit and lane: free from this cycle on.
        self._ends: dict[Unit, list[int]] = {unit: [] for unit in Unit}
        self._now = 0
        self._open: dict[int, tuple[str, int]] = {}  # lane: what goes on, since when

    def dispatched(self, event: Dispatched) -> None:
        """Takes a lane that is free."""
        self._flight.enter(event)
        lanes = self._ends[Unit(event.unit)]
        free = [lane for lane, end in enumerate(lanes) if end <= event.cycle]
        lane = free[0] if free else len(lanes)
        lanes[lane : lane + 1] = [_NOT_YET]
        self._lane_of[id(event)] = lane

    def completed(self, event: Completed) -> None:
        """The instruction's slice is known."""
        began = self._flight.leave(event)
        if began is not None:
            self._instruction(began, event.cycle + 1, {"completed on": event.port})

    def cycle(self, cycle: int) -> None:
        """Follows stage and stall reason."""
        engine = self._simulation.engine
        top: Any = engine.top
        counting = engine.get(top.counting) and cycle in self._window
        self._now = cycle + 1 if counting else cycle
        stall = top.stall.shape()(engine.get(top.stall))
        stage = Stage(engine.get(top.bill_stage)).label if counting else ""
        self._lane(STAGE_LANE, stage, cycle)
        stalled = counting and stall.value != 0  # 0: something was dispatched
        self._lane(STALL_LANE, stall.name.lower() if stalled else "", cycle)

    def stop(self) -> None:
        """Writes the file; what is unfinished ends here and says so."""
        for lane in (STAGE_LANE, STALL_LANE):
            self._lane(lane, "", self._now)
        for began in self._flight.unfinished():
            self._instruction(began, max(self._now, began.cycle + 1), {"unfinished": True})
        self._flight.clear()
        config, engine = self._simulation.config, self._simulation.engine
        document = {
            "traceEvents": [*self._names(), *self._events],
            "displayTimeUnit": "ns",
            "otherData": {
                "time": "1 cycle is shown as 1 us",
                "picoseconds per cycle": config.CLOCK_PERIOD_PS,
                "configuration": config.name,
                "engine": engine.name,
                "issue policy": self._simulation.issue,
            },
        }
        write_atomically(self.path, json.dumps(document, separators=(",", ":")).encode())

    def _lane(self, lane: int, what: str, cycle: int) -> None:
        """From `cycle` on, this goes on in a lane; nothing for an empty name."""
        before, since = self._open.get(lane, ("", 0))
        if before == what:
            return
        if before:
            category = "stage" if lane == STAGE_LANE else "stall"
            self._slice(before, category, lane, since, cycle, {})
        self._open[lane] = (what, cycle)

    def _instruction(self, began: Dispatched, end: int, more: Event) -> None:
        unit = Unit(began.unit)
        lane = self._lane_of.pop(id(began))
        self._ends[unit][lane] = end
        if began.cycle not in self._window:
            return
        image = self._simulation.image
        line = int(image.lines[began.pc])
        arguments = {
            "pc": began.pc,
            "stage": Stage(began.stage).label,
            "instruction": word_text(began.word),
            "line": line,
            "source": image.source[line - 1].strip(),
            "word": f"0x{began.word:08X}",
            **more,
        }
        name = OPCODES[began.word & 0x3F].mnemonic
        self._slice(name, unit.name.lower(), _lane_number(unit, lane), began.cycle, end, arguments)

    def _slice(
        self, name: str, category: str, lane: int, start: int, end: int, arguments: Event
    ) -> None:
        self._events.append(
            {
                "name": name,
                "cat": category,
                "ph": "X",
                "ts": start,
                "dur": end - start,
                "pid": 1,
                "tid": lane,
                "args": arguments,
            }
        )

    def _names(self) -> list[Event]:
        """What the lanes are called, and their order."""
        lanes = {STAGE_LANE: "stage", STALL_LANE: "stall"}
        for unit, ends in self._ends.items():
            name = unit.name.lower()
            lanes |= {_lane_number(unit, i): f"{name} {i + 1}" for i in range(len(ends))}
        title = {"name": "PLENA, 1 cycle = 1 us"}
        names: list[Event] = [{"ph": "M", "pid": 1, "name": "process_name", "args": title}]
        for lane, name in lanes.items():
            common = {"ph": "M", "pid": 1, "tid": lane}
            names.append({**common, "name": "thread_name", "args": {"name": name}})
            names.append({**common, "name": "thread_sort_index", "args": {"sort_index": lane}})
        return names


def _lane_number(unit: Unit, lane: int) -> int:
    return FIRST_UNIT_LANE + LANES_PER_UNIT * unit + lane
