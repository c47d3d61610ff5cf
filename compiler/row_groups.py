"""Products of a number of row groups that only the machine knows: rows outside, columns inside.

    for each group of BLEN rows:
        for each group of BLEN output columns:
            M_MM over the K tiles of the chunk, M_MM_WO

The instructions of the row loop are paid once per MLEN columns. The order of rows and columns does
not show in the result. Other work on the row group can go between the products, whose instructions
take less time to dispatch than the products take.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop, loop_to
from compiler.program import Program
from compiler.registers import GP0, Register
from compiler.vram import VramMatrix
from compiler.weight_panels import KChunk

#: Products per loop body, at least, so that the loop's own instructions do not show.
BODY_PRODUCTS = 16
#: K tiles whose addresses stay in registers.
RESIDENT = 2

#: Work beside products: told the register with the output address of the first row group, it
#: prepares itself, and yields what emits the work of one group after the other.
Beside = Callable[[Register], AbstractContextManager[Callable[[], None]]]


def has_room(act: VramMatrix, cap: int) -> bool:
    """Whether the products of `act`, `cap` tiles at once, leave dispatch slots and registers for
    other work."""
    return act.blocks <= min(RESIDENT, cap)


def column_unroll(chunk: KChunk, row_groups: int, column_groups: int) -> int:
    """Column groups per loop body."""
    products = row_groups * chunk.tiles
    unroll = 1
    while unroll < column_groups and unroll * products < BODY_PRODUCTS:
        unroll *= 2
    return unroll


def row_group_products(
    prog: Program,
    *,
    word: int,
    act: VramMatrix,
    chunk: KChunk,
    tiles: int,
    result: Register,
    beside: Beside | None = None,
) -> None:
    """Emit the products of one panel for the row groups from row 0 of `act` that take INT_MEM[word]
    elements of a column block.

    `tiles` is the matrix SRAM address of the panel. gp[result] holds the output address of the
    first group, and is behind the last one afterwards. `beside`, where the products have room.
    """
    blen, mlen = prog.config.BLEN, prog.config.MLEN
    column_groups = mlen // blen
    unroll = column_unroll(chunk, 1, column_groups) if beside is None else column_groups
    iterations = column_groups // unroll
    resident = chunk.tiles <= RESIDENT
    kept = chunk.tiles if resident else 1
    with ExitStack() as stack:
        work = None if beside is None else stack.enter_context(beside(result))
        vectors = [stack.enter_context(prog.gp(f"activation {k}")) for k in range(kept)]
        matrices = [stack.enter_context(prog.gp(f"weight tile {k}")) for k in range(kept)]
        vector, matrix = vectors[0], matrices[0]
        if not resident:
            vector = stack.enter_context(prog.gp("activation"))
            matrix = stack.enter_context(prog.gp("weight tile"))
        for k, register in enumerate(vectors):
            load_immediate(prog, register, act.row_address(0, chunk.first + k))
        target = result if iterations == 1 else stack.enter_context(prog.gp("result column"))

        def products() -> None:
            """`unroll` column groups."""
            nonlocal vector, matrix
            for column in range(unroll):
                for k in range(chunk.tiles):
                    if resident:
                        vector, matrix = vectors[k], matrices[k]
                    else:
                        add_immediate(prog, matrix, matrices[0], k * prog.config.tile_elements)
                        add_immediate(prog, vector, vectors[0], k * act.block_step)
                    prog.emit("M_MM", matrix, vector)
                prog.emit("M_MM_WO", target, GP0, column * blen)
                if column + 1 < unroll or iterations > 1:
                    for register in matrices:
                        add_immediate(prog, register, register, blen * mlen)

        with loop_to(prog, vectors[0], word, "row groups"):
            for k, register in enumerate(matrices):
                load_immediate(prog, register, tiles + k * prog.config.tile_elements)
            if work is not None:
                with prog.aside() as main:
                    products()
                with prog.aside() as side:
                    work()
                prog.weave(main, side)
            else:
                if target is not result:
                    add_immediate(prog, target, result, 0)
                with loop(prog, iterations, "column groups"):
                    products()
                    if iterations > 1:
                        add_immediate(prog, target, target, unroll * blen)
            for register in (*vectors, result):
                add_immediate(prog, register, register, blen * mlen)
