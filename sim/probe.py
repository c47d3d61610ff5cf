"""The host's view of a cycle: one packed signal of everything that may need attention, so that a
quiet cycle costs the host a single read.
"""

from collections.abc import Iterator
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


@dataclass(frozen=True)
class WordPort:
    """A write port of a register file or word memory, named as `sim.machine.effects` names them."""

    name: str
    file: str
    en: Any
    index: Any
    value: Any


def _word_ports(top: PlenaTop) -> Iterator[WordPort]:
    """Every way in which a register or word changes. f0 and gp0 take writes that nobody can read:
    left out."""
    dispatcher, scalar = top.dispatcher, top.scalar
    for name, file, port in (
        ("gp", dispatcher.gp, "early"),
        ("gp", dispatcher.gp, "late"),
        ("f", dispatcher.f, "late"),
        ("f", dispatcher.f, "late2"),
    ):
        en, index, value = (getattr(file, f"{port}_{part}") for part in ("en", "index", "value"))
        yield WordPort(port, name, en & (index != 0), index, value)
    a = dispatcher.a_write
    yield WordPort("dispatch", "a", a.valid, a.index, a.value)
    for name, store in (("FP_MEM", scalar.fp_store), ("INT_MEM", scalar.int_store)):
        yield WordPort("store", name, store.valid, store.address, store.value)


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
        self.words = tuple(_word_ports(top))
        dispatcher = top.dispatcher
        #: By name; an event of dispatch carries their values from before the instruction.
        self.state_registers = {
            "SCALE": dispatcher.scale,
            "STRIDE": dispatcher.stride,
            "V_MASK": dispatcher.v_mask,
            "TOPK": dispatcher.topk,
            "TOPK_VALID": dispatcher.topk_valid,
        }
        state_bits = 2
        sources: list[Any] = [top.counting, top.hbm_request.valid, top.dispatch.valid]
        sources += [done.valid for done in self.completions.values()]
        sources += [write.port.en for write in self.writes]
        sources += [word.en for word in self.words]
        self.flags = Signal(state_bits + len(sources))
        self.flags_value = Cat(top.state, *sources)
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
        base += len(self.writes)
        self.word_bits = {1 << (base + i): word for i, word in enumerate(self.words)}
        self.completion_mask = sum(self.completion_bits)
        self.write_mask = sum(self.write_bits)
        self.word_mask = sum(self.word_bits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.top = self.top
        m.d.comb += self.flags.eq(self.flags_value)
        return m
