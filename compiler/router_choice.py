"""What V_TOPK ranks when it is not the logits: sigmoid scores with a correction bias.

The rule chooses by sigmoid(l) + b. Ranked here is b - sigmoid(-l), smaller by exactly 1 for every
expert: the same order, but the scores that matter lie near zero, where BF16 has finer steps.

    exp(l), + 1, reciprocal, b - that; every step rounded
"""

from compiler.activation import load_constant
from compiler.elementwise import walk_rows
from compiler.program import Program
from compiler.router_logits import RouterLogits
from compiler.router_token import TokenPointers, rows_from


class CorrectedChoice:
    """The scores of one token that the choice is made by.

    `correction` is the host's, one FP_MEM slot per expert. `rows` [blocks, MLEN] holds a token's
    scores.
    """

    def __init__(self, prog: Program, logits: RouterLogits) -> None:
        self.prog, self.logits = prog, logits
        mlen, blocks = prog.config.MLEN, logits.blocks
        self.correction = prog.fp_mem.window("router correction", logits.padded, preloaded=True)
        self.bias_rows = prog.vram.matrix("router correction", blocks, mlen)
        self.rows = prog.vram.matrix("router choice", blocks, mlen)

    def prepare(self) -> None:
        """The correction as rows, once."""
        prog, mlen = self.prog, self.prog.config.MLEN
        runs = (self.bias_rows.base, mlen), (self.correction.start, mlen)
        with rows_from(prog, *runs) as (row, slot):
            walk_rows(prog, "S_MAP_V_FP", [row, slot, 0], self.logits.blocks)

    def emit(self, token: TokenPointers) -> int:
        """The token's scores; the address of their first row."""
        prog, mlen, blocks = self.prog, self.prog.config.MLEN, self.logits.blocks
        start = self.rows.base
        with prog.f("one") as one:
            load_constant(prog, one, "one")
            with rows_from(prog, (start, mlen), (token.logits, mlen)) as (row, logit):
                walk_rows(prog, "V_EXP_V", [row, logit], blocks)
            for mnemonic, operand in (("V_ADD_VF", [one]), ("V_RECI_V", [])):
                with rows_from(prog, (start, mlen)) as (row,):
                    walk_rows(prog, mnemonic, [row, row, *operand], blocks)
        with rows_from(prog, (start, mlen), (self.bias_rows.base, mlen)) as (row, bias):
            walk_rows(prog, "V_SUB_VV", [row, bias, row], blocks)
        return start

    def free(self) -> None:
        """Give the scratch back; the correction stays the host's."""
        self.prog.vram.free(self.bias_rows, self.rows)
