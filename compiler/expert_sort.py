"""Pairs by expert, decided on the machine without branches: a chain of pairs for every expert.

    chain   pair p in front of the others of its expert e: following[p] = heads[e], heads[e] = p
    scan    for e ascending: e joins the active list if its chain has a pair

A chain ends with `none`, the pair behind the last one, which follows itself: walking on from there
is harmless. There is no comparison: what depends on whether there is a pair is looked up in a table
that the host loads. A chain has its pairs descending, which does not show in the result, since a
token chooses an expert once. lowering.md section 10, "Lowering with routing known only on the
device", has a counting sort in its place, which takes more words and more time.
"""

from dataclasses import dataclass

import numpy as np

from compiler.arena import Interval
from compiler.immediates import add_immediate, load_immediate
from compiler.loops import loop
from compiler.program import Program
from compiler.registers import GP0, Register
from compiler.routed_spec import RoutedSpec, Routing

#: Pairs, experts or words per loop body.
UNROLL = 8
#: Pairs whose experts are in registers at once.
PAIRS_AT_ONCE = 4
#: Words of the loop over the active experts.
_LOOP_WORDS = 5


def _sizes(spec: RoutedSpec, tokens: int) -> dict[str, int]:
    """INT_MEM words of every part of a workspace."""
    pairs = tokens * spec.top_k
    return {
        "expert loop": _LOOP_WORDS,
        "expert heads": spec.experts,
        "active experts": min(spec.experts, pairs) + 1,
        "following pairs": pairs + 1,
        "pair or none": pairs + 1,
        "token rows": pairs + 1,
    }


def workspace_words(spec: RoutedSpec, tokens: int) -> int:
    """INT_MEM words that `SortWorkspace` takes for `tokens` tokens."""
    return sum(_sizes(spec, tokens).values())


@dataclass(frozen=True, kw_only=True)
class SortWorkspace:
    """INT_MEM of the sort for at most `tokens` tokens; the sort may run again in it.

    Attributes:
        heads: [E]: the first pair of an expert's chain, or `none`.
        following: [pairs + 1]: the next pair of the same chain.
        active: chosen experts, ascending, and a spare word: another expert that exists.
        is_pair: [pairs + 1], by pair: 1, and 0 for `none`.
        token_rows: [pairs + 1]: offset of the pair's token row from that of the first token.
        next_active: the address of the `active` word of the expert that comes next; stop: one more
            than the address of the spare word.
        expert, next_expert: the one that is worked on, and the one behind it.
        extent: elements of a column block that the expert's row groups take.
    """

    tokens: int
    top_k: int
    heads: Interval
    following: Interval
    active: Interval
    is_pair: Interval
    token_rows: Interval
    next_active: int
    stop: int
    expert: int
    next_expert: int
    extent: int

    @classmethod
    def allocate(cls, prog: Program, spec: RoutedSpec, tokens: int) -> "SortWorkspace":
        """Windows and tables; CompileError when INT_MEM is too small."""
        sizes, memory = _sizes(spec, tokens), prog.int_mem

        def window(name: str) -> Interval:
            return memory.window(name, sizes[name])

        pairs = np.arange(sizes["token rows"], dtype=np.uint32)
        words = window("expert loop").start
        return cls(
            tokens=tokens,
            top_k=spec.top_k,
            heads=window("expert heads"),
            following=window("following pairs"),
            active=window("active experts"),
            is_pair=memory.table("pair or none", pairs < pairs[-1]),
            token_rows=memory.table("token rows", pairs // spec.top_k * prog.config.MLEN),
            next_active=words,
            stop=words + 1,
            expert=words + 2,
            next_expert=words + 3,
            extent=words + 4,
        )


def sort_pairs(
    prog: Program, spec: RoutedSpec, workspace: SortWorkspace, routing: Routing, *, spare_row: int
) -> None:
    """Emit the sort of the pairs of `routing`; marks no stage.

    `spare_row` is the number of the row, counted from the first token of `routing`, that no pair
    uses: `none`, which is pair number routing.pairs, reads and writes it. Its weight, the slot
    behind the weights of `routing`, is the caller's. `restore_tables` takes back what is changed.
    """
    w, none = workspace, routing.pairs
    with prog.emitter("sort pairs"):
        with prog.gp("value") as value:
            load_immediate(prog, value, spare_row * prog.config.MLEN)
            prog.emit("S_ST_INT", value, GP0, w.token_rows.start + none)
            prog.emit("S_ST_INT", GP0, GP0, w.is_pair.start + none)
            load_immediate(prog, value, none)
            prog.emit("S_ST_INT", value, GP0, w.following.start + none)
            _fill(prog, w.heads, value)
        _chain(prog, w, routing)
        _scan(prog, spec, w)


def restore_tables(prog: Program, workspace: SortWorkspace, routing: Routing) -> None:
    """Emit what makes `none` of a smaller `routing` a pair again; marks no stage."""
    w, none = workspace, routing.pairs
    if routing.tokens == w.tokens:
        return
    with prog.emitter("sort pairs"), prog.gp("value") as value:
        load_immediate(prog, value, none // w.top_k * prog.config.MLEN)
        prog.emit("S_ST_INT", value, GP0, w.token_rows.start + none)
        load_immediate(prog, value, 1)
        prog.emit("S_ST_INT", value, GP0, w.is_pair.start + none)


def _fill(prog: Program, window: Interval, value: Register) -> None:
    """Every word of `window` = gp[value]."""
    with prog.gp("word") as word:
        load_immediate(prog, word, window.start)
        turns, rest = divmod(window.size, UNROLL)
        for count, words in ((turns, UNROLL), (1, rest)):
            if count and words:
                with loop(prog, count, "words"):
                    for i in range(words):
                        prog.emit("S_ST_INT", value, word, i)
                    add_immediate(prog, word, word, words)


def _chain(prog: Program, w: SortWorkspace, routing: Routing) -> None:
    holders = [f"expert {i}" for i in range(PAIRS_AT_ONCE)]
    with prog.gps("pair", "this pair", "head", *holders) as (pair, this, head, *experts):

        def link(count: int) -> None:
            """The pairs from gp[pair] on; a load is followed by something else than its use."""
            for first in range(0, count, PAIRS_AT_ONCE):
                batch = range(first, min(first + PAIRS_AT_ONCE, count))
                for i, expert in zip(batch, experts, strict=False):
                    prog.emit("S_LD_INT", expert, pair, routing.indices.start + i)
                for i, expert in zip(batch, experts, strict=False):
                    prog.emit("S_LD_INT", head, expert, w.heads.start)
                    add_immediate(prog, this, pair, i)
                    prog.emit("S_ST_INT", head, pair, w.following.start + i)
                    prog.emit("S_ST_INT", this, expert, w.heads.start)

        load_immediate(prog, pair, 0)
        turns, rest = divmod(routing.pairs, UNROLL)
        if turns:
            with loop(prog, turns, "pairs"):
                link(UNROLL)
                add_immediate(prog, pair, pair, UNROLL)
        link(rest)


def _scan(prog: Program, spec: RoutedSpec, w: SortWorkspace) -> None:
    holders = ("expert", "head", "active word", "is pair")
    with prog.gps(*holders) as (expert, head, active, is_pair):

        def step(count: int) -> None:
            for _ in range(count):
                prog.emit("S_LD_INT", head, expert, w.heads.start)
                prog.emit("S_ST_INT", expert, active, 0)
                prog.emit("S_LD_INT", is_pair, head, w.is_pair.start)
                add_immediate(prog, expert, expert, 1)
                prog.emit("S_ADD_INT", active, active, is_pair)

        load_immediate(prog, expert, 0)
        load_immediate(prog, active, w.active.start)
        prog.emit("S_ST_INT", active, GP0, w.next_active)
        turns, rest = divmod(spec.experts, UNROLL)
        if turns:
            with loop(prog, turns, "experts"):
                step(UNROLL)
        step(rest)
        prog.emit("S_LD_INT", expert, GP0, w.active.start)
        # Behind the last one: fetched ahead, and not used.
        prog.emit("S_ST_INT", GP0, active, 0)
        prog.emit("S_ST_INT", expert, GP0, w.next_expert)
        add_immediate(prog, active, active, 1)
        prog.emit("S_ST_INT", active, GP0, w.stop)
