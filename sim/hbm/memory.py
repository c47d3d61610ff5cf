"""The bytes of the memory behind the HBM port: sparse, saved to files and read from them."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from isa.config import MX_DIALECTS

PAGE_BYTES = 1 << 16
_IMAGE_VERSION = 2


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
