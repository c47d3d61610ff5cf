"""The memory behind the HBM port: a host-side model, the same object for every engine."""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from isa.config import MX_DIALECTS, PlenaConfig
from isa.stages import Stage

BEAT_BYTES = 64
PAGE_BYTES = 1 << 16
_PAGE_BEATS = PAGE_BYTES // BEAT_BYTES
_ALL_BYTES = (1 << BEAT_BYTES) - 1
_IMAGE_VERSION = 2

#: Strobe byte -> the eight data bytes that it lets through.
_BYTE_MASKS = [bytes(0xFF if strobe >> bit & 1 else 0 for bit in range(8)) for strobe in range(256)]


class HbmRangeError(ValueError):
    """A host access outside the memory; the message names address, length and size."""

    def __init__(self, address: int, length: int, size: int) -> None:
        self.address, self.length, self.size = address, length, size
        super().__init__(
            f"HBM access of {length} bytes at address {address:#x} is outside the memory "
            f"of {size} bytes (0 to {size - 1:#x}; HBM_BYTES in the configuration)"
        )


class HbmImageError(ValueError):
    """A file that is not a memory image of this model, or does not fit the memory."""


class HbmMemory:
    """Sparse bytes: a page of 64 KiB exists once it is written to; all else reads as zero.

    `mx_dialect` is what the bytes mean to the machine; it goes into image files and is compared
    when they are read.
    """

    def __init__(self, size: int, mx_dialect: str = MX_DIALECTS[0]) -> None:
        self.size = size
        self.mx_dialect = mx_dialect
        self._pages: dict[int, bytearray] = {}

    def read(self, address: int, length: int) -> bytes:
        """Return `length` bytes from `address` on.

        Raises:
            HbmRangeError: some of them are outside the memory.
        """
        parts = []
        for number, start, stop in self._spans(address, length):
            page = self._pages.get(number)
            parts.append(bytes(stop - start) if page is None else page[start:stop])
        return b"".join(parts)

    def write(self, address: int, content: bytes | bytearray | memoryview | np.ndarray) -> None:
        """Store `content`, bytes-like or an array (its bytes in C order), from `address` on.

        Raises:
            HbmRangeError: some of it would be outside the memory; nothing is written then.
        """
        if isinstance(content, np.ndarray):
            content = np.ascontiguousarray(content).tobytes()
        view = memoryview(content).cast("B")
        done = 0
        for number, start, stop in self._spans(address, len(view)):
            self._page(number)[start:stop] = view[done : done + stop - start]
            done += stop - start

    def fill(self, address: int, length: int, value: int = 0) -> None:
        """Set `length` bytes to `value`; whole pages of zeros are dropped: clearing all is cheap.

        Raises:
            HbmRangeError: some of them are outside the memory.
            ValueError: `value` is not a byte.
        """
        if not 0 <= value <= 255:
            raise ValueError(f"HBM fill value must be 0 to 255, not {value}")
        self._check(address, length)
        if value == 0:
            for number in list(self._pages):
                base = number * PAGE_BYTES
                if address <= base and base + PAGE_BYTES <= address + length:
                    del self._pages[number]
            for number in list(self._pages):
                base = number * PAGE_BYTES
                start, stop = (
                    max(address, base) - base,
                    min(address + length, base + PAGE_BYTES) - base,
                )
                if start < stop:
                    self._pages[number][start:stop] = bytes(stop - start)
            return
        for number, start, stop in self._spans(address, length):
            self._page(number)[start:stop] = bytes([value]) * (stop - start)

    def is_faulty(self, address: int, length: int) -> bool:
        """Whether a request for one of these bytes is answered with an error."""
        return False

    def image(self) -> dict[int, bytes]:
        """Return a copy of the pages that were written to, by byte address, ascending."""
        return {number * PAGE_BYTES: bytes(self._pages[number]) for number in sorted(self._pages)}

    def save(self, path: str | Path) -> None:
        """Write the image to `path` (.npz); readers see the old file or the new one, no mixture."""
        target = Path(path)
        image = self.image()
        pages = np.frombuffer(b"".join(image.values()), np.uint8).reshape(-1, PAGE_BYTES)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                np.savez(
                    file,
                    version=np.int64(_IMAGE_VERSION),
                    size=np.uint64(self.size),
                    mx_dialect=np.str_(self.mx_dialect),
                    addresses=np.array(list(image), dtype=np.uint64),
                    pages=pages,
                )
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def load(self, path: str | Path) -> None:
        """Replace all contents by the image in `path`; the memory is unchanged when that fails.

        Raises:
            HbmImageError: not an image, one of another MX dialect, or with pages outside this
                memory.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                version, addresses, pages = int(file["version"]), file["addresses"], file["pages"]
                dialect = str(file["mx_dialect"]) if version == _IMAGE_VERSION else ""
        except (KeyError, ValueError, EOFError) as error:
            raise HbmImageError(f"{path}: not an HBM image: {error}") from error
        if version != _IMAGE_VERSION:
            raise HbmImageError(
                f"{path}: HBM image version {version}, this program reads {_IMAGE_VERSION}; write "
                "the image again"
            )
        if dialect != self.mx_dialect:
            raise HbmImageError(
                f"{path}: the HBM image is in MX dialect {dialect}, the machine's is "
                f"{self.mx_dialect}, and the bytes would be other numbers; use a configuration "
                f"with mx_dialect = {dialect!r}, or write the image again under {self.mx_dialect}"
            )
        if pages.dtype != np.uint8 or pages.shape != (len(addresses), PAGE_BYTES):
            raise HbmImageError(
                f"{path}: not an HBM image: pages are {pages.dtype}{list(pages.shape)}"
            )
        loaded = {}
        for address, page in zip(addresses.tolist(), pages, strict=True):
            if address % PAGE_BYTES or address >= self.size:
                raise HbmImageError(
                    f"{path}: page at {address:#x} does not fit a memory "
                    f"of {self.size} bytes (HBM_BYTES)"
                )
            loaded[address // PAGE_BYTES] = bytearray(page.tobytes())
        self._pages = loaded

    def _check(self, address: int, length: int) -> None:
        if address < 0 or length < 0 or address + length > self.size:
            raise HbmRangeError(address, length, self.size)

    def _page(self, number: int) -> bytearray:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = bytearray(PAGE_BYTES)
        return page

    def _spans(self, address: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Return (page, start, stop) for the pieces of a range, after checking it."""
        self._check(address, length)
        end = address + length
        return (
            (
                number,
                max(address - number * PAGE_BYTES, 0),
                min(end - number * PAGE_BYTES, PAGE_BYTES),
            )
            for number in range(address // PAGE_BYTES, -(-end // PAGE_BYTES))
        )


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
