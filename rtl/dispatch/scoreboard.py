"""The scoreboard: what every unfinished instruction reads and writes, which of them is the oldest,
and whether the instruction at dispatch conflicts with one.
"""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.opcodes import Unit
from isa.stages import Stage
from rtl.interfaces import SLOT_BITS, Completion, Shapes


def footprint_layout(config: PlenaConfig) -> data.StructLayout:
    """What one instruction touches in the memories that units share; row ranges are half-open."""
    shapes = Shapes(config)
    row, end = shapes.row_bits, shapes.row_bits + 1
    return data.StructLayout(
        {
            "unit": Unit,
            "a_valid": 1,
            "a_first": row,
            "a_end": end,
            "b_valid": 1,
            "b_row": row,
            "w_valid": 1,
            "w_first": row,
            "w_end": end,
            "m_reads": 1,
            "m_writes": 1,
            "tile": shapes.tile_bits,
            "fp_reads": 1,
            "fp_writes": 1,
            "int_reads": 1,
            "int_writes": 1,
        }
    )


class Scoreboard(wiring.Component):
    """Tracks up to `config.INFLIGHT` unfinished instructions.

    An older instruction conflicts with the one at dispatch (`candidate`) when

    - read after write: it writes rows, a tile or a word memory that the candidate reads, whatever
    the units;
    - write after write, write after read: likewise, but only between different units, because every
      unit reads its operands and writes its results in program order among its own instructions.
      Word memories are compared between different units only, since the scalar unit executes in
      order.

    A slot is allocated at the end of a cycle with `allocate`, and is free again in the cycle after
    its completion, so an instruction dispatched right after a completion reads what it wrote.

    Members: `candidate`, `allocate`, `stage`, `free_slot` (valid when `full` is low); `completions`
    and `cancel` (an instruction that the memory answered with an error); `conflict`, `conflict_hbm`
    (one of the conflicts is with an unfinished H_*); `empty`; `oldest_stage`; per unit
    `busy_<unit>` and `busy_stage_<unit>` (stage of that unit's oldest).

    For the host, when nothing moves any more: `valid` and `hits` have a bit per slot (it is taken;
    the candidate conflicts with it), `prints` are the slots' footprints; `older[i]`, for all slots
    but 0, has bit j < i set when slot j was unfinished at slot i's allocation and still is: of two
    slots the higher one knows which is older.
    """

    candidate: Any
    busy_hbm: Any
    stage: Any
    allocate: Any
    free_slot: Any
    full: Any
    empty: Any
    conflict: Any
    conflict_hbm: Any
    oldest_stage: Any
    cancel: Any

    def __init__(self, config: PlenaConfig, completions: tuple[str, ...]) -> None:
        self._config = config
        self._completions = completions
        self._tracked = [unit for unit in Unit if unit is not Unit.CONTROL]
        ports: dict[str, object] = {
            "candidate": In(footprint_layout(config)),
            "stage": In(Stage),
            "allocate": In(1),
            "free_slot": Out(SLOT_BITS),
            "full": Out(1),
            "empty": Out(1),
            "conflict": Out(1),
            "conflict_hbm": Out(1),
            "oldest_stage": Out(Stage),
            "cancel": In(Completion),
        }
        ports |= {f"completed_{name}": In(Completion) for name in completions}
        for unit in self._tracked:
            ports |= {
                f"busy_{unit.name.lower()}": Out(1),
                f"busy_stage_{unit.name.lower()}": Out(Stage),
            }
        super().__init__(ports)
        count = config.INFLIGHT
        self.valid = Signal(count)
        self.hits = Signal(count)
        layout = footprint_layout(config)
        self.prints: list[Any] = [Signal(layout, name=f"footprint_{i}") for i in range(count)]
        self.older = {i: Signal(i, name=f"older_{i}") for i in range(1, count)}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._config.INFLIGHT
        valid, prints, older = self.valid, self.prints, self.older
        freed = Signal(count)
        taken = Signal(count)
        stages = [Signal(Stage, name=f"stage_{i}") for i in range(count)]

        m.submodules.slots = slots = Module()
        for name in (*(f"completed_{n}" for n in self._completions), "cancel"):
            port = getattr(self, name)
            with slots.If(port.valid):
                slots.d.comb += freed.bit_select(port.tag.slot, 1).eq(1)
        with slots.If(self.allocate):
            slots.d.comb += taken.bit_select(self.free_slot, 1).eq(1)
        m.d.sync += valid.eq((valid & ~freed) | taken)

        m.submodules.free = free = Module()
        with free.Switch(valid):
            for i in range(count):
                with free.Case("-" * (count - i - 1) + "0" + "1" * i):
                    free.d.comb += self.free_slot.eq(i)
        free.d.comb += [self.full.eq(valid.all()), self.empty.eq(valid == 0)]

        for i in range(count):
            with m.If(taken[i]):
                m.d.sync += [stages[i].eq(self.stage), prints[i].eq(self.candidate)]
                if i:
                    m.d.sync += older[i].eq(valid[:i] & ~freed[:i])
            if i:
                with m.Elif((older[i] & freed[:i]) != 0):
                    m.d.sync += older[i].eq(older[i] & ~freed[:i])

        m.submodules.hazards = hazards = Module()
        new = self.candidate
        for i in range(count):
            old = prints[i]
            cross = old.unit != new.unit
            with hazards.If(valid[i]):
                raw = old.w_valid & (
                    (new.a_valid & (old.w_first < new.a_end) & (new.a_first < old.w_end))
                    | (new.b_valid & (old.w_first <= new.b_row) & (new.b_row < old.w_end))
                )
                waw = old.w_valid & (old.w_first < new.w_end) & (new.w_first < old.w_end)
                war = (old.a_valid & (old.a_first < new.w_end) & (new.w_first < old.a_end)) | (
                    old.b_valid & (new.w_first <= old.b_row) & (old.b_row < new.w_end)
                )
                tile = (old.tile == new.tile) & (
                    (old.m_writes & (new.m_reads | new.m_writes)) | (old.m_reads & new.m_writes)
                )
                words = (
                    (old.fp_writes & (new.fp_reads | new.fp_writes))
                    | (old.fp_reads & new.fp_writes)
                    | (old.int_writes & (new.int_reads | new.int_writes))
                    | (old.int_reads & new.int_writes)
                )
                hit = raw | (cross & ((new.w_valid & (waw | war)) | tile | words))
                with hazards.If(hit):
                    hazards.d.comb += [self.hits[i].eq(1), self.conflict.eq(1)]
                    with hazards.If(old.unit == Unit.HBM):
                        hazards.d.comb += self.conflict_hbm.eq(1)

        # The oldest one is the highest slot that is older than all lower ones: any slot above it
        # is younger than it.
        m.submodules.ages = ages = Module()
        for i in range(count):
            with ages.If(valid[i] & (older[i] == 0) if i else valid[i]):
                ages.d.comb += self.oldest_stage.eq(stages[i])
        for unit in self._tracked:
            name = unit.name.lower()
            members = Signal(count, name=f"members_{name}")
            with m.If((taken != 0) & (self.candidate.unit == unit)):
                m.d.sync += members.eq((members & ~freed) | taken)
            with m.Elif((members & freed) != 0):
                m.d.sync += members.eq(members & ~freed)
            m.submodules[f"age_{name}"] = age = Module()
            with age.If(members != 0):
                age.d.comb += getattr(self, f"busy_{name}").eq(1)
                for i in range(count):
                    first = (older[i] & members[:i]) == 0 if i else 1
                    with age.If(members[i] & first):
                        age.d.comb += getattr(self, f"busy_stage_{name}").eq(stages[i])
        return m
