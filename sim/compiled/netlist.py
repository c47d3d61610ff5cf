"""The elaborated design as nets, processes, memories and leaves: what the compiled engine schedules
and emits. `sim.compiled.extract` makes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rtl.leaves.leaf import Leaf
from sim.compiled.lower import Assign, Lowering, Statement, UnsupportedError
from sim.compiled.term_factory import TermFactory
from sim.compiled.terms import WIRING, Term
from sim.private import ast

__all__ = [
    "LeafCell",
    "MemoryCell",
    "Net",
    "Netlist",
    "Process",
    "ReadPort",
    "WritePort",
    "is_unconditional",
]


@dataclass
class Net:
    """Something that has storage. `kind` is input (nothing drives it), comb, register, leaf or read
    (of a memory)."""

    index: int
    name: str
    width: int
    init: int
    kind: str
    reset_less: bool = False


@dataclass
class Process:
    """Statements of one module in one domain that go together: they share the nets they drive."""

    path: tuple[str, ...]
    sync: bool
    statements: list[Statement]
    nets: list[int]


@dataclass
class ReadPort:
    """`net` shows the row: always (`sync` false), or from the clock edge on at which `en` is 1."""

    memory: int
    net: int
    sync: bool
    address: Term
    en: Term
    transparent_for: tuple[int, ...]


@dataclass
class WritePort:
    """At the clock edge, each group of `granularity` bits is written whose bit in `en` is 1."""

    memory: int
    address: Term
    data: Term
    en: Term
    granularity: int


@dataclass
class MemoryCell:
    """A storage with its ports; of several writes to one bit in one cycle, the last port's
    counts."""

    index: int
    name: str
    width: int
    depth: int
    init: list[int]
    reads: list[ReadPort] = field(default_factory=list)
    writes: list[WritePort] = field(default_factory=list)


@dataclass
class LeafCell:
    """An instance of a leaf: terms at the inputs, nets at the outputs, by port name."""

    leaf: Leaf
    path: tuple[str, ...]
    inputs: dict[str, Term]
    outputs: dict[str, int]


class Netlist:
    """Nets and cells of a design; made by `sim.compiled.extract`.

    Attributes:
        reset: the term of the clock domain's reset, if something drives it.
        names: hierarchical name -> term, for every named signal.
    """

    def __init__(self) -> None:
        self.factory = TermFactory()
        self.nets: list[Net] = []
        self.processes: list[Process] = []
        self.memories: list[MemoryCell] = []
        self.leaves: list[LeafCell] = []
        self.reset: Term | None = None
        self.names: dict[str, Term] = {}
        self.memory_data: dict[int, int] = {}  #: id of the MemoryData -> index in `memories`
        self.lowering = Lowering(self.factory, self.signal, self.net)
        self._net_of = ast.SignalDict()
        self._wiring = ast.SignalDict()  # -> statements that may be plain wiring
        self._terms = ast.SignalDict()
        self._resolving = ast.SignalDict()  # -> whether it was asked for meanwhile
        self._clocks = ast.SignalDict()

    # Signals

    def net(self, signal: Any) -> int:
        """The net that stores a signal; a new one of kind input if it has none."""
        if signal in self._net_of:
            return self._net_of[signal]
        return self.add_net(signal, "input")

    def add_net(self, signal: Any, kind: str) -> int:
        """Gives a signal its storage."""
        if signal in self._net_of:
            raise UnsupportedError(f"signal {signal!r} with two drivers", signal.src_loc)
        mask = (1 << len(signal)) - 1
        net = Net(
            len(self.nets), signal.name, len(signal), signal.init & mask, kind, signal.reset_less
        )
        self.nets.append(net)
        self._net_of[signal] = net.index
        return net.index

    def signal(self, signal: Any) -> Term:
        """What a signal shows: its net, or the nets it is wired to."""
        if signal in self._terms:
            return self._terms[signal]
        if signal in self._clocks:
            raise UnsupportedError(f"the clock {signal!r} as a value", signal.src_loc)
        if (
            signal in self._resolving
        ):  # a loop, through wiring at least: it becomes a net of its own
            self._resolving[signal] = True
            return self._own(signal, "comb")
        if signal in self._wiring:
            self._resolving[signal] = False
            term = self._wire(signal)
            if term is None or self._resolving[signal]:
                term = self._own(signal, "comb")
            del self._resolving[signal]
        else:
            term = self._own(signal, "input")
        self._terms[signal] = term
        return term

    def _own(self, signal: Any, kind: str) -> Term:
        """The signal's own net, made if there is none."""
        net = self._net_of[signal] if signal in self._net_of else self.add_net(signal, kind)
        return self.factory.ref(net, 0, len(signal))

    def knows(self, signal: Any) -> bool:
        """Whether the signal is part of the design."""
        return signal in self._terms or signal in self._net_of

    def _wire(self, signal: Any) -> Term | None:
        """The term of a signal that is assigned unconditionally, if it is wiring."""
        f = self.factory
        term = f.const(signal.init, len(signal))
        for start, width, rhs in self._wiring[signal]:
            bits, signed = self.lowering.rhs(rhs)
            bits = f.extend(bits, signed, width)
            if bits.op not in WIRING or any(p.op not in WIRING for p in bits.args):
                return None
            end = start + width
            term = f.cat((f.slice(term, 0, start), bits, f.slice(term, end, len(signal) - end)))
        return term

    def offer_wiring(self, statements: Mapping[Any, list[Any]]) -> None:
        """Notes signals that only have unconditional assignments to fixed bits."""
        for signal, assigning in statements.items():
            pieces = [_whole_bits(s, signal) for s in assigning]
            if all(p is not None for p in pieces):
                self._wiring[signal] = pieces

    def forbid_as_value(self, clock: Any) -> None:
        """Marks a clock."""
        self._clocks[clock] = True

    def is_wiring(self, signal: Any) -> bool:
        """Whether a driven signal needs no storage."""
        self.signal(signal)
        return signal not in self._net_of


def _whole_bits(statement: Any, signal: Any) -> tuple[int, int, Any] | None:
    """(start, width, rhs) of an assignment to fixed bits of the signal alone."""
    if not isinstance(statement, ast.Assign):
        return None
    lhs, start, width = statement.lhs, 0, len(statement.lhs)
    while not isinstance(lhs, ast.Signal):
        if isinstance(lhs, ast.Slice):
            start += lhs.start
            lhs = lhs.value
        elif isinstance(lhs, ast.Operator) and lhs.operator in ("u", "s"):
            lhs = lhs.operands[0]
        else:
            return None
    return (start, width, statement.rhs) if lhs is signal else None


def is_unconditional(statement: Statement, net: Net) -> bool:
    """Whether the statement gives the whole net a new value whatever happens."""
    return (
        isinstance(statement, Assign)
        and statement.start == 0
        and statement.value.width == net.width
    )
