"""The machine with its units abstracted: `PlenaTop` as it is, but every output of a unit and of a
memory is a free input of the proof.
"""

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Elaboratable, Fragment, Module, Value
from amaranth.lib import wiring

from isa.config import PlenaConfig
from rtl.top import PlenaTop

UNITS = ("matrix", "vector", "scalar", "topk", "hbm", "matrix_sram", "vector_sram")

#: The machine that proofs are about: every mechanism, in the smallest sizes.
CONFIG = PlenaConfig(
    name="formal",
    MLEN=8,
    BLEN=2,
    HLEN=4,
    SFU_LANES=8,
    MRAM_TILES=4,
    VRAM_ROWS=32,
    FP_MEM_WORDS=16,
    INT_MEM_WORDS=16,
    IMEM_WORDS=16,
    LOOP_DEPTH=2,
    INFLIGHT=4,
    HBM_QUEUE=2,
)


class FreeUnit(wiring.Component):
    """A unit of which only the ports are known; its outputs are undriven (see `free_signals`)."""

    def elaborate(self, platform: object) -> Module:
        return Module()


class AbstractMachine(PlenaTop):
    """Dispatcher, profile counters and all wiring of the machine, around free units."""

    def __init__(self, config: PlenaConfig = CONFIG) -> None:
        super().__init__(config)
        for name in UNITS:
            real = getattr(self, name)
            _mark_used(real)
            setattr(self, name, FreeUnit(real.signature))
        self.scoreboard_registers = _registers(self.dispatcher.scoreboard)

    def free_signals(self) -> Iterator[tuple[str, Value]]:
        """What the proof leaves open, by a unique name: the host's and the memory's side, and
        every output of the units."""
        yield from _signals(self, self.signature, wiring.Flow.In, "top")
        for name in UNITS:
            unit = getattr(self, name)
            yield from _signals(unit, unit.signature, wiring.Flow.Out, name)


def _registers(component: Any) -> dict[str, Any]:
    """The registers of a component by name, for lemmas; it is elaborated here, once and for
    all."""
    fragment = Fragment.get(component, None)
    fragment.origins = ()  # it is entered again where the component stands
    component.elaborate = lambda _platform: fragment
    statements = fragment.statements["sync"]
    return {s.name: s for statement in statements for s in statement._lhs_signals()}


def _mark_used(part: Any) -> None:
    """Keeps Amaranth from warning that a unit was made and never elaborated."""
    if isinstance(part, Elaboratable):
        part._MustUse__used = True  # type: ignore[attr-defined]
        for inner in vars(part).values():
            _mark_used(inner)
    elif isinstance(part, list | tuple):
        for inner in part:
            _mark_used(inner)


def _signals(
    component: Any, signature: wiring.Signature, flow: Any, prefix: str
) -> Iterator[tuple[str, Value]]:
    for path, member, value in signature.flatten(component):
        if member.flow is flow:  # type: ignore[attr-defined]
            yield "__".join((prefix, *map(str, path))), Value.cast(value)
