"""A VCD file in whole cycles: it ends at a cycle's end, whatever happens to the run."""

import io
from pathlib import Path
from typing import Any

from vcd import VCDWriter

#: In the file's comment; `waveforms.query` reads it to turn times into cycles.
PERIOD_TEXT = "1 cycle = {} ps"


class Dump:
    """Writes variables cycle by cycle; times are in picoseconds, cycle n begins at n periods.

    `register` every variable with its first value, then for every cycle `begin`, `change`, `end`. A
    cycle reaches the file in one piece at its `end`, so an interrupt leaves no half of one. The
    clock `run.clk` rises at the beginning of a cycle and falls in its middle.

    Args:
        path: the file, overwritten.
        period: of the clock, in picoseconds.
        first: the first cycle.
        comment: one line for the file's head.
    """

    def __init__(self, path: Path, *, period: int, first: int, comment: str) -> None:
        self._period = period
        self._cycle = first
        self._text = io.StringIO()
        self._writer = VCDWriter(
            self._text,
            timescale="1 ps",
            date="",
            version="PLENA waveforms",
            comment=f"{comment}; {PERIOD_TEXT.format(period)}",
            check_values=False,
            init_timestamp=first * period,
        )
        self.bytes_written = 0
        self._clock = self._writer.register_var("run", "clk", "wire", 1, init=1)
        self._file = path.open("wb", buffering=1 << 20)

    def register(self, scope: str, name: str, width: int, value: int | str) -> Any:
        """A variable of `width` bits, or a string one for width 0; the result is for `change`."""
        if width == 0:
            return self._writer.register_var(scope, name, "string", init=value)
        return self._writer.register_var(scope, name, "wire", width, init=value)

    def begin(self, cycle: int) -> None:
        """Changes from here on belong to the beginning of `cycle`; cycles never go back."""
        self._cycle = cycle
        self._writer.change(self._clock, cycle * self._period, 1)

    def change(self, variable: Any, value: int | str) -> None:
        """The variable has this value from the cycle on; no change costs nothing."""
        self._writer.change(variable, self._cycle * self._period, value)

    def end(self) -> None:
        """The cycle is complete."""
        half = self._period // 2
        if half:  # a clock of 1 ps cannot be shown
            self._writer.change(self._clock, self._cycle * self._period + half, 0)
        self._write_out()

    def close(self) -> None:
        """Drop what was not ended, and end the file one cycle after the last complete one."""
        self._text.seek(0)
        self._text.truncate()
        self._writer.close((self._cycle + 1) * self._period)
        self._write_out()
        self._file.close()

    def flush(self) -> None:
        """Everything that was ended is in the file."""
        self._file.flush()

    def _write_out(self) -> None:
        text = self._text.getvalue().encode("ascii")
        self._text.seek(0)
        self._text.truncate()
        self.bytes_written += len(text)
        self._file.write(text)


def write_empty(path: Path, comment: str) -> None:
    """A complete file without variables: what a run leaves that never reached its window."""
    text = io.StringIO()
    VCDWriter(text, timescale="1 ps", date="", version="PLENA waveforms", comment=comment).close()
    path.write_text(text.getvalue(), encoding="ascii")
