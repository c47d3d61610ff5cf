"""Whole matrices between HBM and vector SRAM, in the amounts that the configuration gives."""

from compiler.errors import CompileError
from compiler.hbm import HbmTensor, Order
from compiler.immediates import add_immediate, load_immediate, set_address, set_scale, set_stride
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import Register
from compiler.vram import VramMatrix

#: Transfers of one matrix that are written out; more become two nested loops.
UNROLLED = 32


def load_matrix(prog: Program, tensor: HbmTensor, matrix: VramMatrix) -> None:
    """Load a row-major tensor of MX activations, with its padded rows, into a matrix of its shape.

    H_PREFETCH_V moves HBM_V_PREFETCH rows at a time. Every row that an M_MM on the matrix reads is
    written.
    """
    _check_shapes(tensor, matrix)
    amount = prog.config.v_prefetch
    read = -(-matrix.rows // prog.config.BLEN) * prog.config.BLEN
    groups = -(-read // amount)
    _check_rows(tensor, groups * amount, "HBM_V_PREFETCH", amount)
    with prog.emitter(f"load_matrix {matrix.name}"), prog.a(f"{tensor.name} address") as base:
        _set_tensor(prog, tensor, base)
        _transfer(prog, "H_PREFETCH_V", tensor, matrix, base, [i * amount for i in range(groups)])


def store_matrix(prog: Program, matrix: VramMatrix, tensor: HbmTensor) -> None:
    """Store the rows of a matrix as MX activations into a row-major tensor of its shape.

    H_STORE_V moves HBM_V_WRITEBACK rows. The last one starts earlier where needed, so that rows
    past the matrix's are not touched; only a matrix with fewer rows than one H_STORE_V writes its
    own padded rows too.
    """
    _check_shapes(tensor, matrix)
    amount = prog.config.v_writeback
    starts = [*range(0, matrix.rows - amount, amount), max(0, matrix.rows - amount)]
    _check_rows(tensor, starts[-1] + amount, "HBM_V_WRITEBACK", amount)
    with prog.emitter(f"store_matrix {matrix.name}"), prog.a(f"{tensor.name} address") as base:
        _set_tensor(prog, tensor, base)
        _transfer(prog, "H_STORE_V", tensor, matrix, base, starts)


def _check_shapes(tensor: HbmTensor, matrix: VramMatrix) -> None:
    if (tensor.rows, tensor.cols) != (matrix.rows, matrix.cols) or tensor.order is not Order.ROWS:
        raise CompileError(
            f"transfer: tensor {tensor.name} [{tensor.rows}, {tensor.cols}] ({tensor.order.name}) "
            f"and matrix {matrix.name} [{matrix.rows}, {matrix.cols}] must have one shape, "
            "row-major (make them with the same rows and cols)"
        )


def _check_rows(tensor: HbmTensor, touched: int, field: str, amount: int) -> None:
    if tensor.physical_rows + tensor.slack_rows < touched:
        raise CompileError(
            f"transfer: {field} = {amount} touches {touched} rows of {tensor.name}, which has "
            f"{tensor.physical_rows} (give it vram.transfer_rows(config, rows) physical rows)"
        )


def _set_tensor(prog: Program, tensor: HbmTensor, base: Register) -> None:
    set_address(prog, base, tensor.base)
    set_scale(prog, tensor.scale_offset)
    set_stride(prog, tensor.stride)


def _transfer(
    prog: Program,
    mnemonic: str,
    tensor: HbmTensor,
    matrix: VramMatrix,
    base: Register,
    starts: list[int],
) -> None:
    """One transfer per column block and start row; the last start need not follow the rhythm."""
    if len(starts) * matrix.blocks <= UNROLLED:
        with prog.gps("vector row", "HBM offset") as (row, offset):
            for block in range(matrix.blocks):
                for start in starts:
                    load_immediate(prog, row, matrix.row_address(start, block))
                    load_immediate(prog, offset, start * tensor.stride + block * tensor.column_step)
                    prog.emit(mnemonic, row, offset, base, rstride=1)
        return
    step = starts[1] - starts[0] if len(starts) > 1 else 0
    with prog.gps("block row", "block offset", "vector row", "HBM offset") as pointers:
        block_row, block_offset, row, offset = pointers
        load_immediate(prog, block_row, matrix.base)
        load_immediate(prog, block_offset, 0)
        with loop(prog, matrix.blocks, "column blocks"):
            add_immediate(prog, row, block_row, 0)
            add_immediate(prog, offset, block_offset, 0)
            with loop(prog, max(1, len(starts) - 1), "row groups"):
                prog.emit(mnemonic, row, offset, base, rstride=1)
                add_immediate(prog, row, row, step * matrix.mlen)
                add_immediate(prog, offset, offset, step * tensor.stride)
            if len(starts) > 1:
                add_immediate(prog, row, block_row, starts[-1] * matrix.mlen)
                add_immediate(prog, offset, block_offset, starts[-1] * tensor.stride)
                prog.emit(mnemonic, row, offset, base, rstride=1)
            add_immediate(prog, block_row, block_row, matrix.block_step)
            add_immediate(prog, block_offset, block_offset, tensor.column_step)
