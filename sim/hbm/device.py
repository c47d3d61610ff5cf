"""The device behind the HBM port: the memory with its timing, the same object for every engine."""

from collections import deque

from isa.config import PlenaConfig
from isa.stages import Stage
from sim.hbm.memory import PAGE_BYTES, HbmMemory

BEAT_BYTES = 64
_PAGE_BEATS = PAGE_BYTES // BEAT_BYTES
_ALL_BYTES = (1 << BEAT_BYTES) - 1

#: Strobe byte -> the eight data bytes that it lets through.
_BYTE_MASKS = [bytes(0xFF if strobe >> bit & 1 else 0 for bit in range(8)) for strobe in range(256)]


class HbmDevice(HbmMemory):
    """The memory with its timing, one call per event; it knows nothing of the engine that calls it.

    An engine does this in cycle number `cycle`, counting up from 0::

        response = device.response(cycle)      # drive response.valid and payload with it
        ready = device.ready(cycle)            # drive request.ready with it
        if request.valid and ready:            # at the end of the cycle
            device.accept(cycle, ...)

    `response` must be called in every cycle in which one may be due (`next_response` says when).
    Every answer depends only on the cycle numbers and on what was accepted, so engines that call it
    alike agree exactly.

    Order: requests take effect when accepted, in that order; a read sees every write accepted
    before it. Writes are answered too. Answers come in request order, at most one per cycle.

    Timing: a request accepted in cycle t is answered in cycle t + HBM_LATENCY, or later when older
    answers hold it up; the next one is accepted HBM_CYCLES_PER_BEAT cycles later at the earliest,
    and only while fewer than `capacity` are under way.

    Counters, in bytes. All count 64 for each accepted request, when it is accepted, whatever it
    uses of the beat and whether or not it will be answered with an error:

    - `bytes_read[stage]`: read requests that carried the stage with that index
    - `bytes_written[stage]`: write requests likewise; 64 even for a single strobe bit
    - `total_read`, `total_written`: sums of these over all stages

    Host access (`read`, `write`, `fill`, `load`) is not counted and takes no time.

    Args:
        config: gives size, latency, bandwidth and, unless `capacity` says otherwise, the requests
        under way. capacity: requests that may be accepted and unanswered; default HBM_OUTSTANDING.
        seed: of the two kinds of disturbance below. extra_latency: each answer takes 0 to this many
        cycles longer, at random. backpressure: probability that a cycle is not ready, 0 to less
        than 1.

    Raises:
        ValueError: a value outside these ranges.
    """

    def __init__(
        self,
        config: PlenaConfig,
        *,
        capacity: int | None = None,
        seed: int = 0,
        extra_latency: int = 0,
        backpressure: float = 0.0,
    ) -> None:
        super().__init__(config.HBM_BYTES, config.mx_dialect)
        self.capacity = config.HBM_OUTSTANDING if capacity is None else capacity
        if self.capacity < 1:
            raise ValueError(f"HBM capacity must be at least 1 request, not {self.capacity}")
        if extra_latency < 0:
            raise ValueError(f"HBM extra_latency must not be negative, not {extra_latency}")
        if not 0.0 <= backpressure < 1.0:
            raise ValueError(f"HBM backpressure must be at least 0 and below 1, not {backpressure}")
        self._latency = config.HBM_LATENCY
        self._cycles_per_beat = config.HBM_CYCLES_PER_BEAT
        self._seed = seed
        self._extra_latency = extra_latency
        self._backpressure = int(backpressure * (1 << 32))
        self._faults: list[tuple[int, int]] = []
        self.reset()

    def reset(self) -> None:
        """Forget what is under way, and the counters; contents and faults stay. Time is 0 again."""
        self._due: deque[tuple[int, int, bool]] = deque()  # cycle, data, error
        self._free_at = 0
        self._last_due = -1
        self._accepted = 0
        self.reset_counters()

    def reset_counters(self) -> None:
        """Set all counters to 0."""
        self.bytes_read = [0] * len(Stage)
        self.bytes_written = [0] * len(Stage)

    @property
    def total_read(self) -> int:
        """Bytes of all accepted read requests."""
        return sum(self.bytes_read)

    @property
    def total_written(self) -> int:
        """Bytes of all accepted write requests."""
        return sum(self.bytes_written)

    @property
    def under_way(self) -> int:
        """Requests that were accepted and whose answer was not yet fetched."""
        return len(self._due)

    @property
    def next_response(self) -> int | None:
        """The cycle in which the next answer is due; None when nothing is under way."""
        return self._due[0][0] if self._due else None

    def inject_fault(self, address: int, length: int = 1) -> None:
        """Answer later requests for the beats of these bytes with an error; writes change nothing.

        Raises:
            HbmRangeError: the range is outside the memory.
        """
        self._check(address, length)
        self._faults.append((address // BEAT_BYTES, -(-(address + length) // BEAT_BYTES)))

    def is_faulty(self, address: int, length: int) -> bool:
        """Whether a request for one of these bytes is answered with an error."""
        first, last = address // BEAT_BYTES, (address + length - 1) // BEAT_BYTES
        return any(low <= last and first < high for low, high in self._faults)

    def clear_faults(self) -> None:
        """Answer without errors again."""
        self._faults.clear()

    def ready(self, cycle: int) -> bool:
        """Whether a request is accepted in this cycle if there is one."""
        under_way = len(self._due)
        if self._due and self._due[0][0] <= cycle:
            under_way -= 1  # answered in this cycle, fetched already or not
        if cycle < self._free_at or under_way >= self.capacity:
            return False
        return not self._backpressure or self._random(2 * cycle) >= self._backpressure

    def accept(
        self, cycle: int, address_beat: int, write: bool, data: int, strobe: int, stage: int
    ) -> None:
        """Take the request for beat number `address_beat`; only in a cycle that is `ready`.

        A beat outside the memory is answered with an error.
        """
        address = address_beat * BEAT_BYTES
        error = address >= self.size or any(
            low <= address_beat < high for low, high in self._faults
        )
        answer = 0
        if write:
            self.bytes_written[stage] += BEAT_BYTES
            if not error:
                self._write_beat(address_beat, data, strobe)
        else:
            self.bytes_read[stage] += BEAT_BYTES
            page = None if error else self._pages.get(address_beat // _PAGE_BEATS)
            if page is not None:
                start = address % PAGE_BYTES
                answer = int.from_bytes(page[start : start + BEAT_BYTES], "little")
        latency = self._latency
        if self._extra_latency:
            latency += self._random(2 * self._accepted + 1) % (self._extra_latency + 1)
        self._last_due = max(cycle + latency, self._last_due + 1)
        self._due.append((self._last_due, answer, error))
        self._free_at = cycle + self._cycles_per_beat
        self._accepted += 1

    def response(self, cycle: int) -> tuple[int, bool] | None:
        """Return (data, error) of the answer due in this cycle, once; None when there is none.

        The data of a write's answer and of an error is 0.
        """
        if self._due and self._due[0][0] <= cycle:
            _, answer, error = self._due.popleft()
            return answer, error
        return None

    def _write_beat(self, address_beat: int, data: int, strobe: int) -> None:
        if not strobe:
            return
        page = self._page(address_beat // _PAGE_BEATS)
        start = address_beat % _PAGE_BEATS * BEAT_BYTES
        beat = slice(start, start + BEAT_BYTES)
        if strobe != _ALL_BYTES:
            mask = int.from_bytes(
                b"".join(_BYTE_MASKS[b] for b in strobe.to_bytes(8, "little")), "little"
            )
            data = (int.from_bytes(page[beat], "little") & ~mask) | (data & mask)
        page[beat] = data.to_bytes(BEAT_BYTES, "little")

    def _random(self, event: int) -> int:
        """Return 32 bits that depend on the seed and the event alone, not on earlier calls."""
        # SplitMix64.
        z = (
            self._seed * 0xD1342543DE82EF95 + (event + 1) * 0x9E3779B97F4A7C15
        ) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (z ^ (z >> 31)) >> 32
