"""Group-limited routing: only experts of the best groups stay in the choice.

Every group is ranked by its best score, or by the sum of its two best; V_TOPK over the groups'
scores keeps some; the lanes of the others are pushed below every score, by an addition that is
exact (+0.0) in the lanes that stay. Expert numbers stay lane numbers throughout.
"""

from contextlib import ExitStack
from dataclasses import dataclass

from compiler.activation import load_constant, one_over_one_plus_exp
from compiler.elementwise import RowPointer, walk_rows
from compiler.errors import require
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import F0, GP0, Register
from compiler.router_choice import CorrectedChoice
from compiler.router_logits import RouterLogits
from compiler.router_rule import GroupScore
from compiler.router_token import Start, point, rows_from, store_run
from compiler.topk import emit_topk

#: Lifts the lanes of a group above those of all others. Any score vanishes beside it.
LIFT = 2.0**120
#: Chains of dependent scalar steps that run side by side.
MAXIMA_AT_ONCE = 6
PAIRS_AT_ONCE = 2


@dataclass(frozen=True)
class _Span:
    """The rows of a token that a group has lanes in: the first, their number, lanes to rank."""

    first: int
    rows: int
    lanes: int


class RouterGroups:
    """Group scores and masks of one router; see the module for the method.

    Raises:
        CompileError: a shape that V_TOPK cannot select.
    """

    def __init__(self, prog: Program, logits: RouterLogits, choice: CorrectedChoice | None) -> None:
        self.prog, self.logits, self.choice = prog, logits, choice
        mlen, blocks, spec = prog.config.MLEN, logits.blocks, logits.spec
        limit = prog.config.TOPK_MAX
        require(
            max(2, spec.rule.kept_groups) <= limit,
            f"kept_groups = {spec.rule.kept_groups}",
            f"V_TOPK selects them, and two of a group: TOPK_MAX = {limit} is too small",
            f"raise TOPK_MAX of configuration {prog.config.name!r}",
        )
        self.rule, self.size = spec.rule, spec.group_size
        self.spans = []
        for group in range(self.rule.groups):
            first, end = group * self.size // mlen, -(-(group + 1) * self.size // mlen)
            lanes = min(end * mlen, spec.experts) - first * mlen
            self.spans.append(_Span(first, end - first, lanes))
        self.span = max(span.rows for span in self.spans)
        groups, vram = self.rule.groups, prog.vram
        # Row g * blocks + b of lifts: LIFT in the lanes of group g, 0 in the others.
        self.lifts = vram.matrix("group lifts", groups * blocks, mlen)
        # For the rows of group g's span: 0 in its lanes, -LIFT in the others.
        self.penalties = vram.matrix("group penalties", groups * self.span, mlen)
        self.rows = vram.matrix("group rows", groups * self.span, mlen)
        self.masked = vram.matrix("kept groups", blocks, mlen)
        score_rows = -(-groups // mlen)
        self.score_rows = vram.matrix("group scores", score_rows, mlen)
        self.scores = prog.fp_mem.window("group scores", score_rows * mlen)
        self.best = prog.int_mem.window("best of the groups", 2 * groups)
        self.kept = prog.int_mem.window("kept groups", self.rule.kept_groups)
        # V_TOPK writes weights; those of groups mean nothing.
        self.unused = prog.fp_mem.window("unused weights", max(2, self.rule.kept_groups))
        prog.fp_mem.define("lift", LIFT)
        prog.fp_mem.define("minus lift", -LIFT)

    def prepare(self) -> None:
        """Build lifts and penalties once, in the token's score slots: before the pads are set."""
        prog, mlen, scores = self.prog, self.prog.config.MLEN, self.logits.scores
        with prog.f("lift") as lift, ExitStack() as stack:
            load_constant(prog, lift, "lift")
            slot, clear, row = stack.enter_context(prog.gps("slot", "cleared slot", "lift row"))
            load_immediate(prog, slot, scores.start)
            store_run(prog, F0, slot, scores.size)
            load_immediate(prog, slot, scores.start)
            load_immediate(prog, clear, scores.start)
            load_immediate(prog, row, self.lifts.base)
            with loop(prog, self.rule.groups, "groups"):
                store_run(prog, lift, slot, self.size)
                lifts = RowPointer(row, mlen)
                with rows_from(prog, (scores.start, mlen)) as (block,):
                    walk_rows(prog, "S_MAP_V_FP", [lifts, block, 0], self.logits.blocks)
                lifts.settle(prog)
                store_run(prog, F0, clear, self.size)
            load_constant(prog, lift, "minus lift")
            for group, span in enumerate(self.spans):
                target = self.penalties.row_address(group * self.span)
                source = self.lifts.row_address(group * self.logits.blocks + span.first)
                with rows_from(prog, (target, mlen), (source, mlen)) as (penalty, lifted):
                    walk_rows(prog, "V_ADD_VF", [penalty, lifted, lift], span.rows)

    def emit(self, ranked: Start) -> int:
        """Mask the scores in the rows from `ranked`; the address of the masked rows."""
        prog, mlen = self.prog, self.prog.config.MLEN
        for group, span in enumerate(self.spans):
            row = group * self.span
            with (
                rows_from(
                    prog,
                    (self.rows.row_address(row), mlen),
                    (self.penalties.row_address(row), mlen),
                ) as (target, penalty),
                prog.gp("ranked row") as register,
            ):
                if isinstance(ranked, Register):
                    add_immediate(prog, register, ranked, span.first * mlen)
                else:
                    point(prog, register, ranked + span.first * mlen)
                source = RowPointer(register, mlen)
                walk_rows(prog, "V_ADD_VV", [target, source, penalty], span.rows)
        if self.rule.group_score is GroupScore.MAXIMUM:
            self._maxima()
        else:
            self._top_two()
        self._keep()
        self._mask(ranked)
        return self.masked.base

    def _maxima(self) -> None:
        """The best score of every group into its slot."""
        prog, mlen = self.prog, self.prog.config.MLEN
        for first in range(0, self.rule.groups, MAXIMA_AT_ONCE):
            groups = range(first, min(first + MAXIMA_AT_ONCE, self.rule.groups))
            with prog.fs(*(f"maximum {g}" for g in groups)) as maxima:
                for maximum in maxima:
                    load_constant(prog, maximum, "minus_infinity")
                for group, maximum in zip(groups, maxima, strict=True):
                    start = self.rows.row_address(group * self.span)
                    with rows_from(prog, (start, mlen)) as (row,):
                        walk_rows(prog, "V_RED_MAX", [maximum, row], self.spans[group].rows)
                for group, maximum in zip(groups, maxima, strict=True):
                    prog.emit("S_ST_FP", maximum, GP0, self.scores.start + group)

    def _top_two(self) -> None:
        """The sum of every group's two best scores into its slot.

        V_TOPK finds the two; their scores are computed again from the logits, by the same steps as
        in the rows, since a lane of a row cannot be read.
        """
        prog = self.prog
        assert self.choice is not None
        with prog.gps("unused weights", "group row", "best") as (weights, row, best):
            load_immediate(prog, weights, self.unused.start)
            for group, span in enumerate(self.spans):
                load_immediate(prog, row, self.rows.row_address(group * self.span))
                load_immediate(prog, best, self.best.start + 2 * group)
                emit_topk(prog, span.lanes, 2, logits=row, indices=best, weights=weights)
        for first in range(0, self.rule.groups, PAIRS_AT_ONCE):
            self._pair_sums(range(first, min(first + PAIRS_AT_ONCE, self.rule.groups)))

    def _pair_sums(self, groups: range) -> None:
        prog, mlen = self.prog, self.prog.config.MLEN
        assert self.choice is not None
        names = [f"{rank} of {group}" for group in groups for rank in ("first", "second")]
        offsets = [self.spans[group].first * mlen for group in groups for _ in range(2)]
        with (
            prog.gps(*names) as experts,
            prog.fs(*names) as scores,
            prog.fs("one", "correction") as (one, bias),
        ):
            load_constant(prog, one, "one")
            for number, expert in enumerate(experts):
                prog.emit("S_LD_INT", expert, GP0, self.best.start + 2 * groups[0] + number)
            logit, correction = self.logits.scores.start, self.choice.correction.start
            for score, expert, offset in zip(scores, experts, offsets, strict=True):
                prog.emit("S_LD_FP", score, expert, logit + offset)
            one_over_one_plus_exp(prog, scores, one)
            for score, expert, offset in zip(scores, experts, offsets, strict=True):
                prog.emit("S_LD_FP", bias, expert, correction + offset)
                prog.emit("S_SUB_FP", score, bias, score)
            for number, group in enumerate(groups):
                pair = scores[2 * number], scores[2 * number + 1]
                prog.emit("S_ADD_FP", pair[0], *pair)
                prog.emit("S_ST_FP", pair[0], GP0, self.scores.start + group)

    def _keep(self) -> None:
        """The numbers of the best groups into `kept`."""
        prog, mlen = self.prog, self.prog.config.MLEN
        runs = (self.score_rows.base, mlen), (self.scores.start, mlen)
        with rows_from(prog, *runs) as (row, slot):
            walk_rows(prog, "S_MAP_V_FP", [row, slot, 0], self.score_rows.rows)
        with prog.gps("unused weights", "group scores", "kept groups") as (weights, row, kept):
            load_immediate(prog, weights, self.unused.start)
            load_immediate(prog, row, self.score_rows.base)
            load_immediate(prog, kept, self.kept.start)
            emit_topk(
                prog,
                self.rule.groups,
                self.rule.kept_groups,
                logits=row,
                indices=kept,
                weights=weights,
            )

    def _mask(self, ranked: Start) -> None:
        """masked = scores + (sum of the kept groups' lifts - LIFT)."""
        prog, mlen, blocks = self.prog, self.prog.config.MLEN, self.logits.blocks
        with prog.f("minus lift") as lift, prog.gps("group size", "lift row") as (step, group):
            load_constant(prog, lift, "minus lift")
            load_immediate(prog, step, blocks * mlen)
            for number in range(self.rule.kept_groups):
                prog.emit("S_LD_INT", group, GP0, self.kept.start + number)
                prog.emit("S_MUL_INT", group, group, step)
                add_immediate(prog, group, group, self.lifts.base)
                with rows_from(prog, (self.masked.base, mlen)) as (mask,):
                    lifted = RowPointer(group, mlen)
                    if number:
                        walk_rows(prog, "V_ADD_VV", [mask, mask, lifted], blocks)
                    else:
                        walk_rows(prog, "V_ADD_VF", [mask, lifted, lift], blocks)
        with rows_from(prog, (self.masked.base, mlen), (ranked, mlen)) as (mask, score):
            walk_rows(prog, "V_ADD_VV", [mask, mask, score], blocks)

    def free(self) -> None:
        """Give the scratch back."""
        prog = self.prog
        prog.vram.free(self.lifts, self.penalties, self.rows, self.masked, self.score_rows)
        prog.fp_mem.free(self.scores, self.unused)
        prog.int_mem.free(self.best, self.kept)
