"""Router logits by BF16 dot products, without MX and without the matrix unit.

    per expert: acc = 0; per MLEN block: acc = BF16(acc + FP32 sum of BF16(x * w))     numerics.md

They go to FP_MEM, expert by expert, and from there, MLEN at a time, to rows of vector SRAM.
"""

from contextlib import ExitStack

from compiler.activation import load_constant
from compiler.elementwise import walk_rows
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import F0, Register
from compiler.router_rule import RouterSpec, Scores
from compiler.router_token import TokenPointers, rows_from, store_run
from compiler.vram import VramMatrix

#: Experts of one loop body: their chains of dependent steps run side by side.
EXPERTS_AT_ONCE = 4
#: Column blocks that are written out; more become a loop.
UNROLLED_BLOCKS = 4


class RouterLogits:
    """Logits of one router: operands, scratch, and the emitters that use them.

    `weight` [experts, hidden] and, with a bias in the rule, `bias` [1, padded experts] are the
    host's. `scores` holds one token's logits in FP_MEM, without the bias; `rows`
    [tokens * blocks, MLEN] all of them, token-major, with it.
    """

    def __init__(self, prog: Program, spec: RouterSpec, tokens: int) -> None:
        mlen = prog.config.MLEN
        self.prog, self.spec, self.blocks = prog, spec, spec.blocks(mlen)
        self.padded = self.blocks * mlen
        self.weight = prog.vram.matrix("router weight", spec.experts, spec.hidden, preloaded=True)
        self.bias = None
        if spec.rule.bias:
            self.bias = prog.vram.matrix("router bias", 1, self.padded, preloaded=True)
        self.rows = prog.vram.matrix("router logits", tokens * self.blocks, mlen)
        self.scores = prog.fp_mem.window("router scores", self.padded)
        self.products = prog.vram.matrix("router products", EXPERTS_AT_ONCE, mlen)

    def prepare(self) -> None:
        """Fill the slots past the last expert once; nothing writes them again.

        Below all logits where the lanes of a row are added up, else zero: only V_TOPK and the
        emitters that mask lanes read them.
        """
        prog, spec = self.prog, self.spec
        pads = self.padded - spec.experts
        if not pads:
            return
        with prog.f("pad") as pad, prog.gp("pad slot") as slot:
            summed = spec.rule.scores is Scores.SOFTMAX and not spec.rule.topk_weights
            load_constant(prog, pad, "minus_infinity" if summed else "zero")
            load_immediate(prog, slot, self.scores.start + spec.experts)
            store_run(prog, pad, slot, pads)

    def emit(self, token: TokenPointers, x: VramMatrix) -> None:
        """The token's logits into `scores` and its rows."""
        prog, mlen = self.prog, self.prog.config.MLEN
        self._dot_products(token.x, x)
        with rows_from(prog, (token.logits, mlen), (self.scores.start, mlen)) as (row, slot):
            walk_rows(prog, "S_MAP_V_FP", [row, slot, 0], self.blocks)
        if self.bias is not None:
            bias = (self.bias.base, self.bias.block_step)
            with rows_from(prog, (token.logits, mlen), bias) as (row, bias_row):
                walk_rows(prog, "V_ADD_VV", [row, row, bias_row], self.blocks)

    def free(self) -> None:
        """Give the scratch back."""
        self.prog.vram.free(self.products)
        self.prog.fp_mem.free(self.scores)

    def _dot_products(self, x_row: Register, x: VramMatrix) -> None:
        prog = self.prog
        groups, rest = divmod(self.spec.experts, EXPERTS_AT_ONCE)
        with ExitStack() as stack:
            body = _ExpertLoop(self, x_row, x, stack)
            if groups:
                with loop(prog, groups, "expert groups"):
                    body.emit(EXPERTS_AT_ONCE)
            if rest:
                body.emit(rest)


class _ExpertLoop:
    """Registers of the expert loop, and its body."""

    def __init__(
        self, router: RouterLogits, x_row: Register, x: VramMatrix, stack: ExitStack
    ) -> None:
        self.prog, self.weight, self.x_row, self.x = router.prog, router.weight, x_row, x
        prog, products = self.prog, router.products
        holders = ("expert rows", "score slot", "x block", "weight block")
        registers = stack.enter_context(prog.gps(*holders))
        self.rows, self.slot, self.x_block, self.weight_row = registers
        names = [f"expert {expert}" for expert in range(EXPERTS_AT_ONCE)]
        self.products = stack.enter_context(prog.gps(*names))
        self.logits = stack.enter_context(prog.fs(*names))
        for expert, register in enumerate(self.products):
            load_immediate(prog, register, products.row_address(expert))
        load_immediate(prog, self.rows, self.weight.base)
        load_immediate(prog, self.slot, router.scores.start)

    def emit(self, count: int) -> None:
        """`count` experts; the pointers move behind them."""
        prog, mlen = self.prog, self.prog.config.MLEN
        logits, products = self.logits[:count], self.products[:count]
        for logit in logits:
            prog.emit("S_ADD_FP", logit, F0, F0)
        add_immediate(prog, self.x_block, self.x_row, 0)
        add_immediate(prog, self.weight_row, self.rows, 0)
        looped = self.x.blocks if self.x.blocks > UNROLLED_BLOCKS else 1
        with loop(prog, looped, "router blocks"):
            for block in range(self.x.blocks // looped):
                for expert, product in enumerate(products):
                    prog.emit("V_MUL_VV", product, self.x_block, self.weight_row)
                    if expert + 1 < count:
                        add_immediate(prog, self.weight_row, self.weight_row, mlen)
                for logit, product in zip(logits, products, strict=True):
                    prog.emit("V_RED_SUM", logit, product)
                if looped > 1 or block + 1 < self.x.blocks:
                    add_immediate(prog, self.x_block, self.x_block, self.x.block_step)
                    step = self.weight.block_step - (count - 1) * mlen
                    add_immediate(prog, self.weight_row, self.weight_row, step)
        for expert, logit in enumerate(logits):
            prog.emit("S_ST_FP", logit, self.slot, expert)
        add_immediate(prog, self.slot, self.slot, count)
        add_immediate(prog, self.rows, self.rows, count * mlen)
