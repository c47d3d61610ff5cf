"""A progress bar for long runs: on a terminal only, after the first seconds, and never in the way
of a log."""

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

QUIET_SECONDS = 2.0
UPDATE_CYCLES = 256


def waiting(text: str) -> AbstractContextManager[object]:
    """Shows `text` beside a spinner while something of unknown length goes on; on a terminal
    only."""
    return Console(stderr=True).status(f"{text} ...") if sys.stderr.isatty() else nullcontext()


class Progress:
    """Shows cycles and cycles per second; `update` costs next to nothing between redraws."""

    def __init__(self, enabled: bool, limit: int) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._limit = limit
        self._bar: RichProgress | None = None
        self._started = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def update(self, cycles: int) -> None:
        """Tells the bar how far the run is."""
        if not self._enabled or cycles % UPDATE_CYCLES:
            return
        elapsed = time.monotonic() - self._started
        if self._bar is None:
            if elapsed < QUIET_SECONDS:
                return
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("")
            self._bar.start()
        text = f"{cycles:,} cycles of at most {self._limit:,}, {cycles / elapsed:,.0f} cycles/s"
        self._bar.update(self._task, description=text)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
