"""The two machines that every case runs on: the RTL, compiled where there is a C compiler, and the
architectural machine."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from isa.assembler import assemble
from isa.config import PRESETS
from isa.image import ProgramImage
from isa.traps import Trap
from sim.compiled.toolchain import find_compiler
from sim.engine import Engine
from sim.engines import make_engine
from sim.hbm import HbmDevice
from sim.machine import Machine
from sim.numerics.bf16 import canonical_bits, from_bits
from sim.simulation import Simulation

#: The cases on MX are given for blocks of 4.
CONFIG = PRESETS["tiny"].replace(name="cases", MX_BLOCK=4)
LANES = CONFIG.MLEN
MAX_CYCLES = 20_000

Bits = npt.NDArray[np.uint16]


class Memories(Protocol):
    """What both machines offer the host."""

    def read_gp(self) -> npt.NDArray[np.uint32]: ...
    def read_f(self) -> Bits: ...
    def read_a(self) -> npt.NDArray[np.uint64]: ...
    def read_fp(self) -> Bits: ...
    def read_int(self) -> npt.NDArray[np.uint32]: ...
    def read_state(self) -> dict[str, int]: ...
    def read_vector(self, first_row: int = ..., count: int | None = ...) -> Bits: ...
    def write_fp(self, first: int, values: npt.ArrayLike) -> None: ...
    def write_vector(self, first_row: int, values: npt.ArrayLike) -> None: ...
    def write_matrix(self, tile: int, values: npt.ArrayLike) -> None: ...


Prepare = Callable[[Memories, HbmDevice], object]


@dataclass(frozen=True)
class End:
    """How a run stopped, and what it left."""

    cause: Trap
    pc: int
    operand: int
    memories: Memories
    hbm: HbmDevice

    def f(self, index: int) -> int:
        """An f register, every NaN as 7FC0."""
        return int(canonical_bits(from_bits(self.memories.read_f()))[index])

    def row(self, index: int) -> list[int]:
        """A row of vector SRAM, every NaN as 7FC0."""
        return canonical_bits(from_bits(self.memories.read_vector(index, 1)))[0].tolist()

    def everything(self) -> dict[str, Any]:
        """All architectural state but the memory device."""
        m = self.memories
        arrays = (m.read_gp(), m.read_f(), m.read_a(), m.read_fp(), m.read_int(), m.read_vector())
        return {"arrays": [a.tolist() for a in arrays], "state": m.read_state()}


Side = Callable[..., End]


def _nothing(_memories: Memories, _hbm: HbmDevice) -> None:
    """A program that starts from reset."""


@cache
def _engine() -> Engine:
    return make_engine("pysim" if find_compiler() is None else "compiled", CONFIG)


def _image(program: str | ProgramImage) -> ProgramImage:
    return assemble(program, config=CONFIG) if isinstance(program, str) else program


def rtl(program: str | ProgramImage, prepare: Prepare = _nothing) -> End:
    """Run on the RTL."""
    hbm = HbmDevice(CONFIG)
    simulation = Simulation(CONFIG, _image(program), hbm, engine=_engine())
    prepare(simulation.memories, hbm)
    result = simulation.run(max_cycles=MAX_CYCLES)
    return End(result.cause, result.pc, result.operand, simulation.memories, hbm)


def machine(program: str | ProgramImage, prepare: Prepare = _nothing) -> End:
    """Run on the architectural machine."""
    hbm = HbmDevice(CONFIG)
    runs = Machine(CONFIG, _image(program), hbm)
    prepare(runs.memories, hbm)
    halt = runs.run(max_instructions=MAX_CYCLES)
    return End(halt.cause, halt.pc, halt.operand, runs.memories, hbm)


SIDES: dict[str, Side] = {"rtl": rtl, "machine": machine}
