"""The architectural machine: executes program images in NumPy, one instruction at a time.

Written from isa.md and numerics.md; it shares the declarations of `isa` with the hardware and
imports nothing of `rtl`.

    machine     decode, execution, halt record
    state       memories, registers and accumulators, and the host's access to them
    effects     what an instruction changed, for lock step
    addresses   operand registers to rows, tiles, words and bytes, with the traps
    control, scalar, vector, matrix, hbm, topk   the meaning of the opcodes, by unit
"""

from sim.machine.effects import Effect, HbmWrite, RegisterWrite, RowWrite, WordWrite
from sim.machine.machine import Halt, Machine
from sim.machine.state import MachineState

__all__ = [
    "Effect",
    "Halt",
    "HbmWrite",
    "Machine",
    "MachineState",
    "RegisterWrite",
    "RowWrite",
    "WordWrite",
]
