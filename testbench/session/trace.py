"""The trace of a run: a line per dispatched instruction and per completion, in order of cycles."""

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from isa.image import ProgramImage
from isa.instruction import word_text
from sim.observers import Completed, Dispatched, Observer
from waveforms.flight import Flight

_STAGE_WIDTH = 24
HEAD = f"{'cycle':>9} {'pc':>6}  {'stage':{_STAGE_WIDTH}}  event"


class InFlight(Observer):
    """Counts instructions, and knows which are unfinished."""

    accepts_late_events = True

    def __init__(self) -> None:
        self.flight = Flight()
        self.dispatches = 0
        self.completions = 0

    def dispatched(self, event: Dispatched) -> None:
        """One more under way."""
        self.dispatches += 1
        self.flight.enter(event)

    def completed(self, event: Completed) -> None:
        """One less."""
        self.completions += 1
        self.flight.leave(event)


class Tracer(Observer):
    """Writes the trace to `out`, while `wanted` says so.

    A line has the cycle, the pc, the stage, and the instruction, or `done` with the port on which
    it completed.
    """

    accepts_late_events = True

    def __init__(
        self, image: ProgramImage, out: TextIO, wanted: Callable[[], bool] | None = None
    ) -> None:
        self._labels = image.vocabulary
        self._texts: dict[int, str] = {}
        self._out = out
        self._wanted = wanted

    def _line(self, cycle: int, pc: int, tag: int, text: str) -> None:
        if self._wanted is None or self._wanted():
            label = self._labels[tag]
            self._out.write(f"{cycle:9d} {pc:6d}  {label:{_STAGE_WIDTH}}  {text}\n")

    def start(self, simulation: object) -> None:
        """The head of the columns."""
        self._out.write(f"{HEAD}\n")

    def dispatched(self, event: Dispatched) -> None:
        """The instruction, as assembly."""
        text = self._texts.get(event.pc)
        if text is None:
            text = self._texts[event.pc] = word_text(event.word)
        self._line(event.cycle, event.pc, event.stage, text)

    def completed(self, event: Completed) -> None:
        """Where it completed."""
        self._line(event.cycle, event.pc, event.stage, f"done ({event.port})")


class TraceFile(Tracer):
    """A trace in a file that appears, complete, when the run is over, however it ends."""

    def __init__(self, image: ProgramImage, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        super().__init__(image, sys.stdout)

    def start(self, simulation: object) -> None:
        """Begins the file under another name."""
        self._out = self._temporary.open("w", encoding="utf-8")
        super().start(simulation)

    def stop(self) -> None:
        """The file takes its place; after an interrupt or error its last line says so."""
        error = sys.exc_info()[1]
        try:
            if error is not None:
                self._out.write(f"; the run was cut off here: {type(error).__name__}\n")
            self._out.close()
            os.replace(self._temporary, self.path)
        finally:
            self._temporary.unlink(missing_ok=True)
