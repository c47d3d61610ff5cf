"""The end of every command: its exit code, also when nobody reads its output any more."""

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["EXIT_PIPE", "error_text", "leave_with"]

#: What a shell shows for a process that SIGPIPE has ended: 128 + 13.
EXIT_PIPE = 141


def leave_with(main: Callable[[], int]) -> NoReturn:
    """Run a command and end the process with the exit code that it returns.

    A closed output pipe (`COMMAND | head`) ends it without a word and with EXIT_PIPE, as other
    tools end; files that the command is writing are still completed or removed on the way out.
    """
    sys.stdout, sys.stderr = _leaving(sys.stdout), _leaving(sys.stderr)
    try:
        code = main()
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()  # that the reader is gone must show here, not when Python winds up
    sys.exit(code)


def error_text(error: Exception) -> str:
    """What to tell a person: of a file's error, the file and what is wrong with it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'output'}: {error.strerror}"
    return str(error)


class _Pipe(io.FileIO):
    """An output that raises SystemExit, which no handler of errors takes, when it has no reader."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._discard()
            raise SystemExit(EXIT_PIPE) from None

    def _discard(self) -> None:
        """What is still buffered goes nowhere, instead of failing again."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def _leaving(stream: TextIO) -> TextIO:
    """The same stream on a `_Pipe`; unchanged when it is none of the process's own files."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # None when the process was started without
    stream.flush()
    raw = _Pipe(stream.fileno(), "w", closefd=False)
    unbuffered = isinstance(stream.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # type: ignore[arg-type]
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
