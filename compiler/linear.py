"""Linear projection: out[rows, N] = act[rows, K] @ W[K, N] on the matrix unit.

    for each output column block of MLEN:             (rolled into a loop when there are many)
        for each chunk of at most `cap` K tiles:      (one panel of matrix SRAM)
            prefetch the next panel
            for each group of BLEN output columns, each group of BLEN rows:
                M_MM over the K tiles of the chunk, M_MM_WO
            add the previous chunk to the output

Rounding order, part of the contract: FP32 accumulation in K order within a chunk, one rounding to
BF16, BF16 addition of the chunks in chunk order. A chunk is added after the products of the next
one, from one of two temporary blocks, so that no write-out is read at once.
"""

from contextlib import ExitStack
from enum import Enum

from compiler.elementwise import RowGroups, RowPointer, Rows, walk
from compiler.errors import require
from compiler.hbm import HbmTensor
from compiler.immediates import IMM18, add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import GP0, Register
from compiler.row_groups import Beside, column_unroll, row_group_products
from compiler.seed_projection import ColumnLoads
from compiler.vram import VramMatrix
from compiler.weight_panels import KChunk, StaticWeight, Weight, WeightPanels, split_k

#: Operand addresses of a column group that stay in registers; more are computed per M_MM.
RESIDENT = 4
#: Products of a projection that are written out; beyond, the column blocks become a loop.
UNROLLED_PRODUCTS = 512


#: Where weights are fetched to: two panels in turn, or, in the seed's form, one place.
Panels = WeightPanels | ColumnLoads


class Form(Enum):
    """How projections are emitted; the bits are the same for equal `cap`."""

    BUFFERED = "two panels, the next one filled under the products of this one"
    SEED = "rolled loops behind the load of every column, as published counts have it"

    def panels(self, prog: Program, address: Register, cap: int | None) -> Panels:
        """The panels of this form, on the address register `address`."""
        kind = WeightPanels if self is Form.BUFFERED else ColumnLoads
        return kind(prog, address, cap)


def linear_projection(
    prog: Program,
    panels: Panels,
    *,
    act: VramMatrix,
    weight: HbmTensor | Weight,
    out: VramMatrix,
    rows: Rows,
    then: HbmTensor | Weight | None = None,
    beside: Beside | None = None,
) -> None:
    """Emit out = act @ weight for rows 0 to rows-1; marks no stage.

    Works in groups of BLEN rows: rows up to the next multiple of BLEN are computed too, none
    beyond. `then` is the weight of the next projection on the same panels, whose first panel is
    fetched under the last products of this one. With `ColumnLoads` as panels, the projection takes
    the seed's form, and nothing is fetched ahead. `beside`, for `RowGroups` and where `has_room`:
    other work on the rows of each column block of `out`, between the products of that block.

    Raises:
        CompileError: shapes that do not fit each other, or `rows` beyond a matrix's physical rows.
    """
    source = StaticWeight(weight) if isinstance(weight, HbmTensor) else weight
    following = StaticWeight(then) if isinstance(then, HbmTensor) else then
    most = rows.capacity if isinstance(rows, RowGroups) else rows
    _check(prog, act, source.tensor, out, most)
    with prog.emitter(f"linear_projection {source.tensor.name}"), ExitStack() as stack:
        if isinstance(panels, ColumnLoads):
            assert not isinstance(rows, RowGroups), "refused by routed_device"
            panels.project(act, source, out, rows)
            return
        _Projection(prog, panels, act, source, out, rows, stack, beside).emit(following)


def _check(prog: Program, act: VramMatrix, weight: HbmTensor, out: VramMatrix, rows: int) -> None:
    subject = f"linear_projection {weight.name} [{weight.rows}, {weight.cols}]"
    require(
        weight.rows == weight.physical_rows == act.cols and weight.cols == out.cols,
        subject,
        f"must be [K, N] for act {act.name} [.., {act.cols}] and out {out.name} [.., {out.cols}]",
        "use matrices of those widths",
    )
    padded = -(-rows // prog.config.BLEN) * prog.config.BLEN
    for matrix in (act, out):
        require(
            rows >= 1 and padded <= matrix.physical_rows,
            f"{subject}: rows = {rows}",
            f"{matrix.name} has {matrix.physical_rows} physical rows",
            f"use 1 to {matrix.physical_rows}",
        )


class _Projection:
    """One projection while it is emitted; registers live on `stack`."""

    def __init__(
        self,
        prog: Program,
        panels: WeightPanels,
        act: VramMatrix,
        weight: Weight,
        out: VramMatrix,
        rows: Rows,
        stack: ExitStack,
        beside: Beside | None,
    ) -> None:
        self.prog, self.panels, self.act, self.weight, self.out = prog, panels, act, weight, out
        self.mlen, self.blen = prog.config.MLEN, prog.config.BLEN
        self.rows, self.beside = rows, beside
        most = rows.capacity if isinstance(rows, RowGroups) else rows
        self.row_groups = -(-most // self.blen)
        self.column_groups = self.mlen // self.blen
        self.chunks = split_k(act.blocks, panels.cap)
        self.fetched = stack.enter_context(prog.gp("column to fetch"))
        self.target = stack.enter_context(prog.gp("output block"))
        self.pending: VramMatrix | None = None  # a finished chunk, not yet added to its block
        self.parts: list[VramMatrix] = []
        if len(self.chunks) > 1:
            self.add_target = stack.enter_context(prog.gp("block to add to"))
            for _ in range(min(2, len(self.chunks) - 1)):
                part = prog.vram.matrix(f"{out.name} part", self.row_groups * self.blen, self.mlen)
                stack.callback(prog.vram.free, part)
                self.parts.append(part)

    def emit(self, then: Weight | None) -> None:
        """All column blocks: a loop over pairs of panels where that pays, then the rest."""
        half = self.panels.first(self.weight)
        load_immediate(self.prog, self.fetched, 0)
        load_immediate(self.prog, self.target, self.out.base)
        columns = self.out.blocks
        unit = 2 if len(self.chunks) % 2 else 1  # blocks after which the panels swap back
        groups = 1 if isinstance(self.rows, RowGroups) else self.row_groups
        unroll = column_unroll(self.chunks[0], groups, self.column_groups)
        written_out = groups * unroll * self.act.blocks * columns
        looped = (columns - 1) // unit if written_out > UNROLLED_PRODUCTS else 0
        if looped > 1:
            with loop(self.prog, looped, "output blocks"):
                half = self._column_blocks(unit, half, last=False, then=None)
            columns -= looped * unit
        self._column_blocks(columns, half, last=True, then=then)

    def _column_blocks(self, count: int, half: int, *, last: bool, then: Weight | None) -> int:
        """`count` column blocks from panel `half` on; returns the panel that comes next.

        Unless `last`, the first panel of the block behind them is fetched too.
        """
        for column in range(count):
            for number, chunk in enumerate(self.chunks):
                following = half
                if number + 1 < len(self.chunks):
                    following = self.panels.fetch(
                        self.weight, self.chunks[number + 1], self.fetched
                    )
                elif column + 1 < count or not last:
                    step = self.weight.tensor.column_step
                    add_immediate(self.prog, self.fetched, self.fetched, step)
                    following = self.panels.fetch(self.weight, self.chunks[0], self.fetched)
                elif then is not None:
                    self.panels.fetch_ahead(then)
                self._products(number, chunk, half)
                half = following
            add_immediate(self.prog, self.target, self.target, self.out.block_step)
        self._add_pending()
        return half

    def _products(self, number: int, chunk: KChunk, half: int) -> None:
        """The products of one panel, and then the addition of the chunk before it."""
        part = self.parts[number % len(self.parts)] if number else None
        if isinstance(self.rows, RowGroups):
            self._row_loop(self.rows, chunk, half, part)
        else:
            self._column_loops(chunk, half, part)
        self._add_pending()
        if part is not None:
            add_immediate(self.prog, self.add_target, self.target, 0)
            self.pending = part

    def _row_loop(self, rows: RowGroups, chunk: KChunk, half: int, part: VramMatrix | None) -> None:
        """The products of a number of row groups that the machine knows."""
        with self.prog.gp("result") as result:
            if part is None:
                add_immediate(self.prog, result, self.target, 0)
            else:
                load_immediate(self.prog, result, part.base)
            row_group_products(
                self.prog,
                word=rows.word,
                act=self.act,
                chunk=chunk,
                tiles=self.panels.base(half),
                result=result,
                beside=self.beside,
            )

    def _column_loops(self, chunk: KChunk, half: int, part: VramMatrix | None) -> None:
        longest = max(1, (IMM18 + 1 - self.mlen) // (self.blen * self.mlen))
        for first in range(0, self.row_groups, longest):
            groups = min(longest, self.row_groups - first)
            self._column_loop(chunk, half, first, groups, part)

    def _column_loop(
        self, chunk: KChunk, half: int, first: int, groups: int, part: VramMatrix | None
    ) -> None:
        """The loop over output columns for row groups first .. first + groups - 1."""
        prog, group_step = self.prog, self.blen * self.mlen
        unroll = column_unroll(chunk, groups, self.column_groups)
        iterations = self.column_groups // unroll
        with ExitStack() as stack:
            result = stack.enter_context(prog.gp("result"))
            if part is None:
                add_immediate(prog, result, self.target, first * group_step)
            else:
                load_immediate(prog, result, part.row_address(first * self.blen))
            operands = _Operands(self, chunk, half, first, groups, stack)
            with loop(prog, iterations, "column groups"):
                for column in range(unroll):
                    for group in range(groups):
                        for k in range(chunk.tiles):
                            matrix, vector = operands.addresses(group, k)
                            prog.emit("M_MM", matrix, vector)
                        offset = column * self.blen + group * group_step
                        prog.emit("M_MM_WO", result, GP0, offset)
                    if column + 1 < unroll or iterations > 1:
                        operands.next_column_group()
                if iterations > 1:
                    add_immediate(prog, result, result, unroll * self.blen)

    def _add_pending(self) -> None:
        if self.pending is None:
            return
        part, self.pending = self.pending, None
        rows = self.rows if isinstance(self.rows, RowGroups) else self.row_groups * self.blen
        with self.prog.gp("part row") as source:
            load_immediate(self.prog, source, part.base)
            target, addend = RowPointer(self.add_target, self.mlen), RowPointer(source, self.mlen)
            walk(self.prog, "V_ADD_VV", (target, target, addend), rows)


class _Operands:
    """Where the operands of each M_MM of a column loop are: in registers, or computed in front."""

    def __init__(
        self,
        projection: _Projection,
        chunk: KChunk,
        half: int,
        first: int,
        groups: int,
        stack: ExitStack,
    ) -> None:
        prog, self._tile = projection.prog, projection.prog.config.tile_elements
        self._prog, self._act, self._chunk = prog, projection.act, chunk
        self._first_row, self._blen = first * projection.blen, projection.blen
        self._group_step = projection.blen * projection.mlen
        base = projection.panels.base(half)
        self._resident_tiles = chunk.tiles <= RESIDENT
        kept = chunk.tiles if self._resident_tiles else 1
        self._matrices = [stack.enter_context(prog.gp(f"weight tile {k}")) for k in range(kept)]
        for k, register in enumerate(self._matrices):
            load_immediate(prog, register, base + k * self._tile)
        self._matrix = self._matrices[0]
        if not self._resident_tiles:
            self._matrix = stack.enter_context(prog.gp("weight tile"))
        self._resident_rows = groups * chunk.tiles <= RESIDENT
        kept = groups * chunk.tiles if self._resident_rows else 1
        self._vectors = [stack.enter_context(prog.gp(f"activation {i}")) for i in range(kept)]
        if self._resident_rows:
            for i, register in enumerate(self._vectors):
                load_immediate(prog, register, self._row(*divmod(i, chunk.tiles)))

    def _row(self, group: int, k: int) -> int:
        return self._act.row_address(self._first_row + group * self._blen, self._chunk.first + k)

    def addresses(self, group: int, k: int) -> tuple[Register, Register]:
        """The registers with the addresses of weight tile k and of the activation rows."""
        if self._resident_tiles:
            matrix = self._matrices[k]
        else:
            matrix = self._matrix
            add_immediate(self._prog, matrix, self._matrices[0], k * self._tile)
        if self._resident_rows:
            return matrix, self._vectors[group * self._chunk.tiles + k]
        load_immediate(self._prog, self._vectors[0], self._row(group, k))
        return matrix, self._vectors[0]

    def next_column_group(self) -> None:
        """Advance the weight addresses by BLEN output columns."""
        for register in self._matrices:
            add_immediate(self._prog, register, register, self._group_step)
