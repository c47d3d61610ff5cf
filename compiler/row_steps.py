"""Steps of an activation over groups of rows: all steps on a few rows before the next rows.

For a number of rows that only the machine knows: a loop per step would pay its own instructions for
BLEN rows each time.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from compiler.activation import MATRICES, Step, load_constants
from compiler.elementwise import RowGroups
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop_to
from compiler.program import Program
from compiler.registers import Register
from compiler.vram import VramMatrix

#: Rows whose steps alternate, so that none waits for the one before it.
AT_ONCE = 2


class RowSteps:
    """`steps` on row groups, one after the other; registers are held as long as `stack`.

    `scratch` is used from its first rows, again and again; the other matrices are walked.
    """

    def __init__(
        self,
        prog: Program,
        steps: Sequence[Step],
        matrices: Mapping[str, VramMatrix],
        stack: ExitStack,
    ) -> None:
        self._prog, self._steps, self._matrices = prog, steps, matrices
        self._constants = load_constants(prog, steps, stack)
        used = dict.fromkeys(n for step in steps for n in step.operands if n in MATRICES)
        at_once = min(AT_ONCE, prog.config.BLEN)
        self._rows = {
            name: [stack.enter_context(prog.gp(f"{name} row {i}")) for i in range(at_once)]
            for name in used
        }
        self._walked = [name for name in used if name != "scratch"]
        if "scratch" in used:
            self._point("scratch", matrices["scratch"].base)

    @property
    def leader(self) -> Register:
        """A row address that `group` moves on by BLEN rows."""
        return self._rows[self._walked[-1]][0]

    def start(self, block: int) -> None:
        """Begin with the first row group of column block `block`."""
        for name in self._walked:
            self._point(name, self._matrices[name].row_address(0, block))

    def start_beside(self, name: str, row: Register) -> None:
        """Begin where gp[row] stands in matrix `name`, in all matrices; they have one shape."""
        prog, beside = self._prog, self._matrices[name].base
        for other in self._walked:
            base, first = self._matrices[other].base, self._rows[other][0]
            if base >= beside:
                add_immediate(prog, first, row, base - beside)
            else:
                load_immediate(prog, first, beside - base)
                prog.emit("S_SUB_INT", first, row, first)
            self._space(other)

    def group(self) -> None:
        """Emit the steps for BLEN rows, and move on."""
        prog, blen, mlen = self._prog, self._prog.config.BLEN, self._prog.config.MLEN
        at_once = min(AT_ONCE, blen)
        last = {name: i for i, step in enumerate(self._steps) for name in step.operands}
        for _ in range(0, blen, at_once):
            for number, step in enumerate(self._steps):
                for i in range(at_once):
                    prog.emit(step.mnemonic, *(self._operand(name, i) for name in step.operands))
                for name in self._walked:
                    if last[name] == number:
                        for row in self._rows[name]:
                            add_immediate(prog, row, row, at_once * mlen)

    def _operand(self, name: str, i: int) -> Register:
        return self._rows[name][i] if name in self._rows else self._constants[name]

    def _point(self, name: str, address: int) -> None:
        load_immediate(self._prog, self._rows[name][0], address)
        self._space(name)

    def _space(self, name: str) -> None:
        """Put the other rows of `name` behind the first one."""
        first, *others = self._rows[name]
        for i, row in enumerate(others, 1):
            add_immediate(self._prog, row, first, i * self._prog.config.MLEN)


def emit_steps(
    prog: Program, steps: Sequence[Step], matrices: Mapping[str, VramMatrix], rows: RowGroups
) -> None:
    """Emit `steps` for all column blocks of `rows`; marks no stage."""
    with ExitStack() as stack:
        row_steps = RowSteps(prog, steps, matrices, stack)
        for block in range(matrices["up"].blocks):
            row_steps.start(block)
            with loop_to(prog, row_steps.leader, rows.word, "row groups"):
                row_steps.group()
