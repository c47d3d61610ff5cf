"""H_*: transfers between the device memory and the SRAMs, through the MX conversion.

The target of a transfer that the memory answers with an error is undefined after it (isa.md says
only what happens to other instructions). Here a failed prefetch changes nothing, and a failed
store writes the beats that the memory accepted, as the device does.
"""

from collections.abc import Callable

import numpy as np

from isa.instruction import Instruction
from isa.opcodes import Extent
from isa.traps import Trap
from sim.machine.addresses import Stop, hbm_rows, matrix_slice, vector_rows
from sim.machine.registry import Step, executes
from sim.machine.state import MachineState
from sim.numerics import mx
from sim.numerics.bf16 import Bf16Array


class MemoryFault(Stop):
    """The memory answered with an error: HBM_ADDRESS, not precise under issue policy `overlap`."""


def _reader(state: MachineState, instruction: Instruction, count: int) -> Callable[[], Bf16Array]:
    """The values [count, MLEN] of the rows in memory; Stop when they are out of range or faulty."""
    config = state.config
    resolve = hbm_rows(state, instruction, count)
    mlen, block = config.MLEN, config.MX_BLOCK
    row_scales = mlen // block

    def gather(first: int, stride: int, width: int) -> tuple[bytes, bool]:
        hbm = state.hbm
        if stride == width:
            length = count * width
            return hbm.read(first, length), hbm.is_faulty(first, length)
        starts = range(first, first + count * stride, stride) if stride else [first] * count
        parts = [hbm.read(start, width) for start in starts]
        return b"".join(parts), any(hbm.is_faulty(start, width) for start in starts)

    def read() -> Bf16Array:
        elements, scales, stride = resolve()
        codes, bad_codes = gather(elements, stride, mlen)
        factors, bad_scales = gather(scales, stride // block, row_scales)
        if bad_codes or bad_scales:
            raise MemoryFault(Trap.HBM_ADDRESS, elements)
        return mx.decode(
            np.frombuffer(codes, np.uint8).reshape(count, mlen),
            np.frombuffer(factors, np.uint8).reshape(count, row_scales),
            block,
            config.mx_dialect,
        )

    return read


@executes("H_PREFETCH_M")
def prefetch_tile(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """HBM_M_PREFETCH rows into the tile at gp[rd]."""
    place = matrix_slice(state, (instruction.value("rd"),), Extent.TILE)
    read = _reader(state, instruction, state.config.m_prefetch)

    def step() -> None:
        tile, _ = place()
        state.set_tile_rows(tile, read())

    return step


@executes("H_PREFETCH_V")
def prefetch_rows(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """HBM_V_PREFETCH rows into vector SRAM at gp[rd]."""
    count = state.config.v_prefetch
    target = vector_rows(state, instruction.value("rd"), count)
    read = _reader(state, instruction, count)

    def step() -> None:
        row = target()
        state.set_rows(row, read())

    return step


@executes("H_STORE_V")
def store_rows(state: MachineState, instruction: Instruction, _pc: int) -> Step:
    """HBM_V_WRITEBACK rows from vector SRAM at gp[rd]; row by row, so later rows win."""
    config = state.config
    count, block = config.v_writeback, config.MX_BLOCK
    source = vector_rows(state, instruction.value("rd"), count)
    resolve = hbm_rows(state, instruction, count)

    def step() -> None:
        row = source()
        elements, scales, stride = resolve()
        codes, factors = mx.encode(state.rows(row, count), block, config.mx_dialect)
        faulty = False
        for r in range(count):
            pieces = (
                (scales + r * stride // block, factors[r].tobytes()),
                (elements + r * stride, codes[r].tobytes()),
            )
            for address, content in pieces:
                faulty |= state.hbm.is_faulty(address, len(content))
                state.set_hbm(address, content)
        if faulty:
            raise MemoryFault(Trap.HBM_ADDRESS, elements)

    return step
