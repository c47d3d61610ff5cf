"""A leaf as a pure function in C, and rows of equal leaves as one loop that the C compiler turns
into SIMD."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from amaranth.lib.wiring import Flow

from rtl.leaves.leaf import Leaf
from sim.compiled.lower import Assign, Branch, Deposit, Lowering, Statement, UnsupportedError
from sim.compiled.scalar import ScalarEmitter, ctype
from sim.compiled.term_factory import TermFactory
from sim.compiled.terms import Term
from sim.compiled.terms import cuts_of as _cuts
from sim.private import ast, fragments, memories

__all__ = ["LANES", "LeafFunction"]

#: Loops over leaves have a multiple of this many turns: a vector of 32-bit numbers in AVX-512.
LANES = 16


class LeafFunction:
    """The outputs of a leaf as terms of its inputs, and the C loop that computes many of them.

    Attributes:
        inputs, outputs: port name -> width; a port of the loop is an array of u32 (to 32 bits) or
        u64.
    """

    def __init__(self, leaf: Leaf, name: str) -> None:
        kind, parameters, _ = leaf.key
        self.name = name
        self.title = f"{kind}({', '.join(f'{k}={v}' for k, v in parameters)})"
        kind_of: Any = type(leaf)
        own: Any = kind_of(**dict(parameters))  # unbound: its inputs are signals of its own
        members = own.signature.members
        self._factory = TermFactory()
        self._values = ast.SignalDict()
        self._drivers = ast.SignalDict()
        self._busy = ast.SignalDict()
        self._lowering = Lowering(self._factory, self._signal, lambda _signal: 0)
        self.inputs: dict[str, int] = {}
        self._ports: dict[int, tuple[str, int]] = {}
        for number, (port, member) in enumerate(members.items()):
            if member.flow is Flow.In:
                signal = ast.Value.cast(getattr(own, port))
                self.inputs[port] = len(signal)
                self._ports[number] = port, len(signal)
                self._values[signal] = self._factory.ref(number, 0, len(signal))
        design = fragments.Fragment.get(own, None).prepare()
        for fragment in design.fragments:
            self._collect(fragment)
        outputs = {
            p: ast.Value.cast(getattr(own, p)) for p, m in members.items() if m.flow is not Flow.In
        }
        self.outputs = {port: len(value) for port, value in outputs.items()}
        self.terms = {port: self._lowering.term(value) for port, value in outputs.items()}

    def _collect(self, fragment: Any) -> None:
        if isinstance(fragment, fragments.Instance | memories.MemoryInstance) or any(
            d != "comb" for d in fragment.statements
        ):
            raise UnsupportedError(f"leaf {self.title}, which is not purely combinational")
        for statement in fragment.statements.get("comb", ()):
            for signal in statement._lhs_signals():
                self._drivers.setdefault(signal, []).append(statement)

    def _signal(self, signal: Any) -> Term:
        if signal not in self._values:
            start = self._factory.const(signal.init, len(signal))
            if signal not in self._drivers:
                self._values[signal] = start
            elif signal in self._busy:
                raise UnsupportedError(
                    f"leaf {self.title} with a loop through signal {signal!r}", signal.src_loc
                )
            else:
                self._busy[signal] = True
                statements = self._lowering.statements(self._drivers[signal], lambda s: s is signal)
                self._values[signal] = self._after(statements, start)
        return self._values[signal]

    def _after(self, statements: Iterable[Statement], value: Term) -> Term:
        """The one net that the statements drive, after them."""
        f = self._factory
        for statement in statements:
            match statement:
                case Assign(_, start, bits):
                    end = start + bits.width
                    value = f.cat(
                        (f.slice(value, 0, start), bits, f.slice(value, end, value.width - end))
                    )
                case Branch(test, cases):
                    value = self._choice(
                        test, [(p, self._after(body, value)) for p, body in cases], value
                    )
                case Deposit():
                    raise UnsupportedError(
                        f"leaf {self.title} with an assignment at a variable offset"
                    )
        return value

    def _choice(
        self, test: Term, cases: list[tuple[tuple[str, ...] | None, Term]], otherwise: Term
    ) -> Term:
        """The value of the first case that matches."""
        f = self._factory
        zeros = 0
        while zeros < len(cases) and cases[zeros][0] == (
            "0" * zeros + "1" + "-" * (test.width - zeros - 1),
        ):
            zeros += 1
        result = otherwise
        for patterns, taken in reversed(cases[zeros:]):
            result = taken if patterns is None else f.mux(f.match(test, patterns), taken, result)
        values = [taken for _, taken in cases[:zeros]]
        if not values:
            return result
        cuts = sorted({cut for v in values for cut in _cuts(v)})
        pieces: list[Term] = []
        for low, high in pairwise(cuts):
            rest = f.slice(result, low, high - low)
            pieces.append(self._by_zeros(test, [f.slice(v, low, high - low) for v in values], rest))
        return f.cat(pieces)

    def _by_zeros(self, test: Term, values: list[Term], otherwise: Term) -> Term:
        """values[z], z being the number of leading zeros of `test`; otherwise beyond the list."""
        f = self._factory
        top = f.slice(test, test.width - len(values), len(values))
        if all(v is values[0] for v in values):
            return f.mux(f.reduce("rany", top), values[0], otherwise)
        counting = all(
            v.op == "const" and v.attr == values[0].attr + z for z, v in enumerate(values)
        )
        if counting and 3 < len(values) <= 32:
            width = values[0].width
            count = f.op("add", f.zext(f.leading(top), width), values[0])
            return f.mux(f.reduce("rany", top), count, otherwise)
        for zeros, value in reversed(list(enumerate(values))):
            # Those with fewer zeros are looked at before, so one bit tells.
            otherwise = f.mux(f.slice(test, test.width - 1 - zeros, 1), value, otherwise)
        return otherwise

    @property
    def prototype(self) -> str:
        """The head of the C function."""
        inputs = [f"const {ctype(w)} *restrict in_{p}" for p, w in self.inputs.items()]
        outputs = [f"{ctype(w)} *restrict out_{p}" for p, w in self.outputs.items()]
        return f"void {self.name}(int count, {', '.join([*inputs, *outputs])})"

    def emit(self) -> str:
        """The C function `name(count, in..., out...)` over arrays whose length is a multiple of
        `LANES`."""
        emitter = _LeafEmitter(self._ports)
        stores = [f"out_{port}[i] = {emitter.scalar(term)};" for port, term in self.terms.items()]
        aligned = [f"  in_{p} = __builtin_assume_aligned(in_{p}, 64);" for p in self.inputs]
        aligned += [f"  out_{p} = __builtin_assume_aligned(out_{p}, 64);" for p in self.outputs]
        body = "\n".join(["  " + line for line in emitter.lines] + ["    " + s for s in stores])
        return (
            f"/* {self.title} */\n"
            f"{self.prototype} {{\n"
            + "\n".join(aligned)
            + f"\n  count &= ~{LANES - 1};\n"
            + f"  for (int i = 0; i < count; i++) {{ /* {self.name} */\n{body}\n  }}\n}}\n"
        )


class _LeafEmitter(ScalarEmitter):
    """Reads inputs as elements of the loop's arrays; `ports` are (name, width) by net number."""

    def __init__(self, ports: dict[int, tuple[str, int]]) -> None:
        super().__init__()
        self._ports = ports

    def reference(self, net: int, start: int, width: int) -> str:
        name, whole = self._ports[net]
        return self.extract(f"in_{name}[i]", whole, start, width)
