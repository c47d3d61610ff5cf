"""Values of chosen signals in every cycle of a window, collected in C and told afterwards."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from sim.observers import Observer, Samples

__all__ = ["Piece", "SampleLog"]

#: A part of a value, from the low end on: byte offset and size in the storage, first bit there,
#: width. Size 0: a constant, in the place of the first bit.
Piece = tuple[int, int, int, int]

_LOG_BYTES = 1 << 24
_MOST = 1 << 12  # samples in a log
_FOREVER = 1 << 62


class SampleLog:
    """What an observer wants of every cycle.

    A sample is the storage of all nets that are concerned, one behind the other. Most of them are
    as in the cycle before, so only values of which some byte differs are put together again.

    Args:
        observer: gets `sampling` once, and `sampled` for every cycle.
        samples: what it asked for.
        pieces: where each of the signals is.

    Members:
        first, stop: the window. places: offset and size of the parts of a sample, [count, 2].
        log: room for samples, [number, bytes].
    """

    def __init__(
        self, observer: Observer, samples: Samples, pieces: Sequence[Sequence[Piece]]
    ) -> None:
        self._observer = observer
        self.first = samples.first
        self.stop = _FOREVER if samples.stop is None else samples.stop
        parts = sorted({(at, size) for value in pieces for at, size, _, _ in value if size})
        self.count = len(parts)
        self.places = np.array(parts or [(0, 0)], np.int64).reshape(-1, 2)
        sizes = [size for _, size in parts]
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        width = int(starts[-1])
        self.log = np.zeros((max(2, min(_MOST, _LOG_BYTES // max(width, 1))), width), np.uint8)
        self._starts = starts[:-1]
        where = {part: int(start) for part, start in zip(parts, starts, strict=False)}
        number = {part: i for i, part in enumerate(parts)}
        #: Of each value: (first byte in a sample, last, first bit, mask, shift) of its pieces.
        self._pieces: list[list[tuple[int, int, int, int, int]]] = []
        self._fixed: list[int] = []
        self._users: list[list[int]] = [[] for _ in parts]  # of each part: values
        for value, its_pieces in enumerate(pieces):
            found: list[tuple[int, int, int, int, int]] = []
            fixed = shift = 0
            for at, size, start, bits in its_pieces:
                if size:
                    begin = where[at, size]
                    found.append((begin, begin + size, start, (1 << bits) - 1, shift))
                    self._users[number[at, size]].append(value)
                else:
                    fixed |= start << shift
                shift += bits
            self._pieces.append(found)
            self._fixed.append(fixed)
        self._begun = False
        self._before = np.zeros(0, np.uint8)
        self._values: list[int] = []

    def begin(self, cycle: int, stop: int) -> int:
        """The run goes on from `cycle`; returns where it has to stop at the latest."""
        if not self._begun and cycle < self.first:
            return min(stop, self.first)
        if not self._begun:
            self._begun = True
            self._observer.sampling(cycle)
        return stop

    def take(self, used: int) -> Iterator[Callable[[int], None]]:
        """What tells the observer of each of the first `used` samples, given its cycle."""
        samples = self.log[:used]
        before = np.concatenate([self._before.reshape(-1, samples.shape[1]), samples[:-1]])
        first = len(samples) - len(before)  # 1 if there is none before the first
        if used and self.count:
            differs = np.logical_or.reduceat(samples[first:] != before, self._starts, axis=1)
            self._before = samples[-1].copy()
        else:
            differs = np.zeros((used, 0), bool)
        for index in range(used):
            content = samples[index].tobytes()
            if index < first:
                self._values = [self._value(content, v) for v in range(len(self._pieces))]
            else:
                self._values = self._values.copy()
                for part in np.flatnonzero(differs[index - first]).tolist():
                    for value in self._users[part]:
                        self._values[value] = self._value(content, value)
            yield partial(self._tell, self._values)

    def _tell(self, values: list[int], cycle: int) -> None:
        self._observer.sampled(cycle, values)

    def _value(self, content: bytes, value: int) -> int:
        result = self._fixed[value]
        for begin, end, start, mask, shift in self._pieces[value]:
            whole = int.from_bytes(content[begin:end], "little")
            result |= (whole >> start & mask) << shift
        return result
