"""Pairs in the order of their experts, decided on the machine: a counting sort without branches.

    count      how many pairs chose expert e
    scan       for e ascending: where e's rows start, padded to BLEN; e joins the active list if any
    place      pair p to the next row of its expert

There is no comparison: what depends on a count is looked up in tables that the host loads.
lowering.md section 10, "Lowering with routing known only on the device".
"""

from dataclasses import dataclass

import numpy as np

from compiler.arena import Interval
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import F0, GP0
from compiler.routed_spec import RoutedSpec, Routing
from isa import PlenaConfig


def workspace_words(config: PlenaConfig, spec: RoutedSpec, tokens: int) -> int:
    """INT_MEM words that `SortWorkspace` takes for `tokens` tokens."""
    pairs = tokens * spec.top_k
    rows = pairs + min(spec.experts, pairs) * (config.BLEN - 1)
    return pairs + 1 + rows + 3 * spec.experts + 1 + 2 * (tokens + 1) + 5


@dataclass(frozen=True, kw_only=True)
class SortWorkspace:
    """INT_MEM of the sort for at most `tokens` tokens; the sort may run again in it.

    Attributes:
        groups: [E]: counts, and after the scan groups of BLEN rows, less one.
        starts: [E]: where the next pair of an expert goes in `order`.
        active: chosen experts, ascending, and a spare word.
        order: pair of every row, expert by expert; rows that only fill a group hold `no_pair`.
        groups_of, chosen: [tokens + 1], by count: groups less one, and 1 for any count but 0.
        weights: [pairs + 1] of FP_MEM: the route weights again, and 0.0 for `no_pair`.
        token_rows: [pairs + 1]: offset of the pair's token row; the last one, of `no_pair`, is that
            of the row behind the last token.
        more_experts, more_groups: trip counts of the loops over experts and over row groups, less
            one. expert, row: the expert that is worked on, and the address of its first `order`.
        next_active: the address of the `active` word of the expert behind it.
    """

    tokens: int
    top_k: int
    groups: Interval
    starts: Interval
    active: Interval
    order: Interval
    groups_of: Interval
    chosen: Interval
    token_rows: Interval
    weights: Interval
    more_experts: int
    more_groups: int
    expert: int
    row: int
    next_active: int

    @classmethod
    def allocate(cls, prog: Program, spec: RoutedSpec, tokens: int) -> "SortWorkspace":
        """Windows and tables; CompileError when INT_MEM is too small."""
        memory, blen, mlen = prog.int_mem, prog.config.BLEN, prog.config.MLEN
        pairs = tokens * spec.top_k
        counts = np.arange(tokens + 1, dtype=np.uint32)
        rows = pairs + min(spec.experts, pairs) * (blen - 1)
        offsets = np.arange(pairs + 1, dtype=np.uint32) // spec.top_k * mlen
        groups = np.maximum((counts + blen - 1) // blen, 1) - 1
        words = memory.window("expert loop", 5)
        return cls(
            tokens=tokens,
            top_k=spec.top_k,
            groups=memory.window("expert row groups", spec.experts),
            starts=memory.window("expert starts", spec.experts),
            active=memory.window("active experts", spec.experts + 1),
            order=memory.window("row order", rows),
            groups_of=memory.table("groups of count", groups),
            chosen=memory.table("chosen by count", np.minimum(counts, 1)),
            token_rows=memory.table("token rows", offsets),
            weights=prog.fp_mem.window("row weights", pairs + 1),
            more_experts=words.start,
            more_groups=words.start + 1,
            expert=words.start + 2,
            row=words.start + 3,
            next_active=words.start + 4,
        )

    @property
    def no_pair(self) -> int:
        """The pair of a row that only fills a group."""
        return self.tokens * self.top_k


def sort_pairs(
    prog: Program, spec: RoutedSpec, workspace: SortWorkspace, routing: Routing, *, spare_row: int
) -> None:
    """Emit the sort of the pairs of `routing`; marks no stage.

    `spare_row` is the number of the row, counted from the first token of `routing`, that no pair
    uses: `no_pair` reads and writes it. Afterwards `active` has more_experts + 1 entries, and `row`
    is the address of the first row.
    """
    w = workspace
    with prog.emitter("sort pairs"):
        with prog.gp("value") as value:
            load_immediate(prog, value, spare_row * prog.config.MLEN)
            prog.emit("S_ST_INT", value, GP0, w.token_rows.start + w.no_pair)
        prog.emit("S_ST_FP", F0, GP0, w.weights.start + w.no_pair)
        _fill(prog, w.groups, 0)
        _fill(prog, w.order, w.no_pair)
        _count(prog, w, routing)
        _scan(prog, spec, w)
        _place(prog, w, routing)


def _fill(prog: Program, window: Interval, value: int) -> None:
    with prog.gps("word", "filling") as (word, filling):
        load_immediate(prog, word, window.start)
        load_immediate(prog, filling, value)
        with loop(prog, window.size, "words"):
            prog.emit("S_ST_INT", filling, word, 0)
            add_immediate(prog, word, word, 1)


def _count(prog: Program, w: SortWorkspace, routing: Routing) -> None:
    with prog.gps("index word", "expert", "count") as (word, expert, count):
        load_immediate(prog, word, routing.indices.start)
        with loop(prog, routing.pairs, "pairs"):
            prog.emit("S_LD_INT", expert, word, 0)
            add_immediate(prog, word, word, 1)
            prog.emit("S_LD_INT", count, expert, w.groups.start)
            add_immediate(prog, count, count, 1)
            prog.emit("S_ST_INT", count, expert, w.groups.start)


def _scan(prog: Program, spec: RoutedSpec, w: SortWorkspace) -> None:
    holders = ("expert", "row", "active word", "count", "groups", "chosen", "rows of a group")
    with prog.gps(*holders) as (expert, row, active, count, groups, chosen, group_rows):
        load_immediate(prog, expert, 0)
        load_immediate(prog, row, w.order.start)
        load_immediate(prog, active, w.active.start)
        load_immediate(prog, group_rows, prog.config.BLEN)
        prog.emit("S_ST_INT", row, GP0, w.row)
        with loop(prog, spec.experts, "experts"):
            prog.emit("S_LD_INT", count, expert, w.groups.start)
            prog.emit("S_ST_INT", row, expert, w.starts.start)
            prog.emit("S_LD_INT", groups, count, w.groups_of.start)
            prog.emit("S_LD_INT", chosen, count, w.chosen.start)
            prog.emit("S_ST_INT", expert, active, 0)
            prog.emit("S_ST_INT", groups, expert, w.groups.start)
            prog.emit("S_ADD_INT", active, active, chosen)
            prog.emit("S_ADD_INT", groups, groups, chosen)
            prog.emit("S_MUL_INT", groups, groups, group_rows)
            prog.emit("S_ADD_INT", row, row, groups)
            add_immediate(prog, expert, expert, 1)
        load_immediate(prog, count, w.active.start + 1)
        prog.emit("S_SUB_INT", active, active, count)
        prog.emit("S_ST_INT", active, GP0, w.more_experts)


def _place(prog: Program, w: SortWorkspace, routing: Routing) -> None:
    holders = ("pair", "expert", "row")
    with prog.gps(*holders) as (pair, expert, row), prog.f("route weight") as weight:
        load_immediate(prog, pair, 0)
        with loop(prog, routing.pairs, "pairs"):
            prog.emit("S_LD_INT", expert, pair, routing.indices.start)
            prog.emit("S_LD_INT", row, expert, w.starts.start)
            prog.emit("S_LD_FP", weight, pair, routing.weights.start)
            prog.emit("S_ST_INT", pair, row, 0)
            prog.emit("S_ST_FP", weight, pair, w.weights.start)
            add_immediate(prog, pair, pair, 1)
            add_immediate(prog, row, row, 1)
            prog.emit("S_ST_INT", row, expert, w.starts.start)
