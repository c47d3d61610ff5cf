"""What the machine is compared with: a list of the unfinished instructions in program order, and
a copy of the program that is read at the pc.

The scoreboard keeps ages as a matrix of bits; this keeps a list that closes up when an
instruction completes, so that they share no idea.
"""

from typing import Any

from amaranth.hdl import Cat, MemoryData, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.opcodes import Unit
from isa.stages import Stage
from rtl.interfaces import PC_BITS, SLOT_BITS

#: Completion ports by the unit that owns them; an error answer of the memory is one too.
PORTS: dict[str, Unit] = {
    "matrix_product": Unit.MATRIX,
    "matrix_write": Unit.MATRIX,
    "vector": Unit.VECTOR,
    "vector_reduce": Unit.VECTOR,
    "scalar": Unit.SCALAR,
    "topk": Unit.TOPK,
    "hbm": Unit.HBM,
    "hbm_error": Unit.HBM,
}
TRACKED = tuple(unit for unit in Unit if unit is not Unit.CONTROL)


class Program(wiring.Component):
    """The instruction memory again: the same writes, read at `pc` without delay.

    A proof gives it the same unknown initial contents as the dispatcher's.
    """

    en: Any
    address: Any
    write_word: Any
    write_stage: Any
    pc: Any
    word: Any
    stage: Any

    def __init__(self, config: PlenaConfig) -> None:
        super().__init__(
            {
                "en": In(1),
                "address": In(PC_BITS),
                "write_word": In(32),
                "write_stage": In(Stage),
                "pc": In(PC_BITS),
                "word": Out(32),
                "stage": Out(Stage),
            }
        )
        layout = data.StructLayout({"word": 32, "stage": Stage})
        self.contents = MemoryData(shape=layout, depth=config.IMEM_WORDS, init=[])

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.copy = store = memory.Memory(self.contents)
        write: Any = store.write_port()
        read: Any = store.read_port(domain="comb")
        row = read.data
        m.d.comb += [
            write.en.eq(self.en),
            write.addr.eq(self.address),
            write.data.eq(Cat(self.write_word, self.write_stage)),
            read.addr.eq(self.pc),
            self.word.eq(row.word),
            self.stage.eq(row.stage),
        ]
        return m


class Unfinished(wiring.Component):
    """The unfinished instructions, the oldest first.

    Members (in): `append` with `slot`, `unit`, `stage`; per port of `PORTS` `<name>_valid` and
    `<name>_slot`. Members (out): `count`; `known`: `slot` is one of theirs; `owned_<name>`: the
    port names an instruction of its own unit; `oldest`; per unit `busy_<unit>`, `oldest_<unit>`;
    `overtaken`: one completes before an older one.
    """

    append: Any
    slot: Any
    unit: Any
    stage: Any
    count: Any
    known: Any
    oldest: Any
    overtaken: Any

    def __init__(self, depth: int) -> None:
        ports: dict[str, object] = {
            "append": In(1),
            "slot": In(SLOT_BITS),
            "unit": In(Unit),
            "stage": In(Stage),
            "count": Out(range(depth + 1)),
            "known": Out(1),
            "oldest": Out(Stage),
            "overtaken": Out(1),
        }
        for name in PORTS:
            ports |= {f"{name}_valid": In(1), f"{name}_slot": In(SLOT_BITS)}
            ports |= {f"owned_{name}": Out(1)}
        for unit in TRACKED:
            ports |= {f"busy_{unit.name}": Out(1), f"oldest_{unit.name}": Out(Stage)}
        super().__init__(ports)
        entry = data.StructLayout({"slot": SLOT_BITS, "unit": Unit, "stage": Stage})
        self.entries: list[Any] = [Signal(entry, name=f"unfinished_{i}") for i in range(depth)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries, depth = self.entries, len(self.entries)
        present = [self.count > i for i in range(depth)]
        ended = Signal(depth)
        for name, unit in PORTS.items():
            valid, slot = getattr(self, f"{name}_valid"), getattr(self, f"{name}_slot")
            hits = [here & (e.slot == slot) for here, e in zip(present, entries, strict=True)]
            own = [hit & (e.unit == unit) for hit, e in zip(hits, entries, strict=True)]
            m.d.comb += getattr(self, f"owned_{name}").eq(Cat(*own).any())
            for i, hit in enumerate(hits):
                with m.If(valid & hit):
                    m.d.comb += ended[i].eq(1)
        stays = [here & ~ended[i] for i, here in enumerate(present)]
        left = _total(stays)
        # The ones that stay close up; a new one goes behind them.
        rank = [_total(stays[:i]) for i in range(depth)]
        for place, target in enumerate(entries):
            with m.If(self.append & (left == place)):
                m.d.sync += [
                    target.slot.eq(self.slot),
                    target.unit.eq(self.unit),
                    target.stage.eq(self.stage),
                ]
            for i in range(place, depth):
                with m.If(stays[i] & (rank[i] == place)):
                    m.d.sync += target.eq(entries[i])
        m.d.sync += self.count.eq(left + self.append)
        same = [here & (e.slot == self.slot) for here, e in zip(present, entries, strict=True)]
        m.d.comb += [
            self.known.eq(Cat(*same).any()),
            self.oldest.eq(entries[0].stage),
            self.overtaken.eq(stays[0] & (ended[1:] & Cat(*present[1:])).any()),
        ]
        for unit in TRACKED:
            mine = [here & (e.unit == unit) for here, e in zip(present, entries, strict=True)]
            first: Any = entries[-1].stage
            for one, entry in reversed(list(zip(mine, entries, strict=True))):
                first = Mux(one, entry.stage, first)
            m.d.comb += [
                getattr(self, f"busy_{unit.name}").eq(Cat(*mine).any()),
                getattr(self, f"oldest_{unit.name}").eq(first),
            ]
        return m


def _total(bits: list[Any]) -> Any:
    return sum(bits, start=Value.cast(0))
