"""Single token rows of the routed branch: gather, route weight, scatter-add; addresses that the
compiler knows."""

from collections.abc import Sequence

from compiler.hbm import HbmTensor
from compiler.immediates import add_immediate, load_immediate, set_address, set_scale, set_stride
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import F0, GP0, Register
from compiler.vram import VramMatrix

#: Column blocks of a row that are written out; more become a loop.
UNROLLED_BLOCKS = 8


def on_row(
    prog: Program,
    mnemonic: str,
    places: Sequence[tuple[VramMatrix, int] | Register],
    target: tuple[VramMatrix, int],
) -> None:
    """Emit `mnemonic` target, *places for every column block of one row of each matrix.

    A place is (matrix, row) or a register that is passed on. Each place takes one gp register; a
    place equal to `target` shares its one.
    """
    distinct = list(dict.fromkeys(p for p in (target, *places) if not isinstance(p, Register)))
    blocks = target[0].blocks
    with prog.gps(*(f"{matrix.name} row" for matrix, _ in distinct)) as registers:
        pointer = dict(zip(distinct, registers, strict=True))
        for (matrix, row), register in pointer.items():
            load_immediate(prog, register, matrix.row_address(row))
        looped = blocks if blocks > UNROLLED_BLOCKS else 1
        operands = [p if isinstance(p, Register) else pointer[p] for p in (target, *places)]
        with loop(prog, looped, "column blocks"):
            for block in range(blocks // looped):
                prog.emit(mnemonic, *operands)
                if looped > 1 or block + 1 < blocks:
                    for (matrix, _), register in pointer.items():
                        add_immediate(prog, register, register, matrix.block_step)


def gather_row(prog: Program, slot: VramMatrix, row: int, x: VramMatrix, token: int) -> None:
    """slot row = x row, in vector SRAM; -0 becomes +0."""
    with prog.emitter("gather"):
        on_row(prog, "V_ADD_VF", [(x, token), F0], (slot, row))


def gather_row_from_hbm(
    prog: Program, slot: VramMatrix, x: HbmTensor, base: Register, offset_word: int
) -> None:
    """slot row 0 = the row of x at element offset INT_MEM[offset_word]; rows behind it change too.

    H_PREFETCH_V moves HBM_V_PREFETCH rows: `x` has that many less one as slack, and the caller
    zeroes the rows of the slot that are no tokens.
    """
    with prog.emitter("gather"), prog.gps("token offset", "slot row") as (offset, row):
        set_address(prog, base, x.base)
        set_scale(prog, x.scale_offset)
        set_stride(prog, x.stride)
        prog.emit("S_LD_INT", offset, GP0, offset_word)
        for block in range(slot.blocks):
            load_immediate(prog, row, slot.row_address(0, block))
            prog.emit("H_PREFETCH_V", row, offset, base, rstride=1)
            if block + 1 < slot.blocks:
                add_immediate(prog, offset, offset, x.column_step)


def weigh_row(prog: Program, target: VramMatrix, row: int, weight_slot: int) -> None:
    """target row = BF16(row * FP_MEM[weight_slot])."""
    with prog.emitter("route weight"), prog.f("route weight") as weight:
        prog.emit("S_LD_FP", weight, GP0, weight_slot)
        on_row(prog, "V_MUL_VF", [(target, row), weight], (target, row))


def scatter_row(
    prog: Program, accumulator: VramMatrix, token: int, out: VramMatrix, row: int
) -> None:
    """accumulator row = BF16(accumulator row + out row)."""
    with prog.emitter("scatter"):
        on_row(prog, "V_ADD_VV", [(accumulator, token), (out, row)], (accumulator, token))
