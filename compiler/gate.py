"""The sigmoid gate of a shared expert: one scalar per token, from the expert's input.

logit = 0; per MLEN block: logit = BF16(logit + FP32 sum of BF16(x * w))      numerics.md
gate  = 1 / (exp(0 - logit) + 1), every step rounded
output row = BF16(output row * gate)
"""

from contextlib import ExitStack

from compiler.activation import load_constant
from compiler.arena import Interval
from compiler.errors import CompileError
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import F0, Register
from compiler.vram import VramMatrix

#: Tokens of one loop body: their chains of dependent scalar steps run side by side.
TOKENS_AT_ONCE = 4
#: Column blocks that are written out; more become a loop.
UNROLLED_BLOCKS = 4


def sigmoid_gate(
    prog: Program, *, x: VramMatrix, gate_row: VramMatrix, target: VramMatrix, rows: int
) -> Interval:
    """target row t *= sigmoid(x row t . gate row), under shared_expert_gate; the scalars' slots.

    The scalars are kept in FP_MEM, one slot per row, only so that the host can compare each of
    them and see a saturated one; the multiply takes them from registers. The label `row=` names the
    first token of a loop.

    Raises:
        CompileError: widths that differ, or more rows than FP_MEM has slots for.
    """
    if not x.cols == gate_row.cols == target.cols:
        raise CompileError(
            f"sigmoid gate: gate row {gate_row.name} is {gate_row.cols} wide, x {x.name} {x.cols}, "
            f"output {target.name} {target.cols}: all must be H, or the gate would see a part of "
            "the logit (pass the [1, H] gate row of this layer)"
        )
    scalars = prog.fp_mem.window("gate scalars", rows)
    products = prog.vram.matrix("gate products", min(TOKENS_AT_ONCE, rows), prog.config.MLEN)
    groups, rest = divmod(rows, TOKENS_AT_ONCE)
    first = (groups * TOKENS_AT_ONCE or rows) - 1
    prog.stage("shared_expert_gate", f"row=0 and up to row {first}, {products.rows} at a time")
    with prog.emitter("sigmoid_gate"), prog.f("one") as one, ExitStack() as stack:
        stack.callback(prog.vram.free, products)
        load_constant(prog, one, "one")
        tokens = _Tokens(prog, x, gate_row, target, products, one, stack)
        for pointer, start in tokens.starts(scalars.start):
            load_immediate(prog, pointer, start)
        if groups:
            with loop(prog, groups, "token groups"):
                tokens.emit(TOKENS_AT_ONCE)
        if groups and rest:
            prog.stage("shared_expert_gate", f"row={rows - rest} and up to row {rows - 1}")
        if rest:
            tokens.emit(rest)
    return scalars


class _Tokens:
    """Registers of the token loop, and its body."""

    def __init__(
        self,
        prog: Program,
        x: VramMatrix,
        gate_row: VramMatrix,
        target: VramMatrix,
        products: VramMatrix,
        one: Register,
        stack: ExitStack,
    ) -> None:
        self.prog, self.x, self.gate_row, self.target, self.one = prog, x, gate_row, target, one
        self.mlen = prog.config.MLEN
        holders = ("x group", "output group", "scalar slot", "x row", "gate block", "output row")
        registers = stack.enter_context(prog.gps(*holders))
        self.x_group, self.target_group, self.slot, self.x_row, self.weight, self.target_row = (
            registers
        )
        names = [f"products {token}" for token in range(products.rows)]
        self.products = stack.enter_context(prog.gps(*names))
        self.gates = stack.enter_context(prog.fs(*(f"gate {t}" for t in range(products.rows))))
        for token, register in enumerate(self.products):
            load_immediate(prog, register, products.row_address(token))

    def starts(self, slot: int) -> list[tuple[Register, int]]:
        """The pointers that advance from group to group, and their first values."""
        return [
            (self.x_group, self.x.base),
            (self.target_group, self.target.base),
            (self.slot, slot),
        ]

    def emit(self, count: int) -> None:
        """`count` tokens: logits, scalars, multiply; the group pointers move behind them."""
        prog = self.prog
        gates, products = self.gates[:count], self.products[:count]
        self._logits(gates, products)
        for gate in gates:
            prog.emit("S_SUB_FP", gate, F0, gate)
        for gate in gates:
            prog.emit("S_EXP_FP", gate, gate)
        for gate in gates:
            prog.emit("S_ADD_FP", gate, gate, self.one)
        for gate in gates:
            prog.emit("S_RECI_FP", gate, gate)
        for token, gate in enumerate(gates):
            prog.emit("S_ST_FP", gate, self.slot, token)
        self._multiply(gates)
        for pointer, step in (
            (self.x_group, self.mlen),
            (self.target_group, self.mlen),
            (self.slot, 1),
        ):
            add_immediate(prog, pointer, pointer, count * step)

    def _logits(self, gates: tuple[Register, ...], products: tuple[Register, ...]) -> None:
        prog, count = self.prog, len(gates)
        for gate in gates:
            prog.emit("S_ADD_FP", gate, F0, F0)
        add_immediate(prog, self.x_row, self.x_group, 0)
        load_immediate(prog, self.weight, self.gate_row.base)
        looped = self.x.blocks if self.x.blocks > UNROLLED_BLOCKS else 1
        with loop(prog, looped, "gate blocks"):
            for block in range(self.x.blocks // looped):
                more = looped > 1 or block + 1 < self.x.blocks
                for token, product in enumerate(products):
                    prog.emit("V_MUL_VV", product, self.x_row, self.weight)
                    if token + 1 < count:
                        add_immediate(prog, self.x_row, self.x_row, self.mlen)
                for gate, product in zip(gates, products, strict=True):
                    prog.emit("V_RED_SUM", gate, product)
                if more:
                    step = self.x.block_step - (count - 1) * self.mlen
                    add_immediate(prog, self.x_row, self.x_row, step)
                    add_immediate(prog, self.weight, self.weight, self.gate_row.block_step)

    def _multiply(self, gates: tuple[Register, ...]) -> None:
        prog, blocks = self.prog, self.target.blocks
        add_immediate(prog, self.target_row, self.target_group, 0)
        looped = blocks if blocks > UNROLLED_BLOCKS else 1
        with loop(prog, looped, "output blocks"):
            for block in range(blocks // looped):
                for token, gate in enumerate(gates):
                    prog.emit("V_MUL_VF", self.target_row, self.target_row, gate)
                    if token + 1 < len(gates):
                        add_immediate(prog, self.target_row, self.target_row, self.mlen)
                if looped > 1 or block + 1 < blocks:
                    step = self.target.block_step - (len(gates) - 1) * self.mlen
                    add_immediate(prog, self.target_row, self.target_row, step)
