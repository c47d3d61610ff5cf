"""What the host can see of a Verilated machine: which variables stay, and where they are."""

from collections.abc import Iterable
from dataclasses import dataclass

from amaranth.hdl import Shape, Signal

from rtl.export import TOP_NAME, Design, Location
from sim.compiled.paths import Reachable
from sim.verilator.access import Constant, Part, Variable

__all__ = ["Address", "Visible"]

#: What a report about a machine that waits looks at (`sim.deadlock`).
_EXPLAINED = "top.dispatcher."


@dataclass(frozen=True)
class Address:
    """A variable of the model: a port of the top by its name, or a variable of a scope."""

    scope: str
    name: str

    @property
    def is_port(self) -> bool:
        """Whether it is a port of the top."""
        return not self.scope


class Visible:
    """Numbers the variables that the host may see; they must be kept by Verilator.

    Visible are the ports of the top, memories, registers that can be reached from the top by
    attributes, all such signals of the dispatcher, and what `find` is asked for. Every other signal
    may be optimised away: to keep all of them would make the machine several times slower.
    """

    def __init__(self, design: Design, known: Reachable) -> None:
        self._design = design
        self._known = known
        self.addresses: list[Address] = []
        self._numbers: dict[Address, int] = {}
        self._kept: set[tuple[str, str]] = set()
        self._registers = {
            name: {dict(c.ports)["\\Q"].split()[0][1:] for c in module.cells if c.kind == "$dff"}
            for name, module in design.modules.items()
        }
        self._widths = {
            name: {wire.name.lstrip("\\"): wire.width for wire in module.wires}
            for name, module in design.modules.items()
        }
        self.ports = [wire.name[1:] for wire in design.modules[TOP_NAME].ports]

    def find(self, signal: Signal) -> list[Part]:
        """What a signal consists of, from the low end on.

        Raises:
            KeyError: the signal is not in the Verilog.
        """
        parts: list[Part] = []
        for piece in self._design.pieces(signal):
            if piece.location is None:
                parts.append((Constant(piece.start), 0, piece.width))
            else:
                number = self._number(piece.location)
                variable = Variable(f"AT({number})", self._width(piece.location))
                parts.append((variable, piece.start, piece.width))
        return parts

    def signals(self) -> dict[str, list[tuple[int, int, int, int]]]:
        """Attribute path -> pieces, from the low end on, of every signal that the host can read.

        A piece is (number, first bit, width, width of the variable); number -1: a constant in place
        of the first bit.
        """
        found: dict[str, list[tuple[int, int, int, int]]] = {}
        for path, signal in self._known.signals.items():
            try:
                pieces = self._design.pieces(signal)
            except KeyError:  # replaced in elaboration, or nothing uses it
                continue
            whole = path.startswith(_EXPLAINED)
            if whole or all(p.location is None or self._is_kept(p.location) for p in pieces):
                found[path] = [
                    (-1, p.start, p.width, p.width)
                    if p.location is None
                    else (self._number(p.location), p.start, p.width, self._width(p.location))
                    for p in pieces
                ]
        return found

    def _is_kept(self, location: Location) -> bool:
        return (
            self._is_port(location)
            or location.name in self._registers[location.module]
            or self._address(location) in self._numbers
        )

    def _width(self, location: Location) -> int:
        return self._widths[location.module][location.name]

    def memories(self) -> dict[str, tuple[int, int, int]]:
        """Attribute path -> (number, width, depth) of every memory."""
        found: dict[str, tuple[int, int, int]] = {}
        for path, memory in self._known.memories.items():
            width = Shape.cast(memory.shape).width
            found[path] = self._number(self._design.locate(memory)), width, memory.depth
        return found

    def _is_port(self, location: Location) -> bool:
        return not location.instances and location.name in self.ports

    def _address(self, location: Location) -> Address:
        if self._is_port(location):
            return Address("", location.name)
        return Address(".".join((TOP_NAME, *location.instances)), location.name)

    def _number(self, location: Location) -> int:
        address = self._address(location)
        if not address.is_port:
            self._kept.add((location.module, location.name))
        if address not in self._numbers:
            self._numbers[address] = len(self.addresses)
            self.addresses.append(address)
        return self._numbers[address]

    def control(self, apart: Iterable[str]) -> str:
        """Verilator's control file: the variables to keep, and the modules to keep `apart`."""
        lines = ["`verilator_config"]
        lines += [f'no_inline -module "{name}"' for name in apart]
        lines += [
            f'public_flat_rd -module "{module}" -var "{name}"'
            for module, name in sorted(self._kept)
        ]
        return "\n".join((*lines, ""))
