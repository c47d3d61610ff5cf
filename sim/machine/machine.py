"""The architectural machine: decodes an image once and executes it instruction by instruction."""

from dataclasses import dataclass

import numpy as np

from isa.config import PlenaConfig
from isa.image import ProgramImage
from isa.instruction import DecodeError, Instruction
from isa.traps import Trap
from sim.hbm import HbmMemory
from sim.machine import control, hbm, matrix, scalar, topk, vector
from sim.machine.addresses import Stop
from sim.machine.effects import Effect
from sim.machine.registry import BUILDERS, Step
from sim.machine.state import MachineState

DEFAULT_MAX_INSTRUCTIONS = 100_000_000

#: The modules that register the meaning of the opcodes.
UNITS = (control, scalar, vector, matrix, hbm, topk)


@dataclass(frozen=True)
class Halt:
    """Why the machine stopped; the fields of the hardware's halt record (isa.md, "Traps").

    `by_memory`: the memory answered with an error, so that hardware under issue policy `overlap`
    reports the same record as not precise.
    """

    cause: Trap
    pc: int
    word: int = 0
    operand: int = 0
    precise: bool = True
    by_memory: bool = False


class Machine:
    """Executes `image` on `config` against the device memory `hbm`, in program order.

    Fill `memories` and `hbm`, then `run`; after a C_BREAK `resume` goes on. Faults of an HbmDevice
    end the run like the hardware's. Every run is one of issue policy `serial`: traps are precise.

    `hbm` is written to by H_STORE_V. Raises ImageError when the image was made for another machine.
    """

    def __init__(self, config: PlenaConfig, image: ProgramImage, hbm: HbmMemory) -> None:
        image.check_config(config)
        self.config = config
        self.image = image
        self.memories = MachineState(config, hbm)
        self.pc = 0
        self.executed = 0
        self.halt: Halt | None = None
        self._words = [int(w) for w in image.words]
        self._steps = [self._step_of(pc, word) for pc, word in enumerate(self._words)]
        self._steps.append(_stopping(Trap.DONE))

    @property
    def hbm(self) -> HbmMemory:
        """The device memory."""
        return self.memories.hbm

    def _step_of(self, pc: int, word: int) -> Step:
        try:
            instruction = Instruction.decode(word)
        except DecodeError as error:
            return _stopping(error.trap, word)
        return BUILDERS[instruction.opcode.code](self.memories, instruction, pc)

    def run(self, *, entry: int = 0, max_instructions: int = DEFAULT_MAX_INSTRUCTIONS) -> Halt:
        """Execute from `entry` until DONE, BREAK, a trap, or the limit (cause WATCHDOG)."""
        pc, steps = entry, self._steps
        self.halt = None
        left = max_instructions
        try:
            with np.errstate(all="ignore"):
                while left:
                    after = steps[pc]()
                    pc = pc + 1 if after is None else after
                    left -= 1
            self.halt = Halt(Trap.WATCHDOG, pc)
        except Stop as stop:
            self.halt = self._record(pc, stop)
        self.pc = pc
        self.executed += max_instructions - left
        return self.halt

    def resume(self, *, max_instructions: int = DEFAULT_MAX_INSTRUCTIONS) -> Halt:
        """Go on behind the C_BREAK that stopped the machine; ValueError when none did."""
        if self.halt is None or self.halt.cause is not Trap.BREAK:
            cause = "nothing" if self.halt is None else self.halt.cause.name
            raise ValueError(f"only C_BREAK can be resumed; the machine was stopped by {cause}")
        return self.run(entry=self.pc + 1, max_instructions=max_instructions)

    def step(self, log: list[Effect] | None = None) -> Halt | None:
        """Execute the instruction at `pc`; what it changes is appended to `log`.

        Returns the halt record when it ends the run; `pc` then stays.
        """
        self.memories.log = log
        try:
            with np.errstate(all="ignore"):
                after = self._steps[self.pc]()
        except Stop as stop:
            self.halt = self._record(self.pc, stop)
            return self.halt
        finally:
            self.memories.log = None
        self.pc = self.pc + 1 if after is None else after
        self.executed += 1
        return None

    def step_over(self) -> None:
        """Pass over the instruction at `pc`, which stopped the machine."""
        self.halt = None
        self.pc += 1

    def _record(self, pc: int, stop: Stop) -> Halt:
        word = self._words[pc] if pc < len(self._words) else 0
        by_memory = isinstance(stop, hbm.MemoryFault)
        return Halt(stop.cause, pc, word, stop.operand, by_memory=by_memory)


def _stopping(cause: Trap, operand: int = 0) -> Step:
    """A step that only stops."""

    def step() -> None:
        raise Stop(cause, operand)

    return step
