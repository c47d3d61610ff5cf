"""A first-in first-out queue of typed payloads, and the way its neighbours use its signals."""

from typing import Any

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Queue", "share"]


def share(component: wiring.Component, **ports: Any) -> None:
    """Replace ports of a submodule by existing ones of the same shape, before elaboration.

    Both sides then use the same signals and the parent copies nothing, which in Amaranth's
    simulator saves a pass over the parent for every change.

    Raises:
        ValueError: `component` has no such port.
    """
    for name, port in ports.items():
        if name not in component.signature.members:
            raise ValueError(f"{type(component).__name__} has no port {name!r}")
        setattr(component, name, port)


class Queue(wiring.Component):
    """Keeps up to `depth` payloads in order; what enters shows at `o` in the next cycle.

    `i.ready` depends on the level only. A full queue takes nothing in the cycle in which it gives
    something.

    Members
    -------
    i : In(stream of `shape`)
    o : Out(stream of `shape`)
    """

    i: Any
    o: Any

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self._shape = shape
        self._depth = depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.storage = storage = Memory(shape=self._shape, depth=self._depth, init=[])
        write: Any = storage.write_port()
        read: Any = storage.read_port(domain="comb")
        level = Signal(range(self._depth + 1))
        produce = Signal(range(self._depth))
        consume = Signal(range(self._depth))
        push = Signal()
        pop = Signal()

        def after(pointer: Signal) -> Value:
            return Mux(pointer == self._depth - 1, 0, pointer + 1)

        m.d.comb += [
            self.i.ready.eq(level != self._depth),
            self.o.valid.eq(level != 0),
            push.eq(self.i.valid & self.i.ready),
            pop.eq(self.o.valid & self.o.ready),
            write.en.eq(push),
        ]
        write.addr, write.data = produce, self.i.payload
        read.addr, read.data = consume, self.o.payload
        with m.If(push):
            m.d.sync += produce.eq(after(produce))
        with m.If(pop):
            m.d.sync += consume.eq(after(consume))
        with m.If(push != pop):
            m.d.sync += level.eq(Mux(push, level + 1, level - 1))
        return m
