"""The host's view of a cycle: one packed signal of everything that may need attention, so that a
quiet cycle costs the host a single read.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring

from rtl.dispatch.events import COMPLETIONS, RunState
from rtl.top import PlenaTop

#: Every port on which an instruction can complete, by the name of its counter and its event on the
#: top.
COMPLETION_PORTS = ("immediate", *COMPLETIONS)


@dataclass(frozen=True)
class WritePort:
    """A write port of an SRAM, as the host watches it."""

    name: str
    memory: str
    port: Any


class Probe(wiring.Component):
    """The top, and `flags`: the machine's state in the low bits, then a bit per event source in
    `sources`' order."""

    def __init__(self, top: PlenaTop) -> None:
        super().__init__({})
        self.top = top
        self.completions = {name: getattr(top, f"{name}_done") for name in COMPLETION_PORTS}
        self.writes = (
            WritePort("matrix", "vram", top.matrix.vram_write),
            WritePort("vector", "vram", top.vector.write),
            WritePort("hbm", "vram", top.hbm.vram_write),
            WritePort("scalar", "vram", top.scalar.vram_write),
            WritePort("hbm", "mram", top.hbm.mram_write),
        )
        state_bits = 2
        sources: list[Any] = [top.counting, top.hbm_request.valid, top.dispatch.valid]
        sources += [done.valid for done in self.completions.values()]
        sources += [write.port.en for write in self.writes]
        self.flags = Signal(state_bits + len(sources))
        self._value = Cat(top.state, *sources)
        base = state_bits
        self.state_mask = (1 << state_bits) - 1
        self.halted = RunState.HALTED.value
        self.counting_bit = 1 << base
        self.request_bit = 1 << (base + 1)
        self.dispatch_bit = 1 << (base + 2)
        base += 3
        self.completion_bits = {1 << (base + i): name for i, name in enumerate(self.completions)}
        base += len(self.completions)
        self.write_bits = {1 << (base + i): write for i, write in enumerate(self.writes)}
        self.completion_mask = sum(self.completion_bits)
        self.write_mask = sum(self.write_bits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.top = self.top
        m.d.comb += self.flags.eq(self._value)
        return m
