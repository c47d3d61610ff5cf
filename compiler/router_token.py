"""What the parts of a router share: the registers of the token loop, and row pointers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.elementwise import RowPointer
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import Register

#: Where consecutive rows start: an address, or the register that holds it.
Start = Register | int


@dataclass(frozen=True, kw_only=True)
class TokenPointers:
    """Registers of the token loop: x's row, the first row of the token's logits, and token * k."""

    x: Register
    logits: Register
    pair: Register


def point(prog: Program, register: Register, start: Start) -> None:
    """register = start."""
    if isinstance(start, Register):
        add_immediate(prog, register, start, 0)
    else:
        load_immediate(prog, register, start)


@contextmanager
def rows_from(prog: Program, *runs: tuple[Start, int]) -> Iterator[tuple[RowPointer, ...]]:
    """A pointer for each (first row, step), in a register of its own for the block."""
    with prog.gps(*(f"row pointer {i}" for i in range(len(runs)))) as registers:
        for register, (start, _) in zip(registers, runs, strict=True):
            point(prog, register, start)
        yield tuple(RowPointer(r, step) for r, (_, step) in zip(registers, runs, strict=True))


def store_run(prog: Program, value: Register, slot: Register, count: int) -> None:
    """FP_MEM[gp[slot] ...] = f[value], `count` slots; the register moves behind them."""
    with loop(prog, count, "slots"):
        prog.emit("S_ST_FP", value, slot, 0)
        add_immediate(prog, slot, slot, 1)
