"""The part of a run that is recorded."""

from dataclasses import dataclass

#: As users give it: the first cycle, and the first one that is left out again (None: to the end).
WindowLike = tuple[int, int | None] | None


@dataclass(frozen=True)
class Window:
    """Cycles from `first` up to, not including, `stop`; no `stop` means to the end.

    Raises ValueError for a negative or empty window.
    """

    first: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.first < 0 or (self.stop is not None and self.stop <= self.first):
            raise ValueError(
                f"window {self.first} to {self.stop}: cycles count from 0, and the second number "
                "is the first cycle that is left out, so it must be the larger one"
            )

    @classmethod
    def of(cls, window: WindowLike) -> "Window":
        """From a pair, or None for the whole run."""
        return cls() if window is None else cls(*window)

    def __contains__(self, cycle: int) -> bool:
        return cycle >= self.first and (self.stop is None or cycle < self.stop)

    def __str__(self) -> str:
        return f"cycles {self.first} to {'the end' if self.stop is None else self.stop - 1}"

    def cycles_of(self, run: int) -> int:
        """How many of a run's first `run` cycles are inside."""
        return max(0, min(run, run if self.stop is None else self.stop) - self.first)
