"""Loops of the machine, counted by the compiler or by a word of INT_MEM, and the tracked registers
across them."""

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.errors import CompileError
from compiler.immediates import restore
from compiler.program import Program
from compiler.registers import GP0
from isa.operands import FIELDS

_LIMIT = FIELDS["imm22"].limit


@contextmanager
def loop(prog: Program, count: int, name: str) -> Iterator[None]:
    """Run what is emitted inside `count` times; a count of 1 costs nothing.

    Pointers that the body advances must have their values before the block. Raises CompileError for
    a count below 1 (the hardware traps on 0) or beyond 22 bits.
    """
    if not 1 <= count <= _LIMIT:
        raise CompileError(
            f"loop {name!r}: count {count} must be 1 to {_LIMIT} (leave an empty loop out)"
        )
    if count == 1:
        yield
        return
    with prog.gp(f"{name} counter") as counter:
        prog.emit("C_LOOP_START", counter, count)
        prog.tracked.enter_loop()
        yield
        for key, value in prog.tracked.to_restore():
            restore(prog, key, value)
        prog.tracked.leave_loop()
        prog.emit("C_LOOP_END", counter)


@contextmanager
def loop_by_word(prog: Program, word: int, name: str) -> Iterator[None]:
    """Run what is emitted inside INT_MEM[word] + 1 times, a number that only the machine knows.

    C_LOOP_END tests the register, so the body may raise it: it starts as 1, and the word's value is
    added once, in the first iteration. The word keeps its value.
    """
    with prog.gp(f"{name} counter") as counter:
        with prog.gp(f"{name}, more trips") as more:
            prog.emit("S_LD_INT", more, GP0, word)
            prog.emit("C_LOOP_START", counter, 1)
            prog.emit("S_ADD_INT", counter, counter, more)
        prog.tracked.enter_loop()
        yield
        for key, value in prog.tracked.to_restore():
            restore(prog, key, value)
        prog.tracked.leave_loop()
        # The body may use the register; the next iteration adds what it holds.
        with prog.gp(f"{name}, no more trips") as nothing:
            assert nothing.index == more.index, "registers are given back in the body"
            prog.emit("S_ADDI_INT", nothing, GP0, 0)
        prog.emit("C_LOOP_END", counter)
