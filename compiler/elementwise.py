"""Row-wise vector operations over whole matrices, one operation over all rows before the next.

Neighbouring instructions work on different rows, so that a pipelined vector unit takes one after
another. Only `zero_rows` and `combine` mark stages.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from compiler.errors import CompileError
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop, loop_to
from compiler.program import Program
from compiler.registers import F0, GP0, Register
from compiler.vram import VramMatrix
from isa import Stage

#: Rows per loop body; up to twice as many rows are written out without a loop.
UNROLL = 8


@dataclass(frozen=True)
class BroadcastRow:
    """One row of a matrix, used for every row of the others (a bias): row 0, or the row whose
    number is in the INT_MEM word `word`."""

    matrix: VramMatrix
    word: int | None = None


@dataclass(frozen=True)
class RowGroups:
    """A number of rows that only the machine knows: groups of BLEN, at least one of them, that take
    INT_MEM[word] elements of a column block (rows * MLEN), and at most `capacity` rows."""

    word: int
    capacity: int


#: Rows that an emitter works on: counted by the compiler, or by the machine.
Rows = int | RowGroups


@dataclass(eq=False)
class RowPointer:
    """A row address in a register that the caller loaded; steps add up until the next use."""

    register: Register
    step: int
    pending: int = 0

    def settle(self, prog: Program) -> None:
        """Bring the register up to date."""
        add_immediate(prog, self.register, self.register, self.pending)
        self.pending = 0


def walk_rows(
    prog: Program,
    mnemonic: str,
    operands: Sequence[RowPointer | Register | int],
    count: int,
    **flags: int,
) -> None:
    """Emit `mnemonic` for `count` rows, stepping the row pointers between rows.

    Afterwards each pointer is one step behind its last row, partly in `pending`. A pointer that
    stands for two operands is stepped once.
    """
    pointers = list(dict.fromkeys(p for p in operands if isinstance(p, RowPointer)))
    registers = [p.register if isinstance(p, RowPointer) else p for p in operands]

    def row() -> None:
        for pointer in pointers:
            pointer.settle(prog)
        prog.emit(mnemonic, *registers, **flags)
        for pointer in pointers:
            pointer.pending += pointer.step

    looped = count // UNROLL if count > 2 * UNROLL else 0
    if looped:
        for pointer in pointers:
            pointer.settle(prog)
        with loop(prog, looped, "rows"):
            for _ in range(UNROLL):
                row()
            for pointer in pointers:
                pointer.settle(prog)
    for _ in range(count - looped * UNROLL):
        row()


def walk(
    prog: Program, mnemonic: str, operands: Sequence[RowPointer | Register | int], rows: Rows
) -> None:
    """Emit `mnemonic` for `rows` rows from where the pointers stand, whoever counts them."""
    if not isinstance(rows, RowGroups):
        walk_rows(prog, mnemonic, operands, rows)
        return
    leader = next(o for o in operands if isinstance(o, RowPointer) and o.step)
    with loop_to(prog, leader.register, rows.word, "row groups"):
        walk_rows(prog, mnemonic, operands, prog.config.BLEN)
        for operand in operands:
            if isinstance(operand, RowPointer):
                operand.settle(prog)


def rowwise(
    prog: Program,
    mnemonic: str,
    *operands: VramMatrix | BroadcastRow | Register | int,
    rows: Rows,
    **flags: int,
) -> None:
    """Emit `mnemonic` for rows 0 to rows-1 of every column block of the matrices among `operands`.

    Matrices must have equal cols and at least `rows` physical rows. Registers and numbers are
    passed on. Contiguous matrices are one run of rows; others go block by block.
    """
    distinct = list(dict.fromkeys(o for o in operands if not isinstance(o, Register | int)))
    matrices = [o.matrix if isinstance(o, BroadcastRow) else o for o in distinct]
    most = rows.capacity if isinstance(rows, RowGroups) else rows
    _check_shapes(mnemonic, matrices, distinct, most)
    blocks, mlen = matrices[0].blocks, prog.config.MLEN
    whole = all(isinstance(o, VramMatrix) and o.physical_rows == rows for o in distinct)
    with ExitStack() as stack:
        pointers: dict[VramMatrix | BroadcastRow, RowPointer] = {}
        for operand, matrix in zip(distinct, matrices, strict=True):
            register = stack.enter_context(prog.gp(f"{matrix.name} row"))
            if not isinstance(rows, RowGroups):
                _point(prog, register, operand, 0)
            pointers[operand] = RowPointer(register, mlen if isinstance(operand, VramMatrix) else 0)
        walked = [o if isinstance(o, Register | int) else pointers[o] for o in operands]
        if isinstance(rows, RowGroups):
            for block in range(blocks):
                for operand, pointer in pointers.items():
                    _point(prog, pointer.register, operand, block)
                walk(prog, mnemonic, walked, rows)
            return
        if whole:
            walk_rows(prog, mnemonic, walked, rows * blocks, **flags)
            return
        looped = blocks if blocks > 1 and rows * blocks > 2 * UNROLL else 1
        with loop(prog, looped, "column blocks"):
            for _ in range(blocks // looped):
                walk_rows(prog, mnemonic, walked, rows, **flags)
                for operand, matrix in zip(distinct, matrices, strict=True):
                    pointer = pointers[operand]
                    pointer.pending += matrix.block_step - rows * pointer.step
            if looped > 1:
                for pointer in pointers.values():
                    pointer.settle(prog)


def _point(
    prog: Program, register: Register, operand: VramMatrix | BroadcastRow, block: int
) -> None:
    """gp = the address of the first row of `operand` in column block `block`."""
    if isinstance(operand, VramMatrix):
        load_immediate(prog, register, operand.row_address(0, block))
    elif operand.word is None:
        load_immediate(prog, register, operand.matrix.row_address(0, block))
    else:
        row_address(prog, register, operand.matrix, operand.word, block)


def row_address(
    prog: Program, register: Register, matrix: VramMatrix, word: int, block: int = 0
) -> None:
    """gp = the address of row INT_MEM[word] of a matrix, in column block `block`."""
    with prog.gp("row step") as step:
        prog.emit("S_LD_INT", register, GP0, word)
        load_immediate(prog, step, matrix.mlen)
        prog.emit("S_MUL_INT", register, register, step)
    add_immediate(prog, register, register, matrix.row_address(0, block))


def _check_shapes(
    mnemonic: str, matrices: list[VramMatrix], operands: list[VramMatrix | BroadcastRow], rows: int
) -> None:
    if len({m.cols for m in matrices}) > 1:
        shapes = ", ".join(f"{m.name} {m.cols}" for m in matrices)
        raise CompileError(f"{mnemonic}: columns differ: {shapes} (use matrices of one width)")
    for matrix, operand in zip(matrices, operands, strict=True):
        if isinstance(operand, VramMatrix) and not 1 <= rows <= matrix.physical_rows:
            raise CompileError(
                f"{mnemonic}: rows = {rows}: {matrix.name} has {matrix.physical_rows} physical "
                f"rows (use 1 to {matrix.physical_rows})"
            )


def copy(prog: Program, target: VramMatrix, source: VramMatrix, *, rows: int) -> None:
    """target = source, row by row; the sign of a zero is lost (-0 becomes +0)."""
    with prog.emitter(f"copy {target.name}"):
        rowwise(prog, "V_ADD_VF", target, source, F0, rows=rows)


def add_bias(
    prog: Program, target: VramMatrix, bias: VramMatrix, *, rows: Rows, word: int | None = None
) -> None:
    """target = BF16(target + a row of bias), for every row: row 0, or row INT_MEM[word]."""
    with prog.emitter(f"add_bias {target.name}"):
        rowwise(prog, "V_ADD_VV", target, target, BroadcastRow(bias, word), rows=rows)


def zero_rows(prog: Program, target: VramMatrix, *, stage: Stage | str, rows: int) -> None:
    """Write +0.0 over `rows` rows of a matrix, whatever they held, under `stage`.

    Maps a row of zeros in FP_MEM, which the first call in a program fills. Never multiplies: stale
    rows may hold NaN.
    """
    prog.stage(stage=stage, detail=f"zero {target.name}")
    with prog.emitter(f"zero_rows {target.name}"):
        slot, fresh = prog.fp_mem.zero_row()
        if fresh:
            for lane in range(prog.config.VLEN):
                prog.emit("S_ST_FP", F0, GP0, slot + lane)
        rowwise(prog, "S_MAP_V_FP", target, GP0, slot, rows=rows)


def combine(prog: Program, accumulator: VramMatrix, addend: VramMatrix, *, rows: int) -> None:
    """accumulator = BF16(accumulator + addend), unweighted and in place, under scatter_combine."""
    prog.stage("scatter_combine", f"{accumulator.name} += {addend.name}")
    with prog.emitter(f"combine {addend.name}"):
        rowwise(prog, "V_ADD_VV", accumulator, accumulator, addend, rows=rows)
