"""The routed branch, expert-major, with routing that only the machine knows.

    sort the pairs by expert
    for each active expert (a trip count of the machine):
        its number, its groups of rows; address; gather its rows
        gate, up, activation, down over its row groups
        per row: times route weight, scatter-add

One program for any routing of its shape. An expert's weights are loaded once; experts that nobody
chose cost one step of the sort. Rows that only fill a group of BLEN are a zero row of x, have
weight 0 and are added to a spare row.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.elementwise import RowGroups, zero_rows
from compiler.expert_sort import SortWorkspace, sort_pairs
from compiler.immediates import add_immediate, load_immediate
from compiler.linear import Panels
from compiler.loops import loop, loop_by_word
from compiler.program import Program
from compiler.registers import F0, GP0, Register
from compiler.routed_expert import ExpertBuffers, ExpertEmitter, RoutedParameters
from compiler.routed_experts import Accumulation
from compiler.routed_spec import RoutedSpec, Routing
from compiler.vram import VramMatrix

#: Token rows of a group whose addresses are in registers at once.
TOKENS_AT_ONCE = 4


def emit_routed_on_device(
    prog: Program,
    spec: RoutedSpec,
    parameters: RoutedParameters,
    panels: Panels,
    routing: Routing,
    workspace: SortWorkspace,
    *,
    x: VramMatrix,
    accumulator: VramMatrix,
    first: int,
    spare_row: int,
    order: Accumulation,
) -> None:
    """Emit accumulator row += sum of weight * expert(x row) for the tokens of `routing`.

    They are rows first .. first + routing.tokens - 1 of x and of the accumulator, which has been
    zeroed. Row `spare_row` of both is nobody's: it is zeroed in x, and written in the accumulator.
    """
    emitter = _Device(prog, spec, routing, workspace, x.view(first, routing.tokens), order)
    emitter.start(x.view(spare_row, 1), spare_row - first)
    target = accumulator.view(first, routing.tokens)
    kept = None
    if order is Accumulation.PAIR:
        kept = prog.vram.matrix("pairs", routing.pairs, spec.hidden, spare_rows=1)
    buffers = ExpertBuffers(prog, spec, routing.tokens)
    experts = ExpertEmitter(prog, spec, parameters, panels, buffers)
    rows = RowGroups(workspace.more_groups, routing.tokens)
    with loop_by_word(prog, workspace.more_experts, "active experts"):
        prog.stage("gather", "rows of the next expert")
        emitter.next_expert()
        weights = experts.weights(workspace.expert, "the expert of this turn")
        experts.fetch_ahead(weights[0], "gate and up")
        prog.stage("gather", "rows of the expert")
        emitter.gather(buffers.slot)
        if spec.scale_input:
            prog.stage("expert_route_weight", "rows of the expert")
            emitter.weigh(buffers.slot)
        experts.emit(weights, workspace.expert, "rows of the expert", rows=rows)
        if not spec.scale_input:
            prog.stage("expert_route_weight", "rows of the expert")
            emitter.weigh(buffers.out)
        prog.stage("scatter_combine", "rows of the expert")
        if kept is None:
            emitter.scatter(target, buffers.out)
        else:
            emitter.keep(kept, buffers.out)
        emitter.finish_expert()
    buffers.free(prog)
    if kept is not None:
        prog.stage("scatter_combine", "all pairs in rank order")
        _add_kept(prog, target, kept, routing)
        prog.vram.free(kept)


class _Device:
    """The parts of the loop over experts that work on single rows."""

    def __init__(
        self,
        prog: Program,
        spec: RoutedSpec,
        routing: Routing,
        workspace: SortWorkspace,
        x: VramMatrix,
        order: Accumulation,
    ) -> None:
        self._prog, self._spec, self._routing, self._w = prog, spec, routing, workspace
        self._x, self._order = x, order

    def start(self, zero_row: VramMatrix, spare_row: int) -> None:
        """Zero row, sort."""
        prog, w = self._prog, self._w
        zero_rows(prog, zero_row, stage="gather", rows=1)
        sort_pairs(prog, self._spec, w, self._routing, spare_row=spare_row)
        with prog.gp("active word") as active:
            load_immediate(prog, active, w.active.start)
            prog.emit("S_ST_INT", active, GP0, w.next_active)

    def next_expert(self) -> None:
        """The number of the next active expert, and its row groups."""
        prog, w = self._prog, self._w
        with prog.emitter("next expert"), prog.gps("active word", "expert") as (active, expert):
            prog.emit("S_LD_INT", active, GP0, w.next_active)
            prog.emit("S_LD_INT", expert, active, 0)
            add_immediate(prog, active, active, 1)
            prog.emit("S_ST_INT", active, GP0, w.next_active)
            prog.emit("S_ST_INT", expert, GP0, w.expert)
            prog.emit("S_LD_INT", active, expert, w.groups.start)
            prog.emit("S_ST_INT", active, GP0, w.more_groups)

    def finish_expert(self) -> None:
        """Go to the first row of the next expert."""
        prog, w = self._prog, self._w
        with prog.gps("row word", "row groups", "rows of a group") as (row, groups, group_rows):
            prog.emit("S_LD_INT", row, GP0, w.row)
            prog.emit("S_LD_INT", groups, GP0, w.more_groups)
            load_immediate(prog, group_rows, prog.config.BLEN)
            prog.emit("S_MUL_INT", groups, groups, group_rows)
            prog.emit("S_ADD_INT", row, row, groups)
            prog.emit("S_ADD_INT", row, row, group_rows)
            prog.emit("S_ST_INT", row, GP0, w.row)

    @contextmanager
    def _groups(self, matrix: VramMatrix) -> Iterator[tuple[Register, Register]]:
        """A loop over row groups: the address of the group's first pair, and its row in `matrix`;
        both are advanced at the end."""
        prog, blen = self._prog, self._prog.config.BLEN
        with prog.gps("row word", f"{matrix.name} rows") as (word, rows):
            prog.emit("S_LD_INT", word, GP0, self._w.row)
            load_immediate(prog, rows, matrix.base)
            with loop_by_word(prog, self._w.more_groups, "row groups"):
                yield word, rows
                add_immediate(prog, word, word, blen)
                add_immediate(prog, rows, rows, blen * matrix.mlen)

    def _token_rows(self, word: Register, rows: tuple[Register, ...], matrix: VramMatrix) -> None:
        """gp[rows] = the addresses in `matrix` of the tokens of the group's pairs."""
        prog = self._prog
        for i, row in enumerate(rows):
            prog.emit("S_LD_INT", row, word, i)
        for row in rows:
            prog.emit("S_LD_INT", row, row, self._w.token_rows.start)
        for row in rows:
            add_immediate(prog, row, row, matrix.base)

    def gather(self, slot: VramMatrix) -> None:
        """slot = the x rows of the expert's pairs, in order."""
        self._move("gather", "V_ADD_VF", slot, self._x, to_slot=True)

    def scatter(self, accumulator: VramMatrix, out: VramMatrix) -> None:
        """accumulator row += out row, of every pair of the expert."""
        self._move("scatter", "V_ADD_VV", out, accumulator, to_slot=False)

    def _move(
        self, name: str, mnemonic: str, slot: VramMatrix, tokens: VramMatrix, *, to_slot: bool
    ) -> None:
        prog, blen = self._prog, self._prog.config.BLEN
        holders = [f"token row {i}" for i in range(min(blen, TOKENS_AT_ONCE))]
        with prog.emitter(name), self._groups(slot) as (word, group):
            with prog.gps("row", "first row", *holders) as (row, first, *rows):
                for start in range(0, blen, len(rows)):
                    add_immediate(prog, first, word, start)
                    self._token_rows(first, tuple(rows), tokens)
                    add_immediate(prog, first, group, start * slot.mlen)
                    for block in range(slot.blocks):
                        add_immediate(prog, row, first, block * slot.block_step)
                        for i, token in enumerate(rows):
                            if to_slot:
                                prog.emit(mnemonic, row, token, F0)
                            else:
                                prog.emit(mnemonic, token, token, row)
                            if i + 1 < len(rows):
                                add_immediate(prog, row, row, slot.mlen)
                            if block + 1 < slot.blocks:
                                add_immediate(prog, token, token, tokens.block_step)

    def weigh(self, target: VramMatrix) -> None:
        """target row *= route weight, of every pair of the expert."""
        prog, blen = self._prog, self._prog.config.BLEN
        with prog.emitter("route weight"), self._groups(target) as (word, group):
            with prog.gps("row", "pair") as (row, pair), prog.f("route weight") as weight:
                for i in range(blen):
                    prog.emit("S_LD_INT", pair, word, i)
                    prog.emit("S_LD_FP", weight, pair, self._w.weights.start)
                    for block in range(target.blocks):
                        step = block * target.block_step + i * target.mlen
                        add_immediate(prog, row, group, step)
                        prog.emit("V_MUL_VF", row, row, weight)

    def keep(self, kept: VramMatrix, out: VramMatrix) -> None:
        """kept row p = out row, of every pair p of the expert."""
        prog, blen = self._prog, self._prog.config.BLEN
        with prog.emitter("keep pairs"), self._groups(out) as (word, group):
            with prog.gps("row", "pair", "row step") as (row, pair, step):
                load_immediate(prog, step, kept.mlen)
                for i in range(blen):
                    prog.emit("S_LD_INT", pair, word, i)
                    prog.emit("S_MUL_INT", pair, pair, step)
                    add_immediate(prog, pair, pair, kept.base)
                    for block in range(out.blocks):
                        add_immediate(prog, row, group, block * out.block_step + i * out.mlen)
                        prog.emit("V_ADD_VF", pair, row, F0)
                        if block + 1 < out.blocks:
                            add_immediate(prog, pair, pair, kept.block_step)


def _add_kept(prog: Program, accumulator: VramMatrix, kept: VramMatrix, routing: Routing) -> None:
    """accumulator row t += the kept rows of its pairs, in rank order."""
    with prog.emitter("combine pairs"), prog.gps("token row", "pair row") as (token, pair):
        for block in range(accumulator.blocks):
            load_immediate(prog, token, accumulator.row_address(0, block))
            load_immediate(prog, pair, kept.row_address(0, block))
            with loop(prog, routing.tokens, "tokens"):
                for _ in range(routing.top_k):
                    prog.emit("V_ADD_VV", token, token, pair)
                    add_immediate(prog, pair, pair, kept.mlen)
                add_immediate(prog, token, token, accumulator.mlen)
