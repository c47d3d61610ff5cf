"""Exact route weights where the rule is not V_TOPK's, from the logits in FP_MEM.

    softmax over all   z = FP32-tree sum of exp(l - m) over the rows; w_i = exp(l_i - m) * (f / z)
    sigmoid            s_i = 1 / (exp(0 - l_i) + 1);  w_i = s_i, times f where that is not 1
    renormalised       z = FP32-tree sum of the s_i;  w_i = s_i * (f / z)

m is the largest logit and f the factor; f / z is reciprocal(z) * f. Every step is rounded to BF16.
"""

from contextlib import ExitStack

from compiler.activation import load_constant, one_over_one_plus_exp
from compiler.elementwise import walk_rows
from compiler.immediates import load_immediate
from compiler.program import Program
from compiler.registers import F0, GP0, Register
from compiler.router_logits import RouterLogits
from compiler.router_rule import Scores
from compiler.router_token import TokenPointers, rows_from, store_run

#: Ranks whose chains of dependent scalar steps run side by side.
RANKS_AT_ONCE = 4
FACTOR = "route factor"


class ExactWeights:
    """Replaces the weights that V_TOPK left for a token by those of the rule."""

    def __init__(self, prog: Program, logits: RouterLogits) -> None:
        self.prog, self.logits = prog, logits
        self.rule, self.top_k = logits.spec.rule, logits.spec.top_k
        mlen = prog.config.MLEN
        softmax = self.rule.scores is Scores.SOFTMAX
        self.summed_rows = logits.blocks if softmax else -(-self.top_k // mlen)
        self.rows = self.selected = None
        if softmax or self.rule.renormalised:
            self.rows = prog.vram.matrix("router exponentials", self.summed_rows, mlen)
        if not softmax and self.rule.renormalised:
            self.selected = prog.fp_mem.window("selected scores", self.summed_rows * mlen)
        if self.rule.factor != 1.0:
            prog.fp_mem.define(f"{FACTOR} {self.rule.factor}", self.rule.factor)

    def prepare(self) -> None:
        """Zero the slots past the selected scores once: their row is added up."""
        prog, window = self.prog, self.selected
        if window is None or window.size == self.top_k:
            return
        with prog.gp("pad slot") as slot:
            load_immediate(prog, slot, window.start + self.top_k)
            store_run(prog, F0, slot, window.size - self.top_k)

    def emit(self, token: TokenPointers, indices: Register, weights: Register) -> None:
        """The weights of the token's pairs, whose indices are there; both registers point to
        rank 0."""
        if self.rule.scores is Scores.SOFTMAX:
            self._softmax(token, indices, weights)
        elif self.rule.renormalised:
            self._renormalised_sigmoid(indices, weights)
        else:
            self._sigmoid(indices, weights)

    def _softmax(self, token: TokenPointers, indices: Register, weights: Register) -> None:
        prog, mlen = self.prog, self.prog.config.MLEN
        assert self.rows is not None
        blocks, start = self.summed_rows, self.rows.base
        with prog.fs("largest", "denominator") as (largest, scale):
            load_constant(prog, largest, "minus_infinity")
            with rows_from(prog, (token.logits, mlen)) as (row,):
                walk_rows(prog, "V_RED_MAX", [largest, row], blocks)
            with rows_from(prog, (start, mlen), (token.logits, mlen)) as (row, logit):
                walk_rows(prog, "V_SUB_VF", [row, logit, largest], blocks)
            with rows_from(prog, (start, mlen)) as (row,):
                walk_rows(prog, "V_EXP_V", [row, row], blocks)
            self._reciprocal_of_sum(scale)
            for ranks in self._chunks():
                with prog.fs(*(f"weight {rank}" for rank in ranks)) as values:
                    self._load_logits(indices, ranks, values)
                    for value in values:
                        prog.emit("S_SUB_FP", value, value, largest)
                    for value in values:
                        prog.emit("S_EXP_FP", value, value)
                    self._scale_and_store(values, scale, weights, ranks)

    def _sigmoid(self, indices: Register, weights: Register) -> None:
        prog = self.prog
        with ExitStack() as stack:
            factor = None
            if self.rule.factor != 1.0:
                factor = stack.enter_context(prog.f("factor"))
                load_constant(prog, factor, f"{FACTOR} {self.rule.factor}")
            for ranks in self._chunks():
                with prog.fs(*(f"weight {rank}" for rank in ranks)) as values:
                    self._sigmoids(indices, ranks, values)
                    self._scale_and_store(values, factor, weights, ranks)

    def _renormalised_sigmoid(self, indices: Register, weights: Register) -> None:
        prog, mlen, window = self.prog, self.prog.config.MLEN, self.selected
        assert window is not None
        assert self.rows is not None
        for ranks in self._chunks():
            with prog.fs(*(f"score {rank}" for rank in ranks)) as values:
                self._sigmoids(indices, ranks, values)
                for rank, value in zip(ranks, values, strict=True):
                    prog.emit("S_ST_FP", value, GP0, window.start + rank)
        with rows_from(prog, (self.rows.base, mlen), (window.start, mlen)) as (row, slot):
            walk_rows(prog, "S_MAP_V_FP", [row, slot, 0], self.summed_rows)
        with prog.f("denominator") as scale:
            self._reciprocal_of_sum(scale)
            for ranks in self._chunks():
                with prog.fs(*(f"weight {rank}" for rank in ranks)) as values:
                    for rank, value in zip(ranks, values, strict=True):
                        prog.emit("S_LD_FP", value, GP0, window.start + rank)
                    self._scale_and_store(values, scale, weights, ranks)

    def _chunks(self) -> list[range]:
        starts = range(0, self.top_k, RANKS_AT_ONCE)
        return [range(s, min(s + RANKS_AT_ONCE, self.top_k)) for s in starts]

    def _load_logits(self, indices: Register, ranks: range, values: tuple[Register, ...]) -> None:
        prog = self.prog
        with prog.gps(*(f"expert {rank}" for rank in ranks)) as experts:
            for rank, expert in zip(ranks, experts, strict=True):
                prog.emit("S_LD_INT", expert, indices, rank)
            for expert, value in zip(experts, values, strict=True):
                prog.emit("S_LD_FP", value, expert, self.logits.scores.start)

    def _sigmoids(self, indices: Register, ranks: range, values: tuple[Register, ...]) -> None:
        prog = self.prog
        self._load_logits(indices, ranks, values)
        with prog.f("one") as one:
            load_constant(prog, one, "one")
            for value in values:
                prog.emit("S_SUB_FP", value, F0, value)
            one_over_one_plus_exp(prog, values, one)

    def _reciprocal_of_sum(self, scale: Register) -> None:
        """scale = factor / sum of the rows."""
        prog, mlen = self.prog, self.prog.config.MLEN
        assert self.rows is not None
        prog.emit("S_ADD_FP", scale, F0, F0)
        with rows_from(prog, (self.rows.base, mlen)) as (row,):
            walk_rows(prog, "V_RED_SUM", [scale, row], self.summed_rows)
        prog.emit("S_RECI_FP", scale, scale)
        if self.rule.factor != 1.0:
            with prog.f("factor") as factor:
                load_constant(prog, factor, f"{FACTOR} {self.rule.factor}")
                prog.emit("S_MUL_FP", scale, scale, factor)

    def _scale_and_store(
        self,
        values: tuple[Register, ...],
        scale: Register | None,
        weights: Register,
        ranks: range,
    ) -> None:
        prog = self.prog
        if scale is not None:
            for value in values:
                prog.emit("S_MUL_FP", value, value, scale)
        for rank, value in zip(ranks, values, strict=True):
            prog.emit("S_ST_FP", value, weights, rank)

    def free(self) -> None:
        """Give the scratch back."""
        if self.rows is not None:
            self.prog.vram.free(self.rows)
        if self.selected is not None:
            self.prog.fp_mem.free(self.selected)
