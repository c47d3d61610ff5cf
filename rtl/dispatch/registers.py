"""Register files: gp, f and a, with a pending bit per register that a unit will still write."""

from typing import Any

from amaranth.hdl import MemoryData, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from rtl.interfaces import BF16_BITS


class RegisterFile(wiring.Component):
    """A file of `depth` registers of `width` bits with combinational reads.

    Register 0 reads as zero and ignores writes. `reserve` marks register `reserve_index` as pending
    from the next cycle on; a write through one of the ports `late` clears it. Writes through the
    others, from the dispatch cycle, never concern a pending register, since the dispatcher waits
    for it first.

    Members: `index_rd`, `index_rs1`, `index_rs2` and the values `rd`, `rs1`, `rs2` (same cycle);
    `pending`, a bit per register; per port of `early` and `late` `<port>_en`, `<port>_index` and
    `<port>_value`.
    """

    pending: Any
    index_rd: Any
    index_rs1: Any
    index_rs2: Any
    rd: Any
    rs1: Any
    rs2: Any
    early_en: Any  # of gp's
    early_index: Any
    early_value: Any
    reserve: Any
    reserve_index: Any

    def __init__(
        self, width: int, depth: int, *, early: tuple[str, ...] = (), late: tuple[str, ...]
    ) -> None:
        self._early, self._late = early, late
        self.storage = MemoryData(shape=width, depth=depth, init=[])
        bits = (depth - 1).bit_length()
        ports: dict[str, object] = {
            "pending": Out(depth),
            "reserve": In(1),
            "reserve_index": In(bits),
        }
        for name in ("rd", "rs1", "rs2"):
            ports |= {f"index_{name}": In(bits), name: Out(width)}
        for name in (*early, *late):
            ports |= {f"{name}_en": In(1), f"{name}_index": In(bits), f"{name}_value": In(width)}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = store = memory.Memory(self.storage)
        for name in ("rd", "rs1", "rs2"):
            read = store.read_port(domain="comb")
            index = getattr(self, f"index_{name}")
            m.d.comb += [
                read.addr.eq(index),
                getattr(self, name).eq(Mux(index == 0, 0, read.data)),
            ]
        pending = self.pending
        cleared = Signal.like(pending)
        reserved = Signal.like(pending)
        for name in (*self._early, *self._late):
            write = store.write_port()
            m.d.comb += [
                write.addr.eq(getattr(self, f"{name}_index")),
                write.data.eq(getattr(self, f"{name}_value")),
                write.en.eq(getattr(self, f"{name}_en")),
            ]
        for name in self._late:
            with m.If(getattr(self, f"{name}_en")):
                m.d.comb += cleared.bit_select(getattr(self, f"{name}_index"), 1).eq(1)
        with m.If(self.reserve):
            m.d.comb += reserved.bit_select(self.reserve_index, 1).eq(1)
        m.d.sync += pending.eq(((pending & ~cleared) | reserved) & ~1)
        return m


def gp_file() -> RegisterFile:
    """gp0..gp15; late writes come from S_LD_INT."""
    return RegisterFile(32, 16, early=("early",), late=("late",))


def f_file() -> RegisterFile:
    """f0..f7; late writes come from the scalar unit (late) and the vector unit's reductions
    (late2)."""
    return RegisterFile(BF16_BITS, 8, late=("late", "late2"))
