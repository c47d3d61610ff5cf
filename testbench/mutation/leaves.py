"""Mutants of the arithmetic leaves: each leaf as machine code, over the operands of its tests."""

import ctypes
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rtl.leaves.leaf import Leaf
from rtl.top import PlenaTop
from sim.compiled import cache
from sim.compiled.extract import extract
from sim.compiled.leaf import LANES, LeafFunction
from sim.compiled.program import PRELUDE
from sim.compiled.terms import Term
from sim.compiled.toolchain import INSTALL_HINT, CompilerError, compile_library, find_compiler
from testbench.mutation.mutant import Mutant
from testbench.mutation.operands import is_exhaustive, operands
from testbench.mutation.proof import Prover
from testbench.mutation.schemata import SELECT_BITS, Rewriter
from testbench.mutation.sites import Input, Locations, Planned, choose, term_inputs
from testbench.mutation.sources import sources_digest
from testbench.mutation.terms import ones
from testbench.mutation.units import CONFIG, LeafUnit

__all__ = ["LeafBench", "bench_of"]

Words = npt.NDArray[Any]
_SELECT = "mutant"
#: Sets of random operands that a survivor is run on.
_ROUNDS = 12
_PROOF_SECONDS = 5


@dataclass
class _Loaded:
    """A leaf's loop, its operands, and what it gives without a mutant."""

    function: Any
    inputs: list[Words]
    outputs: list[Words]
    wanted: list[Words]


class LeafBench:
    """The leaves of a unit, with `mutants`; `judge` runs one."""

    def __init__(self, library: Path, description: dict[str, Any]) -> None:
        self.mutants = [Mutant(**m) for m in description["mutants"]]
        self._leaf_of: list[int] = description["leaf_of"]
        self._library = ctypes.CDLL(str(library))
        self._described: list[dict[str, Any]] = description["leaves"]
        self._widths = [tuple(leaf["inputs"].values()) for leaf in self._described]
        self._leaves = [self._load(leaf, 0) for leaf in self._described]
        self._more: dict[tuple[int, int], _Loaded] = {}

    def _load(self, leaf: dict[str, Any], seed: int) -> _Loaded:
        given = operands(leaf["class"], leaf["inputs"], seed)
        count = len(next(iter(given.values())))
        padded = -(-count // LANES) * LANES
        given[_SELECT] = np.zeros(count, np.uint32)
        widths = {**leaf["inputs"], _SELECT: SELECT_BITS}
        inputs = [_aligned(given[port], width, padded) for port, width in widths.items()]
        empty = np.zeros(0, np.uint64)
        outputs = [_aligned(empty, width, padded) for width in leaf["outputs"].values()]
        result = _Loaded(getattr(self._library, leaf["name"]), inputs, outputs, [])
        self._run(result, 0)
        result.wanted = [o.copy() for o in outputs]
        return result

    @staticmethod
    def _run(leaf: _Loaded, number: int) -> None:
        leaf.inputs[-1][:] = number
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*leaf.inputs, *leaf.outputs)]
        leaf.function(ctypes.c_int(len(leaf.inputs[0])), *pointers)

    def judge(self, number: int) -> tuple[str, str]:
        """What notices the mutant with this number (from 1): ("leaf", operands and results), or
        ("equal", "") when it was run on all inputs, or ("", "")."""
        which = self._leaf_of[number - 1]
        for leaf in self._rounds(which):
            self._run(leaf, number)
            for got, want in zip(leaf.outputs, leaf.wanted, strict=True):
                wrong = np.flatnonzero(got != want)
                if len(wrong):
                    at = int(wrong[0])
                    shown = ", ".join(f"{int(i[at]):#x}" for i in leaf.inputs[:-1])
                    return "leaf", f"({shown}) gives {int(got[at]):#x}, not {int(want[at]):#x}"
        return ("equal" if is_exhaustive(self._widths[which]) else ""), ""

    def _rounds(self, which: int) -> Iterator[_Loaded]:
        """The leaf with its operands; for those that survive, with more and more of them."""
        yield self._leaves[which]
        if not is_exhaustive(self._widths[which]):
            for seed in range(1, _ROUNDS):
                key = which, seed
                if key not in self._more:
                    self._more[key] = self._load(self._described[which], seed)
                yield self._more[key]


def _aligned(values: Words, width: int, count: int) -> Words:
    kind = np.dtype(np.uint32 if width <= 32 else np.uint64)
    room = np.zeros(count * kind.itemsize + 64, np.uint8)
    start = -room.ctypes.data % 64
    array = room[start : start + count * kind.itemsize].view(kind)
    array[: len(values)] = values
    return array


class _MutantFunction(LeafFunction):
    """A leaf's loop with one more operand, which selects the mutant."""

    def __init__(self, leaf: Leaf, name: str) -> None:
        super().__init__(leaf, name)
        number = max(self._ports) + 1
        self._ports[number] = _SELECT, SELECT_BITS
        self.select = self._factory.ref(number, 0, SELECT_BITS)
        self.locations = Locations(self._lowering._cache, {})

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the leaf's own inputs."""
        return tuple(width for port, width in self.inputs.items() if port != _SELECT)

    def cell_inputs(self, title: str) -> list[Input]:
        """Inputs of all cells."""
        where = "rtl/leaves", 0
        roots = [((number, port), port, term) for number, (port, term) in self._numbered()]
        return term_inputs(roots, (title,), self.locations, where)

    def _numbered(self) -> Iterator[tuple[int, tuple[str, Term]]]:
        yield from enumerate(self.terms.items())

    def build_in(self, mutants: list[tuple[int, Planned]]) -> None:
        """Put mutants into the terms of the outputs."""
        rewriter = Rewriter(self._factory, self.select, mutants)
        self.terms = {
            port: rewriter.at((number, port), term) for number, (port, term) in self._numbered()
        }
        self.inputs[_SELECT] = SELECT_BITS

    def prover(self, title: str) -> Prover:
        """For mutants that change nothing."""
        roots = [((number, port), term) for number, (port, term) in self._numbered()]
        return Prover(self._factory, {(title,): roots}, seconds=_PROOF_SECONDS)


def _distinct(names: tuple[str, ...]) -> list[tuple[str, Leaf]]:
    """The leaves of these classes in the machine, one of each kind, with a title."""
    found: dict[str, Leaf] = {}
    for cell in extract(PlenaTop(CONFIG)).leaves:
        kind, parameters, _ = cell.leaf.key
        if kind in names:
            shown = ",".join(f"{k}={getattr(v, 'name', v)}" for k, v in parameters)
            found.setdefault(f"{kind}({shown})", cell.leaf)
    return sorted(found.items())


def bench_of(
    unit: LeafUnit, *, count: int, seed: int, folder: Path, keys: frozenset[str] | None = None
) -> LeafBench:
    """The leaves with `count` mutants, or those with `keys`, built in `folder` once.

    Raises:
        CompilerError: there is no C compiler, or it failed.
        FormalToolsMissing: the solver is not installed.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError(INSTALL_HINT)
    which = f"{unit.name} {count} {seed} {sorted(keys) if keys is not None else ''}"
    parts = [cache.source_key(CONFIG, compiler), which, sources_digest("testbench/mutation")]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def build(target: Path) -> dict[str, Any]:
        leaves = _distinct(unit.leaves)
        functions = [_MutantFunction(leaf, f"leaf_{i}") for i, (_, leaf) in enumerate(leaves)]
        chosen = _choose(unit, [t for t, _ in leaves], functions, count, seed, keys)
        description: dict[str, Any] = {"mutants": [], "leaf_of": [], "leaves": []}
        for index, planned in chosen:
            description["mutants"].append(asdict(planned.mutant))
            description["leaf_of"].append(index)
        text = PRELUDE
        public = '__attribute__((visibility("default"))) '
        for index, function in enumerate(functions):
            inputs = dict(function.inputs)
            mine = [(n, p) for n, (i, p) in enumerate(chosen, 1) if i == index]
            function.build_in(mine)
            text += f"{public}{function.prototype};\n{function.emit()}"
            description["leaves"].append(
                {
                    "name": function.name,
                    "class": leaves[index][0],
                    "inputs": inputs,
                    "outputs": function.outputs,
                }
            )
        compile_library(compiler, {"leaves.c": text}, target, cache.LIBRARY)
        (target / cache.DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
        return {"unit": unit.name}

    entry = cache.store(key, build, folder)
    return LeafBench(entry.library, entry.description())


def _choose(
    unit: LeafUnit,
    titles: list[str],
    functions: list[_MutantFunction],
    count: int,
    seed: int,
    keys: frozenset[str] | None,
) -> list[tuple[int, Planned]]:
    """Mutants with the index of their leaf; every leaf has its share."""
    index_of = {title: i for i, title in enumerate(titles)}
    inputs: list[Input] = []
    provers: dict[str, Prover] = {}
    for title, function in zip(titles, functions, strict=True):
        inputs += function.cell_inputs(title)
        provers[title] = function.prover(title)
    small = {t for t, f in zip(titles, functions, strict=True) if is_exhaustive(f.widths)}

    def is_equal(planned: Planned) -> bool:
        """By proof; where all inputs can be tried, that is done instead."""
        title = planned.input.module[0]
        return title not in small and provers[title].is_equal(planned)

    chosen = choose(
        unit.name,
        inputs,
        lambda given: ones(given.term.width),
        count=count,
        seed=seed,
        is_equal=is_equal,
        keys=keys,
    )
    return [(index_of[p.input.module[0]], p) for p in chosen]
