"""A compiled engine that carries all mutants of a unit; built once per version of the sources."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isa.config import PlenaConfig
from rtl.top import PlenaTop
from sim.compiled import cache
from sim.compiled.build import build_engine
from sim.compiled.engine import CompiledEngine
from sim.compiled.netlist import Netlist
from sim.compiled.paths import Reachable, reachable
from sim.compiled.terms import Term
from sim.compiled.toolchain import INSTALL_HINT, CompilerError, find_compiler
from testbench.mutation.mutant import Mutant
from testbench.mutation.proof import Prover
from testbench.mutation.schemata import SELECT_BITS, build_in
from testbench.mutation.sites import Input, Locations, Planned, choose, machine_inputs
from testbench.mutation.sources import sources_digest
from testbench.mutation.terms import Uses, ones
from testbench.mutation.units import CONFIG, unit_of

#: Elements of a path in the engine's netlist that lie above the machine: the probe, and its top.
TOP = 2

#: State that the host reads besides the top's ports (see sim.memories and Simulation).
_READ_BY_HOST = (
    "top.dispatcher.scale",
    "top.dispatcher.stride",
    "top.dispatcher.v_mask",
    "top.dispatcher.topk",
    "top.profile.counters.",
    "top.profile.overlap",
)


class MutantEngine(CompiledEngine):
    """The machine with one of `mutants` active: that at index `active` - 1; none at 0."""

    def __init__(self, config: PlenaConfig, entry: cache.Entry) -> None:
        super().__init__(config, entry)
        description: dict[str, Any] = entry.description()
        self.mutants = [Mutant(**m) for m in description["mutants"]]
        self._select = [(description["mutant_net"], 0, SELECT_BITS)]
        self._active = 0

    def switch_to(self, number: int) -> None:
        """From now on this mutant is active."""
        self._active = number
        self.model.set(self._select, number)

    def reset(self) -> None:
        super().reset()
        self.switch_to(self._active)


def engine_of(
    unit: str, *, count: int, seed: int, folder: Path, keys: frozenset[str] | None = None
) -> MutantEngine:
    """The engine with `count` mutants of a machine unit, or those with `keys`, kept in `folder`.

    Raises:
        CompilerError: there is no C compiler, or it failed.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError(INSTALL_HINT)
    which = f"{unit} {count} {seed} {sorted(keys) if keys is not None else ''}"
    parts = [cache.source_key(CONFIG, compiler), which, sources_digest("testbench/mutation")]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def change(netlist: Netlist, known: Reachable) -> dict[str, Any]:
        chosen = _choose(netlist, known, unit, count, seed, keys)
        net = build_in(netlist, chosen, TOP)
        return {"mutant_net": net, "mutants": [asdict(p.mutant) for p in chosen]}

    entry = cache.store(key, lambda f: build_engine(CONFIG, compiler, f, change), folder)
    return MutantEngine(CONFIG, entry)


def _choose(
    netlist: Netlist,
    known: Reachable,
    unit: str,
    count: int,
    seed: int,
    keys: frozenset[str] | None,
) -> list[Planned]:
    signals = {index: signal for signal, index in netlist._net_of.items()}
    locations = Locations(netlist.lowering._cache, signals)
    top = PlenaTop(CONFIG)
    reachable(top)  # marks it as used
    ports = tuple(f"top.{name}" for name in top.signature.members)
    observed = [
        netlist.signal(signal)
        for path, signal in known.signals.items()
        if netlist.knows(signal)
        and (path.startswith(_READ_BY_HOST) or ".".join(path.split(".")[:2]) in ports)
    ]
    uses = Uses(netlist, observed)

    def used(given: Input) -> int:
        """Bits of a cell's input that something observable depends on."""
        number = given.place[1]
        if given.consumer is not None and isinstance(number, int):
            return uses.of_operand(given.consumer, number)
        if given.target is not None:
            net, start = given.target
            return uses.nets.get(net, 0) >> start & ones(given.term.width)
        return uses.terms.get(id(given.term), 0)

    inputs = [i for i in machine_inputs(netlist, locations, TOP) if unit_of(i.module) == unit]
    roots: dict[tuple[str, ...], list[tuple[Any, Term]]] = {}
    for given in inputs:
        if given.consumer is None:
            roots.setdefault(given.module, []).append((given.place, given.term))
    prover = Prover(netlist.factory, roots)
    is_equal = prover.is_equal
    return choose(unit, inputs, used, count=count, seed=seed, is_equal=is_equal, keys=keys)
