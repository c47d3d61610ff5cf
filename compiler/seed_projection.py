"""The linear projection in its first form: one column of weights, then one rolled loop nest.

    for chunk of cap K tiles: for each output column block: for each block of MLEN rows:
        load the chunk's tiles, always to matrix SRAM address 0
        for each group of BLEN columns: for each group of BLEN rows: for each K tile: M_MM; M_MM_WO
        add the chunk to the output

lowering.md section 2, "Loop structure". Weights are loaded again for every block of rows, and no
load overlaps the products before it. It is kept because published counts are counts of this text;
`linear.linear_projection` gives the same bits in fewer cycles.
"""

from compiler.elementwise import RowPointer, walk_rows
from compiler.errors import require
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import GP0, Register
from compiler.vram import VramMatrix
from compiler.weight_panels import KChunk, Weight, split_k

#: K tiles of one FP32 accumulation.
DEFAULT_CAP = 4


class ColumnLoads:
    """In place of `WeightPanels`: every column of weights is loaded where it is used.

    `cap` tiles are accumulated at once; `address` is the address register of the loads.
    """

    def __init__(self, prog: Program, address: Register, cap: int | None = None) -> None:
        tiles = prog.config.MRAM_TILES
        self.cap = min(DEFAULT_CAP, tiles) if cap is None else cap
        require(
            1 <= self.cap <= tiles,
            f"cap = {self.cap}",
            f"a column of cap tiles must fit MRAM_TILES = {tiles}",
            f"use 1 to {tiles}",
        )
        self._prog, self._address = prog, address

    def fetch_ahead(self, weight: Weight) -> int:
        """Nothing is fetched ahead; returns the only panel."""
        return 0

    def project(self, act: VramMatrix, weight: Weight, out: VramMatrix, rows: int) -> None:
        """Emit out = act @ weight for rows 0 to rows-1 (shapes are the caller's to check)."""
        prog, config = self._prog, self._prog.config
        chunks = split_k(act.blocks, self.cap)
        part = None
        if len(chunks) > 1:
            part = prog.vram.matrix(f"{out.name} part", min(rows, config.MLEN), config.MLEN)
        for number, chunk in enumerate(chunks):
            for column in range(out.blocks):
                for first in range(0, rows, config.MLEN):
                    count = min(config.MLEN, rows - first)
                    groups = -(-count // config.BLEN)
                    self._load(weight, chunk, column)
                    target = out.row_address(first, column)
                    if part is None or number == 0:
                        self._products(act, chunk, first, groups, target)
                    else:
                        self._products(act, chunk, first, groups, part.base)
                        self._add(part.base, target, groups * config.BLEN)
        if part is not None:
            prog.vram.free(part)

    def _load(self, weight: Weight, chunk: KChunk, column: int) -> None:
        prog, tensor = self._prog, weight.tensor
        with (
            weight.fetching(prog, self._address),
            prog.gps("tile", "tile offset") as (tile, offset),
        ):
            for i in range(chunk.tiles):
                load_immediate(prog, tile, i * prog.config.tile_elements)
                start = (chunk.first + i) * tensor.tile_step + column * tensor.column_step
                load_immediate(prog, offset, start)
                prog.emit("H_PREFETCH_M", tile, offset, self._address, rstride=1)

    def _products(
        self, act: VramMatrix, chunk: KChunk, first: int, groups: int, target: int
    ) -> None:
        prog, config = self._prog, self._prog.config
        group = config.BLEN * config.MLEN
        holders = ("weight column", "result column", "act row", "result", "act", "weight tile")
        with prog.gps(*holders) as (column, result_column, row, result, vector, matrix):
            load_immediate(prog, column, 0)
            load_immediate(prog, result_column, target)
            with loop(prog, config.MLEN // config.BLEN, "column groups"):
                load_immediate(prog, row, act.row_address(first, chunk.first))
                add_immediate(prog, result, result_column, 0)
                with loop(prog, groups, "row groups"):
                    add_immediate(prog, vector, row, 0)
                    add_immediate(prog, matrix, column, 0)
                    with loop(prog, chunk.tiles, "K tiles"):
                        prog.emit("M_MM", matrix, vector)
                        add_immediate(prog, vector, vector, act.block_step)
                        add_immediate(prog, matrix, matrix, config.tile_elements)
                    prog.emit("M_MM_WO", result, GP0, 0)
                    add_immediate(prog, row, row, group)
                    add_immediate(prog, result, result, group)
                add_immediate(prog, column, column, group)
                add_immediate(prog, result_column, result_column, config.BLEN)

    def _add(self, part: int, target: int, rows: int) -> None:
        prog, mlen = self._prog, self._prog.config.MLEN
        with prog.gps("part row", "output row") as (source, output):
            load_immediate(prog, source, part)
            load_immediate(prog, output, target)
            sums = RowPointer(output, mlen)
            walk_rows(prog, "V_ADD_VV", (sums, sums, RowPointer(source, mlen)), rows)
