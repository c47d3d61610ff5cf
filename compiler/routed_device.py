"""The routed branch, expert-major, with routing that only the machine knows.

    sort the pairs by expert
    for each active expert (a trip count of the machine):
        its number, and that of the next one; gather its rows
        gate, up, activation, down over its row groups
        fetch the first weights of the next one
        per row: times route weight, scatter-add

One program for any routing of its shape. An expert's weights are loaded once, and one panel more
behind the last expert; experts that nobody chose cost one step of the sort. Rows that only fill a
group of BLEN are a zero row of x, have weight 0 and are added to a spare row.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from compiler.elementwise import RowGroups, zero_rows
from compiler.errors import CompileError
from compiler.expert_sort import SortWorkspace, restore_tables, sort_pairs
from compiler.immediates import add_immediate, load_immediate
from compiler.linear import Panels
from compiler.loops import loop, loop_to, loop_while
from compiler.program import Program
from compiler.registers import F0, GP0, Register
from compiler.routed_expert import ExpertBuffers, ExpertEmitter, RoutedParameters
from compiler.routed_experts import Accumulation
from compiler.routed_spec import RoutedSpec, Routing
from compiler.seed_projection import ColumnLoads
from compiler.vram import VramMatrix

#: Rows of a group whose pairs are in registers at once.
ROWS_AT_ONCE = 4


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
    The FP_MEM slot behind the weights of `routing` is borrowed.
    """
    if isinstance(panels, ColumnLoads):
        raise CompileError(
            "routed experts: the seed's form takes a number of rows that the compiler knows (use "
            "the buffered form)"
        )
    w = workspace
    emitter = _Device(prog, spec, routing, w, x.view(first, routing.tokens))
    zero_rows(prog, x.view(spare_row, 1), stage="gather", rows=1)
    sort_pairs(prog, spec, w, routing, spare_row=spare_row - first)
    target = accumulator.view(first, routing.tokens)
    kept = None
    if order is Accumulation.PAIR:
        kept = prog.vram.matrix("pairs", routing.pairs, spec.hidden, spare_rows=1)
    rows = RowGroups(w.extent, routing.tokens)
    buffers = ExpertBuffers(prog, spec, rows)
    experts = ExpertEmitter(prog, spec, parameters, panels, buffers)
    label = "rows of the expert"
    _, up, down = experts.weights(w.expert, "the expert of this turn")
    gate = experts.weights(w.next_expert, "the first expert")[0]
    following = experts.weights(w.next_expert, "the expert of the next turn")[0]
    # In every turn the gate comes to the same panel: after an odd number of them, to a third one,
    # or, without room for that, to the one that down used last.
    odd = panels.fetches(down) % 2 == 1
    spare = panels.spare_panel(gate, up, down) if odd else None
    if spare is not None:
        panels.place(gate, spare)
    with emitter.weight_of_none():
        panel = experts.fetch_ahead(gate, label)
        panels.place(following, panel)
        with loop_while(prog, "active experts") as again:
            prog.stage("gather", "the expert of this turn")
            emitter.next_expert()
            prog.stage("gather", label)
            emitter.gather(buffers.slot)
            under = not odd or spare is not None
            then = following if under else None
            experts.emit((gate, up, down), w.expert, label, rows=rows, then=then)
            if not under:
                panels.fetch_ahead(following)
            emitter.collect(buffers.out, target if kept is None else kept, kept=kept is not None)
            emitter.another(again)
        panels.forget_ahead()
    buffers.free(prog)
    if kept is not None:
        prog.stage("scatter_combine", "all pairs in rank order")
        _add_kept(prog, target, kept, routing)
        prog.vram.free(kept)
    prog.stage("gather", "end of the sort")
    restore_tables(prog, w, routing)


class _Device:
    """The parts of the loop over experts that work on single rows."""

    def __init__(
        self, prog: Program, spec: RoutedSpec, routing: Routing, w: SortWorkspace, x: VramMatrix
    ) -> None:
        self._prog, self._spec, self._routing, self._w, self._x = prog, spec, routing, w, x

    @contextmanager
    def weight_of_none(self) -> Iterator[None]:
        """The weight of `none` is 0.0 inside; its slot may be that of a later token's weight."""
        prog, slot = self._prog, self._routing.weight_slot(self._routing.pairs)
        with prog.f("weight behind the last one") as behind:
            prog.stage("expert_route_weight", "of rows without a pair")
            prog.emit("S_LD_FP", behind, GP0, slot)
            prog.emit("S_ST_FP", F0, GP0, slot)
            yield
            prog.stage("expert_route_weight", "of rows without a pair")
            prog.emit("S_ST_FP", behind, GP0, slot)

    def next_expert(self) -> None:
        """Go to the next active expert."""
        prog, w = self._prog, self._w
        holders = ("active word", "expert", "next expert")
        with prog.emitter("next expert"), prog.gps(*holders) as (active, expert, following):
            prog.emit("S_LD_INT", active, GP0, w.next_active)
            add_immediate(prog, active, active, 1)
            prog.emit("S_LD_INT", expert, GP0, w.next_expert)
            prog.emit("S_LD_INT", following, active, 0)
            prog.emit("S_ST_INT", active, GP0, w.next_active)
            prog.emit("S_ST_INT", expert, GP0, w.expert)
            prog.emit("S_ST_INT", following, GP0, w.next_expert)

    def another(self, again: Register) -> None:
        """gp[again] = 1 and the experts that are left."""
        prog, w = self._prog, self._w
        with prog.gp("active word") as active:
            prog.emit("S_LD_INT", again, GP0, w.stop)
            prog.emit("S_LD_INT", active, GP0, w.next_active)
            prog.emit("S_SUB_INT", again, again, active)

    def _first_pair(self, pair: Register) -> None:
        """gp[pair] = the first pair of the expert's chain."""
        self._prog.emit("S_LD_INT", pair, GP0, self._w.expert)
        self._prog.emit("S_LD_INT", pair, pair, self._w.heads.start)

    def gather(self, slot: VramMatrix) -> None:
        """slot = the x rows of the expert's pairs, in order; times their weights, where those
        belong to the input. INT_MEM[extent] is what they take."""
        prog, w = self._prog, self._w
        with prog.emitter("gather"), prog.gps("pair", "slot row", "bound") as (pair, row, bound):
            load_immediate(prog, bound, self._routing.pairs + 1)
            load_immediate(prog, row, slot.base)
            self._first_pair(pair)
            with loop_while(prog, "row groups") as again:
                for start in range(0, prog.config.BLEN, ROWS_AT_ONCE):
                    count = min(ROWS_AT_ONCE, prog.config.BLEN - start)
                    self._gather_rows(slot, row, pair, start, count)
                add_immediate(prog, row, row, prog.config.BLEN * slot.mlen)
                prog.emit("S_SUB_INT", again, bound, pair)
            load_immediate(prog, bound, slot.base)
            prog.emit("S_SUB_INT", row, row, bound)
            prog.emit("S_ST_INT", row, GP0, w.extent)

    def _gather_rows(
        self, slot: VramMatrix, group: Register, pair: Register, start: int, count: int
    ) -> None:
        """Rows start .. start + count - 1 of the group at gp[group]; gp[pair] moves on."""
        prog, w, x = self._prog, self._w, self._x
        with ExitStack() as stack:
            token, row = stack.enter_context(prog.gps("token row", "row"))
            weights: tuple[Register, ...] = ()
            if self._spec.scale_input:
                names = [f"route weight {i}" for i in range(count)]
                weights = stack.enter_context(prog.fs(*names))
            for i in range(count):
                prog.emit("S_LD_INT", token, pair, w.token_rows.start)
                if weights:
                    prog.stage("expert_route_weight", "rows of the expert")
                    prog.emit("S_LD_FP", weights[i], pair, self._routing.weights.start)
                    prog.stage("gather", "rows of the expert")
                prog.emit("S_LD_INT", pair, pair, w.following.start)
                add_immediate(prog, token, token, x.base)
                for block in range(slot.blocks):
                    step = (start + i) * slot.mlen + block * slot.block_step
                    add_immediate(prog, row, group, step)
                    prog.emit("V_ADD_VF", row, token, F0)
                    if block + 1 < slot.blocks:
                        add_immediate(prog, token, token, x.block_step)
            if weights:
                prog.stage("expert_route_weight", "rows of the expert")
                for block in range(slot.blocks):
                    for i, weight in enumerate(weights):
                        step = (start + i) * slot.mlen + block * slot.block_step
                        add_immediate(prog, row, group, step)
                        prog.emit("V_MUL_VF", row, row, weight)
                prog.stage("gather", "rows of the expert")

    def collect(self, out: VramMatrix, target: VramMatrix, *, kept: bool) -> None:
        """Every out row times its weight, unless that belongs to the input, and added to the token
        row of the accumulator `target`; or, `kept`, put to the row of its pair in `target`."""
        prog, blen = self._prog, self._prog.config.BLEN
        prog.stage("scatter_combine", "rows of the expert")
        with prog.emitter("collect"), prog.gps("pair", "out row") as (pair, group):
            self._first_pair(pair)
            load_immediate(prog, group, out.base)
            with loop_to(prog, group, self._w.extent, "row groups"):
                for start in range(0, blen, ROWS_AT_ONCE):
                    count = min(ROWS_AT_ONCE, blen - start)
                    self._collect_rows(out, target, group, pair, start, count, kept)
                add_immediate(prog, group, group, blen * out.mlen)

    def _collect_rows(
        self,
        out: VramMatrix,
        target: VramMatrix,
        group: Register,
        pair: Register,
        start: int,
        count: int,
        kept: bool,
    ) -> None:
        prog, weighed = self._prog, not self._spec.scale_input
        with ExitStack() as stack:
            rows = stack.enter_context(prog.gps(*(f"row {i}" for i in range(count))))
            targets = stack.enter_context(prog.gps(*(f"target row {i}" for i in range(count))))
            weights: tuple[Register, ...] = ()
            if weighed:
                weights = stack.enter_context(prog.fs(*(f"weight {i}" for i in range(count))))
                prog.stage("expert_route_weight", "rows of the expert")
            for i, here in enumerate(targets):
                if i:
                    prog.emit("S_LD_INT", here, targets[i - 1], self._w.following.start)
                else:
                    add_immediate(prog, here, pair, 0)
                if weighed:
                    prog.emit("S_LD_FP", weights[i], here, self._routing.weights.start)
            prog.stage("scatter_combine", "rows of the expert")
            prog.emit("S_LD_INT", pair, targets[-1], self._w.following.start)
            self._point(targets, target, rows[0], kept)
            for block in range(out.blocks):
                for i, row in enumerate(rows):
                    step = (start + i) * out.mlen + block * out.block_step
                    add_immediate(prog, row, group, step)
                if weighed:
                    prog.stage("expert_route_weight", "rows of the expert")
                    for i, row in enumerate(rows):
                        written = targets[i] if kept else row
                        prog.emit("V_MUL_VF", written, row, weights[i])
                    prog.stage("scatter_combine", "rows of the expert")
                for i, row in enumerate(rows):
                    if not kept:
                        prog.emit("V_ADD_VV", targets[i], targets[i], row)
                    elif not weighed:
                        prog.emit("V_ADD_VF", targets[i], row, F0)
                if block + 1 < out.blocks:
                    for row in targets:
                        add_immediate(prog, row, row, target.block_step)

    def _point(
        self, pairs: tuple[Register, ...], target: VramMatrix, spare: Register, kept: bool
    ) -> None:
        """gp[pairs] = the addresses of the pairs' token rows in `target`, or of their own rows."""
        prog = self._prog
        if kept:
            load_immediate(prog, spare, target.mlen)
        for pair in pairs:
            if kept:
                prog.emit("S_MUL_INT", pair, pair, spare)
            else:
                prog.emit("S_LD_INT", pair, pair, self._w.token_rows.start)
        for pair in pairs:
            add_immediate(prog, pair, pair, target.base)


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
