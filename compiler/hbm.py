"""HBM tensors: MX elements, then their scales; row-major or tile-major; the addresses of both."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from compiler.arena import Arena
from compiler.errors import CompileError, require, require_multiple
from isa.config import PlenaConfig

Codes = npt.NDArray[np.uint8]
#: HBM is laid out in rows of 32 bytes (256 bits): both regions are padded to whole rows.
HBM_ROW_BYTES = 32
#: Tensors start on boundaries of this many bytes.
BOUNDARY = 64
#: Bytes that the low word of an address reaches.
ADDRESS_WORD = 1 << 32


class Order(Enum):
    """The order of a tensor's elements in HBM."""

    ROWS = "row-major"
    TILES = "tile-major: MLEN x MLEN tiles, those of one column of tiles one after another"


@dataclass(frozen=True, kw_only=True)
class HbmTensor:
    """[rows, cols] of 8-bit MX elements at byte address `base`, with one E8M0 scale per `block`.

        base                       base + scale_offset            base + footprint
        | elements, rows x columns | pad to 32 | scales, n / block | pad to 32 |

    `physical_rows` x `cols` elements exist; rows past `rows` are zeros that the host writes. With
    `slack_rows`, that many rows behind the last one may be read too (isa.md: one H_PREFETCH_V moves
    several). `mlen` is the tile side.
    """

    name: str
    rows: int
    cols: int
    physical_rows: int
    order: Order
    base: int
    block: int
    mlen: int
    slack_rows: int = 0

    @property
    def elements(self) -> int:
        """Physical elements, one byte each."""
        return self.physical_rows * self.cols

    @property
    def scale_offset(self) -> int:
        """SCALE: bytes from the first element to the first scale."""
        return _padded(self.elements)

    @property
    def footprint(self) -> int:
        """Bytes of both padded regions: lowering.md, "HBM"."""
        return self.scale_offset + _padded(self.elements // self.block)

    @property
    def extent(self) -> int:
        """Bytes that must be readable: the footprint and what a read of the slack rows touches."""
        slack = self.elements + self.slack_rows * self.cols
        return max(self.footprint, slack, self.scale_offset + _padded(slack // self.block))

    @property
    def pitch(self) -> int:
        """Bytes to the next tensor of the same shape: the extent, up to the next boundary."""
        return -(-self.extent // BOUNDARY) * BOUNDARY

    @property
    def stride(self) -> int:
        """STRIDE: bytes from one row (of a tile) to the next."""
        return self.cols if self.order is Order.ROWS else self.mlen

    @property
    def tile_step(self) -> int:
        """Element offset from tile (k, c) to tile (k + 1, c)."""
        return self.mlen * (self.cols if self.order is Order.ROWS else self.mlen)

    @property
    def column_step(self) -> int:
        """Element offset from tile (k, c) to tile (k, c + 1)."""
        return self.mlen if self.order is Order.ROWS else self.physical_rows * self.mlen

    def place(self, codes: Codes, scales: Codes) -> list[tuple[int, bytes]]:
        """The (address, bytes) to write for codes [rows, cols] and scales [rows, cols / block].

        Raises:
            CompileError: another dtype than uint8, or another shape; both are named.
        """
        regions = (
            ("codes", codes, self.base, 1),
            ("scales", scales, self.base + self.scale_offset, self.block),
        )
        writes = []
        for name, values, address, block in regions:
            shape = (self.rows, self.cols // block)
            require(
                values.dtype == np.uint8,
                f"{self.name} {name} of dtype {values.dtype}",
                "must be uint8, encoded MX bytes",
                "encode the values first; do not cast them",
            )
            require(
                values.shape == shape,
                f"{self.name} {name} {values.shape}",
                f"must be {shape}",
                "reshape",
            )
            physical = np.zeros((self.physical_rows, self.cols // block), np.uint8)
            physical[: self.rows] = values
            writes.append((address, self._in_order(physical, block).tobytes()))
        return writes

    def gather(self, read: Callable[[int, int], bytes]) -> tuple[Codes, Codes]:
        """The inverse of `place`: codes and scales, through `read(address, size)`."""
        regions = []
        for address, block in ((self.base, 1), (self.base + self.scale_offset, self.block)):
            raw = np.frombuffer(read(address, self.elements // block), np.uint8)
            regions.append(self._in_rows(raw, block)[: self.rows].copy())
        return regions[0], regions[1]

    def _tiles(self, block: int) -> tuple[int, int, int, int]:
        """The shape [column, k, row, lane] of the tile-major order."""
        return (
            self.cols // self.mlen,
            self.physical_rows // self.mlen,
            self.mlen,
            self.mlen // block,
        )

    def _in_order(self, physical: Codes, block: int) -> Codes:
        if self.order is Order.ROWS:
            return physical
        columns, tiles, rows, lanes = self._tiles(block)
        return physical.reshape(tiles, rows, columns, lanes).transpose(2, 0, 1, 3)

    def _in_rows(self, raw: Codes, block: int) -> Codes:
        if self.order is Order.ROWS:
            return raw.reshape(self.physical_rows, -1)
        return raw.reshape(self._tiles(block)).transpose(1, 2, 0, 3).reshape(self.physical_rows, -1)


class HbmLayout:
    """Places tensors in HBM from `start` up, on 64-byte boundaries, each with a unique name."""

    def __init__(self, config: PlenaConfig, start: int = 0) -> None:
        self._config = config
        self._beat = config.HBM_BEAT_BYTES
        self._arena = Arena(
            "HBM", "bytes", config.HBM_BYTES, "use fewer tensors, or raise HBM_BYTES"
        )
        self._end = -(-start // self._beat) * self._beat
        self.tensors: dict[str, HbmTensor] = {}

    def tensor(
        self,
        name: str,
        rows: int,
        cols: int,
        *,
        order: Order = Order.ROWS,
        physical_rows: int | None = None,
        slack_rows: int = 0,
        copies: int = 1,
        at: int | None = None,
    ) -> HbmTensor:
        """Allocate [rows, cols] behind the last tensor, or at byte `at`.

        `copies` tensors of this shape are allocated one behind the other, `HbmTensor.pitch` bytes
        apart, and the first is returned. What fits between two 4 GiB lines does not cross one.

        Raises:
            CompileError: a shape that the order does not allow, `at` off a 64-byte boundary, an
                overlap (both tensors are named), or no space.
        """
        mlen, block = self._config.MLEN, self._config.MX_BLOCK
        require(rows >= 1, f"{name}: rows = {rows}", "must be at least 1", "leave the tensor out")
        require_multiple(f"{name}: cols", cols, mlen, "MLEN")
        if order is Order.TILES:
            require_multiple(f"{name}: rows", rows, mlen, "MLEN")
        start = self._end if at is None else at
        require(
            start % self._beat == 0,
            f"{name}: address {start}",
            f"must be a multiple of {self._beat}: two tensors must not share an HBM row",
            f"use {-(-start // self._beat) * self._beat}",
        )
        physical = rows if physical_rows is None else physical_rows
        if physical < rows:
            raise CompileError(
                f"{name}: {physical} physical rows cannot hold {rows} rows (raise them)"
            )
        tensor = HbmTensor(
            name=name,
            rows=rows,
            cols=cols,
            physical_rows=physical,
            order=order,
            base=start,
            block=block,
            mlen=mlen,
            slack_rows=slack_rows,
        )
        size = tensor.pitch * copies
        line = start // ADDRESS_WORD + 1
        if at is None and size <= ADDRESS_WORD < start + size - (line - 1) * ADDRESS_WORD:
            start = line * ADDRESS_WORD
            tensor = replace(tensor, base=start)
        self._arena.reserve(name, start, size)
        self._end = max(self._end, start + size)
        self.tensors[name] = tensor
        return tensor


def _padded(count: int) -> int:
    return -(-count // HBM_ROW_BYTES) * HBM_ROW_BYTES
