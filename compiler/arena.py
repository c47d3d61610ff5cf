"""Intervals of one memory: best-fit allocation, merging on release, overlap checks."""

from dataclasses import dataclass

from compiler.errors import CompileError


@dataclass(frozen=True)
class Interval:
    """Units [start, start + size) of a memory, held under `name`."""

    name: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """The first unit behind it."""
        return self.start + self.size

    def __str__(self) -> str:
        return f"{self.name!r} [{self.start}, {self.end})"


class Arena:
    """Named intervals of `capacity` units of one memory.

    `memory`, `unit` and `way_out` are for messages ("vector SRAM", "rows", "lower rows, or ...").
    """

    def __init__(self, memory: str, unit: str, capacity: int, way_out: str) -> None:
        self.memory, self.unit, self.capacity, self.way_out = memory, unit, capacity, way_out
        self._held: dict[str, Interval] = {}
        self._past: set[str] = set()
        self._touched = 0  # units from here on were never held

    @property
    def held(self) -> tuple[Interval, ...]:
        """Intervals in use, by address."""
        return tuple(sorted(self._held.values(), key=lambda i: i.start))

    def gaps(self) -> list[tuple[int, int]]:
        """The free runs as (start, size), by address; neighbours are always merged."""
        gaps, cursor = [], 0
        for interval in self.held:
            if interval.start > cursor:
                gaps.append((cursor, interval.start - cursor))
            cursor = interval.end
        if cursor < self.capacity:
            gaps.append((cursor, self.capacity - cursor))
        return gaps

    def allocate(self, name: str, size: int, align: int = 1, *, fresh: bool = False) -> Interval:
        """The smallest free run for `size` units from a multiple of `align`; lowest of equals.

        `fresh`: only units that nobody held before, for what the host writes before the program
        runs: a scratch that was given back earlier in the text is still written by the program.
        """
        fitting = []
        for start, length in self.gaps():
            first = max(start, self._touched) if fresh else start
            aligned = -(-first // align) * align
            if aligned + size <= start + length:
                fitting.append((length, aligned))
        if not fitting:
            raise self._full(name, size, fresh)
        return self._hold(Interval(name, min(fitting)[1], size))

    def reserve(self, name: str, start: int, size: int) -> Interval:
        """Exactly [start, start + size); CompileError names both sides of an overlap."""
        wanted = Interval(name, start, size)
        if start < 0 or wanted.end > self.capacity:
            raise CompileError(
                f"{self.memory}: {wanted} leaves 0 to {self.capacity} {self.unit} ({self.way_out})"
            )
        for other in self.held:
            if start < other.end and other.start < wanted.end:
                raise CompileError(
                    f"{self.memory}: {wanted} ({size} {self.unit}) overlaps {other} "
                    f"({other.size} {self.unit}) (move one of them)"
                )
        return self._hold(wanted)

    def release(self, name: str) -> None:
        """Free the interval called `name`; CompileError when there is none."""
        if name not in self._held:
            raise CompileError(f"{self.memory}: {name!r} is not allocated (freed twice?)")
        del self._held[name]

    def unique(self, name: str) -> str:
        """`name`, or `name#2`, `name#3` when an emitter ran before: names never repeat."""
        number, candidate = 1, name
        while candidate in self._past:
            number += 1
            candidate = f"{name}#{number}"
        return candidate

    def _hold(self, interval: Interval) -> Interval:
        if interval.name in self._past:
            raise CompileError(
                f"{self.memory}: {interval.name!r} was allocated before "
                "(names are unique per program)"
            )
        self._held[interval.name] = interval
        self._past.add(interval.name)
        self._touched = max(self._touched, interval.end)
        return interval

    def _full(self, name: str, size: int, fresh: bool) -> CompileError:
        gaps = [length for _, length in self.gaps()]
        users = ", ".join(f"{i.name} {i.size}" for i in self.held) or "nobody"
        unused = f" ({self.capacity - self._touched} never used before)" if fresh else ""
        return CompileError(
            f"{self.memory}: {name!r} needs {size} {self.unit}; {sum(gaps)} of {self.capacity} are "
            f"free, at most {max(gaps, default=0)} in one run{unused}; held by: {users} "
            f"({self.way_out})"
        )
