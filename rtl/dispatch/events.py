"""Events and states that the dispatcher shows to the machine and to the host."""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from isa.opcodes import Op, Unit
from isa.stages import Stage
from isa.traps import Trap
from rtl.interfaces import PC_BITS

#: Completion ports of the units: a unit has one per kind of work that can finish in the same cycle.
COMPLETIONS = (
    "matrix_product",
    "matrix_write",
    "vector",
    "vector_reduce",
    "scalar",
    "topk",
    "hbm",
)


class RunState(enum.Enum, shape=2):
    """What the machine as a whole is doing."""

    IDLE = 0
    RUNNING = 1
    STOPPING = (
        2  # the memory answered with an error; unfinished instructions drain, nothing is issued
    )
    HALTED = 3


class Stall(enum.Enum, shape=3):
    """Why no instruction was dispatched in a cycle."""

    NONE = 0  # one was
    NO_UNIT = 1  # its unit or every slot is taken (under `serial`: something is unfinished)
    HAZARD = 2  # an older unfinished instruction conflicts with it
    MEMORY = 3  # it waits for an unfinished H_* instruction, or for room in the HBM port
    FETCH = 4  # the word is not there yet
    DRAIN = 5  # the program is over, or about to stop: unfinished instructions complete


class Halt(data.Struct):
    """The halt record (isa.md, "Traps"); valid while the machine is halted."""

    cause: Trap
    precise: unsigned(1)
    pc: unsigned(PC_BITS)
    word: unsigned(32)
    operand: unsigned(64)


class Dispatch(data.Struct):
    """An instruction leaves the dispatcher in this cycle."""

    valid: unsigned(1)
    pc: unsigned(PC_BITS)
    word: unsigned(32)
    op: Op
    stage: Stage
    unit: Unit
