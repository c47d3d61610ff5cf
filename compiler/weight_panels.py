"""Two panels of matrix SRAM: one is multiplied with while the next weights arrive in the other.

Where they leave tiles, a third one can take what is fetched further ahead.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from compiler.errors import CompileError, require
from compiler.hbm import HbmTensor
from compiler.immediates import add_immediate, load_immediate, set_address, set_scale, set_stride
from compiler.program import Program
from compiler.registers import GP0, Register
from isa import PlenaConfig


@dataclass(frozen=True)
class KChunk:
    """K tiles first .. first + tiles - 1 of a projection: one panel per output column block."""

    first: int
    tiles: int


class Weight(Protocol):
    """A weight that panels can be filled with: where it is, and what a fetch of it needs."""

    @property
    def tensor(self) -> HbmTensor:
        """Shape and order; the address too, where it is known."""
        ...

    def fetching(self, prog: Program, address: Register) -> AbstractContextManager[None]:
        """Around the fetch of a panel: `address`, SCALE and STRIDE are set inside."""
        ...


@dataclass(frozen=True)
class StaticWeight:
    """A weight at an address that the compiler knows."""

    tensor: HbmTensor

    @contextmanager
    def fetching(self, prog: Program, address: Register) -> Iterator[None]:
        """Sets the registers, as far as they do not hold the values yet."""
        set_address(prog, address, self.tensor.base)
        set_scale(prog, self.tensor.scale_offset)
        set_stride(prog, self.tensor.stride)
        yield


def default_cap(config: PlenaConfig) -> int:
    """Tiles per panel: half of the matrix SRAM, so that K splits as late as possible."""
    return config.MRAM_TILES // 2


def split_k(tiles: int, cap: int) -> list[KChunk]:
    """`tiles` K tiles in chunks of `cap`, the last one with the rest; the order of addition."""
    return [KChunk(first, min(cap, tiles - first)) for first in range(0, tiles, cap)]


class WeightPanels:
    """Fills the two panels in turn with columns of weight tiles.

    `cap` tiles per panel; `address` is the address register that the fetches use, held by the
    caller for as long as the panels live. `fetch` fills a panel; the caller orders it after the
    last use of what the panel held before. What was fetched ahead for the next projection is
    remembered.
    """

    def __init__(self, prog: Program, address: Register, cap: int | None = None) -> None:
        config = prog.config
        self.cap = default_cap(config) if cap is None else cap
        require(
            1 <= self.cap <= config.MRAM_TILES // 2,
            f"cap = {self.cap}",
            f"two panels of cap tiles must fit MRAM_TILES = {config.MRAM_TILES}",
            f"use 1 to {config.MRAM_TILES // 2}",
        )
        require(
            config.m_prefetch == config.MLEN,
            f"HBM_M_PREFETCH = {config.m_prefetch}",
            f"must be MLEN = {config.MLEN}: H_PREFETCH_M starts at a tile, fewer rows leave a part",
            "leave it out of the configuration",
        )
        self._prog, self._address, self._half = prog, address, 0
        self._starts = [0, self.cap]  # first tile of every panel
        self._ahead: tuple[Weight, int] | None = None  # what was fetched ahead, and to which panel
        self._places: dict[Weight, int] = {}

    def base(self, panel: int) -> int:
        """The matrix SRAM address of tile 0 of `panel`."""
        return self._starts[panel] * self._prog.config.tile_elements

    def first(self, weight: Weight) -> int:
        """The panel with the first chunk of column 0 of `weight`, fetched now or ahead of time."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return self.fetch(weight, self._chunks(weight)[0], GP0)
        if ahead[0] != weight:
            raise CompileError(
                f"weight panels: {ahead[0].tensor.name} was fetched ahead, but "
                f"{weight.tensor.name} comes next (name the next weight in `then`)"
            )
        return ahead[1]

    def fetch_ahead(self, weight: Weight) -> int:
        """Fetch the first chunk of column 0 of `weight` for the projection that comes next;
        returns the panel."""
        panel = self.fetch(weight, self._chunks(weight)[0], GP0, self._places.get(weight))
        self._ahead = weight, panel
        return panel

    def place(self, weight: Weight, panel: int) -> None:
        """`fetch_ahead` of `weight` goes to `panel`, whichever is the next one; the machine waits
        until the products with what it holds are over."""
        self._places[weight] = panel

    def forget_ahead(self) -> None:
        """Nobody will use what was fetched ahead."""
        self._ahead = None

    def fetches(self, weight: Weight) -> int:
        """How many panels the projection with `weight` takes."""
        tensor = weight.tensor
        return tensor.cols // tensor.mlen * len(self._chunks(weight))

    def spare_panel(self, first: Weight, *others: Weight) -> int | None:
        """A third panel, for the first chunk of `first` alone, in tiles of panel 0 that none of
        these weights fills; None when there are too few."""
        tiles = self._chunks(first)[0].tiles
        used = max(chunk.tiles for weight in (first, *others) for chunk in self._chunks(weight))
        if used + tiles > self.cap:
            return None
        self._starts[2:] = [used]
        return 2

    def _chunks(self, weight: Weight) -> list[KChunk]:
        return split_k(weight.tensor.physical_rows // weight.tensor.mlen, self.cap)

    def fetch(
        self, weight: Weight, chunk: KChunk, column: Register, panel: int | None = None
    ) -> int:
        """Fetch `chunk` of the column of tiles at element offset gp[column] to `panel`, or to the
        next of the two in turn; returns the panel."""
        prog = self._prog
        panel = self._half if panel is None else panel
        with (
            weight.fetching(prog, self._address),
            prog.gps("tile", "tile offset") as (tile, offset),
        ):
            for i in range(chunk.tiles):
                load_immediate(prog, tile, self.base(panel) + i * prog.config.tile_elements)
                step = weight.tensor.tile_step
                add_immediate(prog, offset, column, (chunk.first + i) * step)
                prog.emit("H_PREFETCH_M", tile, offset, self._address, rstride=1)
        if panel < 2:
            self._half = 1 - panel
        return panel
