"""What the generator knows about registers, and the addresses that an access may have."""

import random
from dataclasses import dataclass

from isa.config import PlenaConfig
from isa.opcodes import Extent

#: Rows and tiles that a program works on: few, so that accesses meet.
ROW_WINDOW = 20
TILE_WINDOW = 3
WORD_WINDOW = 12
#: Bytes of the device memory that hold data.
HBM_WINDOW = 4096
TOPK_EXPERTS = 32


@dataclass(frozen=True)
class Known:
    """A register's value: `low` to `high` in steps of `align`."""

    low: int
    high: int
    align: int

    @classmethod
    def exactly(cls, value: int) -> "Known":
        """One value."""
        return cls(value, value, 1 << 32 if value == 0 else value & -value)

    @property
    def exact(self) -> bool:
        """Whether there is just one."""
        return self.low == self.high

    def walked(self, step: int, times: int) -> "Known":
        """After up to `times` increments by `step`."""
        return Known(self.low, self.high + step * times, min(self.align, step & -step))


class AddressRules:
    """Legal addresses of one configuration, by extent."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config = config

    def rows(self, extent: Extent) -> int:
        """Vector SRAM rows that an access reaches, at most."""
        c = self.config
        return {
            Extent.ROW: 1,
            Extent.BLEN_LANES: 1,
            Extent.BLEN_ROWS: c.BLEN,
            Extent.STRIDED_ROWS: 4 * c.BLEN,
            Extent.MLEN_ROWS: c.MLEN,
            Extent.PREFETCH_ROWS: c.v_prefetch,
            Extent.WRITEBACK_ROWS: c.v_writeback,
            Extent.TOPK_ROWS: -(-TOPK_EXPERTS * 4 // c.MLEN),
            Extent.HEAD_ROWS: c.heads,
            Extent.HEAD_TILES: c.heads * c.MLEN,
        }[extent]

    def limits(self, extent: Extent) -> tuple[int, int]:
        """(alignment, largest address) of an access."""
        c = self.config
        tile = c.tile_elements
        slices = {
            Extent.TILE: tile,
            Extent.COLUMN_GROUP: c.BLEN * c.MLEN,
            Extent.HEAD_SLICE_ROWS: c.HLEN * c.MLEN,
        }
        if extent in slices:
            return slices[extent], c.mram_elements - 1
        if extent is Extent.HEAD_SLICE_COLUMNS:
            return tile, c.mram_elements - 1  # any column needs an address made for it
        words = min(c.FP_MEM_WORDS, c.INT_MEM_WORDS)
        if extent in (Extent.WORD, Extent.TOPK_WORDS, Extent.ROW_WORDS):
            return 1, words - max(c.MLEN, c.TOPK_MAX)
        if extent is Extent.HBM_ROWS:
            return c.MX_BLOCK, HBM_WINDOW
        lanes = extent in (Extent.STRIDED_ROWS, Extent.BLEN_LANES)
        return c.BLEN if lanes else c.MLEN, (c.VRAM_ROWS - self.rows(extent)) * c.MLEN

    def allows(self, known: Known, extent: Extent) -> bool:
        """Whether an access at any of these values is legal."""
        align, largest = self.limits(extent)
        return known.align % align == 0 and known.high <= largest

    def pick(self, rng: random.Random, extent: Extent) -> int:
        """A legal address, mostly in the window where everything happens."""
        c = self.config
        align, largest = self.limits(extent)
        if extent is Extent.HEAD_SLICE_COLUMNS:
            tile = rng.randrange(min(TILE_WINDOW, c.MRAM_TILES))
            return tile * c.tile_elements + rng.randrange(0, c.MLEN, c.HLEN)
        if extent in (Extent.WORD, Extent.TOPK_WORDS, Extent.ROW_WORDS):
            window = WORD_WINDOW
        elif extent is Extent.HBM_ROWS:
            window = HBM_WINDOW // 8
        elif align >= c.BLEN * c.MLEN:
            window = TILE_WINDOW * c.tile_elements
        else:
            window = ROW_WINDOW * c.MLEN
        if rng.random() < 0.03:
            return largest - largest % align
        return rng.randrange(0, min(window, largest + 1), align)
