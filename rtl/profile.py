"""Profile counters in hardware: per stage, what every cycle and every beat was spent on."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from isa.opcodes import Unit
from isa.stages import Stage
from rtl.dispatch.events import COMPLETIONS, Stall

COUNTER_BITS = 48

#: What each per-stage counter counts. One event per cycle adds one to the counter of the event's
#: stage.
COUNTERS: dict[str, str] = {
    "wall": "cycles of the run; each belongs to the oldest unfinished instruction, or to the one "
    "at dispatch",
    "dispatched": "instructions that left the dispatcher",
    "completed_immediate": "instructions that completed in their dispatch cycle",
    **{f"completed_{name}": f"instructions that completed on port {name}" for name in COMPLETIONS},
    **{
        f"busy_{unit.name.lower()}": f"cycles with an unfinished {unit.name} instruction (stage of "
        "the oldest one)"
        for unit in Unit
    },
    "multipliers": "cycles with a row of activations in the multipliers of the matrix array",
    **{
        f"stall_{reason.name.lower()}": f"cycles without a dispatch, for the reason {reason.name}"
        for reason in Stall
        if reason is not Stall.NONE
    },
    "hbm_reads": "read beats of 64 bytes that the memory accepted",
    "hbm_writes": "write beats of 64 bytes that the memory accepted",
}


class StageCounter(wiring.Component):
    """Counts one event per stage; members `en`, `stage`, and a registered read of stage `select` in
    `value`."""

    en: Any
    stage: Any
    select: Any
    value: Any

    def __init__(self) -> None:
        super().__init__(
            {"en": In(1), "stage": In(Stage), "select": In(Stage), "value": Out(COUNTER_BITS)}
        )
        self.counts = [Signal(COUNTER_BITS, name=stage.label) for stage in Stage]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.en):
            with m.Switch(self.stage):
                for stage, count in zip(Stage, self.counts, strict=True):
                    with m.Case(stage):
                        m.d.sync += count.eq(count + 1)
        with m.Switch(self.select):
            for stage, count in zip(Stage, self.counts, strict=True):
                with m.Case(stage):
                    m.d.sync += self.value.eq(count)
        return m


class ProfileCounters(wiring.Component):
    """Every counter of `COUNTERS`, and `overlap`: cycles in which two or more units were busy.

    Members: per counter `<name>_en` and `<name>_stage`; `overlap_en`; `read_counter` (index in
    `COUNTERS`; one past the last is `overlap`), `read_stage`, and two cycles later `read_value`.
    """

    overlap_en: Any
    read_counter: Any
    read_stage: Any
    read_value: Any

    def __init__(self) -> None:
        ports: dict[str, object] = {
            "overlap_en": In(1),
            "read_counter": In(range(len(COUNTERS) + 1)),
            "read_stage": In(Stage),
            "read_value": Out(COUNTER_BITS),
        }
        for name in COUNTERS:
            ports |= {f"{name}_en": In(1), f"{name}_stage": In(Stage)}
        super().__init__(ports)
        self.counters = {name: StageCounter() for name in COUNTERS}
        self.overlap = Signal(COUNTER_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.overlap_en):
            m.d.sync += self.overlap.eq(self.overlap + 1)
        with m.Switch(self.read_counter):
            for index, (name, counter) in enumerate(self.counters.items()):
                m.submodules[name] = counter
                counter.en = getattr(self, f"{name}_en")
                counter.stage = getattr(self, f"{name}_stage")
                counter.select = self.read_stage
                with m.Case(index):
                    m.d.sync += self.read_value.eq(counter.value)
            with m.Default():
                m.d.sync += self.read_value.eq(self.overlap)
        return m
