"""Loops of the machine, counted by the compiler or by the machine, and the tracked registers across
them."""

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.errors import CompileError
from compiler.immediates import restore
from compiler.program import Program
from compiler.registers import GP0, Register
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
def loop_while(prog: Program, name: str) -> Iterator[Register]:
    """Run what is emitted inside once, and again as long as it leaves more than 1 in the register
    that is yielded: a number of trips, at least one, that only the machine knows.

    C_LOOP_END tests the register, and nothing else decides.
    """
    with prog.gp(f"{name}, again") as again:
        prog.emit("C_LOOP_START", again, 1)
        prog.tracked.enter_loop()
        yield again
        for key, value in prog.tracked.to_restore():
            restore(prog, key, value)
        prog.tracked.leave_loop()
        prog.emit("C_LOOP_END", again)


@contextmanager
def loop_to(prog: Program, pointer: Register, word: int, name: str) -> Iterator[None]:
    """Run what is emitted inside until gp[pointer], which the body raises, has gone INT_MEM[word]
    further; at least once."""
    with prog.gp(f"{name}, end") as end:
        prog.emit("S_LD_INT", end, GP0, word)
        prog.emit("S_ADD_INT", end, end, pointer)
        with loop_while(prog, name) as again:
            yield
            prog.emit("S_SUB_INT", again, end, pointer)
