"""Vector SRAM matrices: column blocks of MLEN lanes, their addresses, and host conversion."""

from dataclasses import dataclass, replace
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.arena import Arena
from compiler.errors import require, require_multiple
from isa.config import PlenaConfig

#: dtypes that `VramMatrix.place` takes: BF16 values (ml_dtypes), or their 16-bit patterns.
_BF16_DTYPES = ("bfloat16", "uint16")


@dataclass(frozen=True, kw_only=True)
class VramMatrix:
    """[rows, cols] in vector SRAM, from row `first_row` of the memory.

        block 0: physical_rows rows of MLEN | block 1: ... | block cols/MLEN - 1

    Loops run over `rows`, strides use `physical_rows`. Addresses are in elements.
    """

    name: str
    rows: int
    cols: int
    physical_rows: int
    first_row: int
    mlen: int

    @property
    def blocks(self) -> int:
        """Column blocks."""
        return self.cols // self.mlen

    @property
    def base(self) -> int:
        """Address of element (0, 0)."""
        return self.first_row * self.mlen

    @property
    def block_step(self) -> int:
        """Elements from one column block to the next."""
        return self.physical_rows * self.mlen

    @property
    def memory_rows(self) -> int:
        """Rows of the memory that the matrix occupies."""
        return self.physical_rows * self.blocks

    def row_address(self, row: int, block: int = 0) -> int:
        """Address of lane 0 of physical row `row` in column block `block`."""
        return self.base + block * self.block_step + row * self.mlen

    def view(self, first: int, rows: int) -> "VramMatrix":
        """Rows first .. first + rows - 1 as a matrix of their own, in the same memory."""
        require(
            first >= 0 and rows >= 1 and first + rows <= self.physical_rows,
            f"{self.name}: rows {first} to {first + rows - 1}",
            f"it has {self.physical_rows} physical rows",
            "use rows inside it",
        )
        start = self.first_row + first
        return replace(self, name=f"{self.name}[{first}:]", rows=rows, first_row=start)

    def place(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """`values` [rows, cols] as the memory rows [memory_rows, MLEN] from `first_row`, pads zero.

        Raises:
            CompileError: a dtype that is not BF16 (or its uint16 patterns), or another shape.
        """
        require(
            values.dtype.name in _BF16_DTYPES,
            f"{self.name} of dtype {values.dtype}",
            "must be bfloat16, or uint16 patterns of it",
            "round the values to BF16 first",
        )
        shape = (self.rows, self.cols)
        require(
            values.shape == shape, f"{self.name} {values.shape}", f"must be {shape}", "reshape it"
        )
        physical = np.zeros((self.blocks, self.physical_rows, self.mlen), values.dtype)
        physical[:, : self.rows] = values.reshape(self.rows, self.blocks, self.mlen).transpose(
            1, 0, 2
        )
        return physical.reshape(-1, self.mlen)

    def gather(self, memory_rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The inverse of `place`: memory rows [memory_rows, MLEN] as [rows, cols]."""
        blocks = memory_rows.reshape(self.blocks, self.physical_rows, self.mlen)
        return blocks[:, : self.rows].transpose(1, 0, 2).reshape(self.rows, self.cols)


def transfer_rows(config: PlenaConfig, rows: int) -> int:
    """The least physical rows for `rows` that whole M_MM, H_PREFETCH_V and H_STORE_V all fit in."""
    step = lcm(config.BLEN, config.v_prefetch, config.v_writeback)
    return -(-rows // step) * step


class VramLayout:
    """Allocates matrices in vector SRAM: best fit, freed neighbours merged, names unique.

    The unit is BLEN rows: whatever M_MM reads or writes of a matrix lies inside it.
    """

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._arena = Arena(
            "vector SRAM", "rows", config.VRAM_ROWS, "lower rows, or raise VRAM_ROWS"
        )
        self.matrices: dict[str, VramMatrix] = {}

    @property
    def largest_gap(self) -> int:
        """Rows of the largest free run."""
        return max((size for _, size in self._arena.gaps()), default=0)

    def matrix(
        self,
        name: str,
        rows: int,
        cols: int,
        *,
        spare_rows: int = 0,
        at_row: int | None = None,
        preloaded: bool = False,
    ) -> VramMatrix:
        """Allocate [rows, cols], with the physical rows of `transfer_rows`.

        `spare_rows`: that many physical rows behind the last one exist too. `name` becomes `name#2`
        and so on when it was used before in this program. `at_row` places it. `preloaded`: the host
        writes it before the run, so it gets rows that no earlier part of the program used.

        Raises:
            CompileError: rows < 1, cols no multiple of MLEN, no space (sizes and holders are
                named), or an overlap.
        """
        require(rows >= 1, f"{name}: rows = {rows}", "must be at least 1", "leave the matrix out")
        require_multiple(f"{name}: cols", cols, self._config.MLEN, "MLEN")
        physical = transfer_rows(self._config, rows + spare_rows)
        size = physical * (cols // self._config.MLEN)
        unique = self._arena.unique(name)
        if at_row is None:
            start = self._arena.allocate(unique, size, self._config.BLEN, fresh=preloaded).start
        else:
            start = self._arena.reserve(unique, at_row, size).start
        matrix = VramMatrix(
            name=unique,
            rows=rows,
            cols=cols,
            physical_rows=physical,
            first_row=start,
            mlen=self._config.MLEN,
        )
        self.matrices[unique] = matrix
        return matrix

    def free(self, *matrices: VramMatrix) -> None:
        """Give back the rows of `matrices`; CompileError when one is not allocated."""
        for matrix in matrices:
            self._arena.release(matrix.name)
            del self.matrices[matrix.name]
