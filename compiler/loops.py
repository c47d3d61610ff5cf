"""Counted loops of the machine, and the tracked registers across them."""

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.errors import CompileError
from compiler.immediates import restore
from compiler.program import Program
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
