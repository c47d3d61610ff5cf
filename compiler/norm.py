"""Root-mean-square normalisation of rows.

s = 0; per MLEN block: s = BF16(s + FP32 sum of BF16(x * x))                  lowering.md section 11
r = 1 / sqrt(s * (1 / H) + epsilon), every step rounded
y = BF16(BF16(x * r) * weight)
"""

from collections.abc import Sequence
from contextlib import ExitStack

from compiler.activation import load_constant
from compiler.elementwise import BroadcastRow, rowwise
from compiler.errors import CompileError
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import F0, Register
from compiler.vram import VramMatrix

#: Rows of one loop body: their chains of dependent scalar steps run side by side.
ROWS_AT_ONCE = 4
#: Column blocks that are written out; more become a loop.
UNROLLED_BLOCKS = 4


def define_norm_constants(prog: Program, hidden: int, epsilon: float) -> tuple[str, str]:
    """Reserve FP_MEM slots for 1 / hidden and epsilon; their names, the same for equal values."""
    values = {f"1 / {hidden}": 1 / hidden, f"epsilon {epsilon}": epsilon}
    for name, value in values.items():
        if not prog.fp_mem.defines(name):
            prog.fp_mem.define(name, value)
    inverse, added = values
    return inverse, added


def rms_norm(
    prog: Program,
    *,
    source: VramMatrix,
    target: VramMatrix,
    weight: VramMatrix,
    rows: int,
    constants: tuple[str, str],
) -> None:
    """target = source, every row divided by its root mean square and multiplied by `weight`.

    `weight` is [1, H]; `constants` are from `define_norm_constants`. Marks no stage; target may be
    source. CompileError for widths that differ.
    """
    if not source.cols == target.cols == weight.cols:
        raise CompileError(
            f"rms_norm: {source.name} is {source.cols} wide, {target.name} {target.cols}, "
            f"{weight.name} {weight.cols} (all must be H)"
        )
    scratch = prog.vram.matrix("squares", min(ROWS_AT_ONCE, rows), prog.config.MLEN)
    groups, rest = divmod(rows, ROWS_AT_ONCE)
    with prog.emitter("rms_norm"):
        with ExitStack() as stack:
            body = _Rows(prog, source, target, scratch, constants, stack)
            if groups:
                with loop(prog, groups, "row groups"):
                    body.emit(ROWS_AT_ONCE)
            if rest:
                body.emit(rest)
        rowwise(prog, "V_MUL_VV", target, target, BroadcastRow(weight), rows=rows)
    prog.vram.free(scratch)


class _Rows:
    """Registers of the row loop, and its body."""

    def __init__(
        self,
        prog: Program,
        source: VramMatrix,
        target: VramMatrix,
        scratch: VramMatrix,
        constants: tuple[str, str],
        stack: ExitStack,
    ) -> None:
        self._prog, self._source, self._target = prog, source, target
        enter = stack.enter_context
        self._from, self._to = enter(prog.gps("source rows", "target rows"))
        self._squares = enter(prog.gps(*(f"squares {i}" for i in range(scratch.rows))))
        self._inverse, self._epsilon = enter(prog.fs("1 / hidden", "epsilon"))
        self._sums = enter(prog.fs(*(f"mean square {i}" for i in range(scratch.rows))))
        load_constant(prog, self._inverse, constants[0])
        load_constant(prog, self._epsilon, constants[1])
        load_immediate(prog, self._from, source.base)
        load_immediate(prog, self._to, target.base)
        for i, register in enumerate(self._squares):
            load_immediate(prog, register, scratch.row_address(i))

    def emit(self, count: int) -> None:
        """`count` rows; the pointers move behind them."""
        prog, sums = self._prog, self._sums[:count]
        for total in sums:
            prog.emit("S_ADD_FP", total, F0, F0)
        with prog.gp("source row") as row:
            self._square(row, sums)
        for total in sums:
            prog.emit("S_MUL_FP", total, total, self._inverse)
        for total in sums:
            prog.emit("S_ADD_FP", total, total, self._epsilon)
        for total in sums:
            prog.emit("S_SQRT_FP", total, total)
        for total in sums:
            prog.emit("S_RECI_FP", total, total)
        with prog.gps("source row", "target row") as (row, out):
            self._scale(row, out, sums)
        for pointer in (self._from, self._to):
            add_immediate(prog, pointer, pointer, count * self._source.mlen)

    def _square(self, row: Register, sums: Sequence[Register]) -> None:
        prog, source = self._prog, self._source
        add_immediate(prog, row, self._from, 0)
        looped = source.blocks if source.blocks > UNROLLED_BLOCKS else 1
        with loop(prog, looped, "column blocks"):
            for _ in range(source.blocks // looped):
                for square in self._squares[: len(sums)]:
                    prog.emit("V_MUL_VV", square, row, row)
                    add_immediate(prog, row, row, source.mlen)
                for total, square in zip(sums, self._squares, strict=False):
                    prog.emit("V_RED_SUM", total, square)
                add_immediate(prog, row, row, source.block_step - len(sums) * source.mlen)

    def _scale(self, row: Register, out: Register, factors: Sequence[Register]) -> None:
        prog = self._prog
        add_immediate(prog, row, self._from, 0)
        add_immediate(prog, out, self._to, 0)
        blocks = self._source.blocks
        looped = blocks if blocks > UNROLLED_BLOCKS else 1
        with loop(prog, looped, "column blocks"):
            for _ in range(blocks // looped):
                for factor in factors:
                    prog.emit("V_MUL_VF", out, row, factor)
                    for pointer, matrix in ((row, self._source), (out, self._target)):
                        add_immediate(prog, pointer, pointer, matrix.mlen)
                for pointer, matrix in ((row, self._source), (out, self._target)):
                    step = matrix.block_step - len(factors) * matrix.mlen
                    add_immediate(prog, pointer, pointer, step)
