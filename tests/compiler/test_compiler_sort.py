"""The sort of pairs by expert on the architectural machine, in memories full of garbage."""

import numpy as np
import pytest

from compiler import CompileError, Program
from compiler.expert_sort import SortWorkspace, restore_tables, sort_pairs, workspace_words
from compiler.routed_spec import RoutedSpec, Routing
from isa import PRESETS
from isa.traps import Trap
from sim.hbm import HbmDevice
from sim.machine import Machine
from testbench.reference.routed_data import routing as choose

TINY = PRESETS["tiny"]
GARBAGE = 0xDEAD_BEEF


def spec_of(experts: int, top_k: int) -> RoutedSpec:
    return RoutedSpec(experts=experts, top_k=top_k, hidden=8, intermediate=8)


class Sorted:
    """INT_MEM after the sort of tokens first .. first + tokens - 1 of `experts` [T, k]."""

    def __init__(self, spec, experts, *, room, first=0, tokens=None, restore=False) -> None:
        prog = Program(TINY, "sort")
        whole = Routing.allocate(prog, len(experts), spec.top_k)
        self.piece = whole.piece(first, len(experts) if tokens is None else tokens)
        self.w = w = SortWorkspace.allocate(prog, spec, room)
        prog.stage("gather")
        sort_pairs(prog, spec, w, self.piece, spare_row=100)
        if restore:
            restore_tables(prog, w, self.piece)
        machine = Machine(TINY, prog.build(), HbmDevice(TINY))
        words = np.full(TINY.INT_MEM_WORDS, GARBAGE, np.uint32)
        self.tables = [slice(t.start, t.end) for t in (w.is_pair, w.token_rows)]
        for table in self.tables:
            words[table] = prog.int_mem.initial()[table]
        self.before = words.copy()
        words[whole.indices.start : whole.indices.end] = np.asarray(experts).reshape(-1)
        machine.memories.write_int(0, words)
        assert machine.run().cause is Trap.DONE
        self.words = machine.memories.read_int()

    def chain(self, expert: int) -> list[int]:
        """The pairs of an expert, and behind them `none` twice: walking on is harmless."""
        pair, chain = int(self.words[self.w.heads.start + expert]), []
        while pair != self.piece.pairs:
            chain.append(pair)
            pair = int(self.words[self.w.following.start + pair])
        assert self.words[self.w.following.start + pair] == pair
        return chain

    def active(self) -> list[int]:
        """The active list, with its spare word."""
        start, stop = self.w.active.start, int(self.words[self.w.stop])
        assert self.words[self.w.next_active] == start
        return self.words[start:stop].tolist()


@pytest.mark.parametrize("choice", ["random", "skewed", "one"])
@pytest.mark.parametrize(
    ("experts", "top_k", "tokens"), [(8, 2, 21), (5, 5, 3), (1, 1, 4), (40, 3, 1), (9, 1, 30)]
)
def test_chains_and_active_experts(experts, top_k, tokens, choice):
    chosen = choose(choice, tokens, experts, top_k, seed=tokens)
    found = Sorted(spec_of(experts, top_k), chosen, room=tokens)
    pairs = chosen.reshape(-1).tolist()
    for expert in range(experts):
        assert sorted(found.chain(expert)) == [p for p, e in enumerate(pairs) if e == expert]
    *active, spare = found.active()
    assert active == sorted(set(pairs))
    assert 0 <= spare < experts, "its first weights are fetched"
    assert found.words[found.w.next_expert] == active[0]


def test_a_piece_of_the_tokens_has_its_own_end_and_leaves_the_tables_as_they_were():
    spec, chosen = spec_of(6, 2), choose("random", 10, 6, 2, seed=3)
    found = Sorted(spec, chosen, room=4, first=8, tokens=2)
    w, none = found.w, found.piece.pairs
    assert found.words[w.token_rows.start + none] == 100 * TINY.MLEN
    assert found.words[w.is_pair.start + none] == 0
    assert sorted(p for e in range(6) for p in found.chain(e)) == [0, 1, 2, 3]
    again = Sorted(spec, chosen, room=4, first=8, tokens=2, restore=True)
    for table in again.tables:
        assert np.array_equal(again.words[table], again.before[table])


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(8, 2, 5), (384, 8, 1)])
def test_the_words_of_a_workspace_are_those_that_it_takes(experts, top_k, tokens):
    prog = Program(TINY, "words")
    before = prog.int_mem.left
    SortWorkspace.allocate(prog, spec_of(experts, top_k), tokens)
    assert before - prog.int_mem.left == workspace_words(spec_of(experts, top_k), tokens)
    with pytest.raises(CompileError, match=r"INT_MEM: .* needs .* are free"):
        SortWorkspace.allocate(prog, spec_of(1000, 2), 5)
