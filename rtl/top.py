"""The whole machine: units and memories around the dispatcher, with the host's and the memory's
ports."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from isa.config import PlenaConfig
from isa.opcodes import Unit
from isa.stages import Stage
from rtl.dispatch.dispatcher import Dispatcher
from rtl.dispatch.events import COMPLETIONS, Dispatch, Halt, RunState, Stall
from rtl.hbm import HbmPort
from rtl.interfaces import PC_BITS, Completion, Shapes
from rtl.matrix import MatrixSram, MatrixUnit
from rtl.profile import COUNTER_BITS, COUNTERS, ProfileCounters
from rtl.scalar import ScalarUnit
from rtl.topk import TopkUnit
from rtl.vector import VectorSram, VectorUnit


class PlenaTop(wiring.Component):
    """The PLENA machine of one configuration.

    Members:
        start, entry, length, serial, imem_write_*: the host's controls (see `Dispatcher`).
        state, halt, pc: what the machine is doing, and why it stopped.
        dispatch, immediate_done, <unit>_done: events, each valid for one cycle, with pc and stage.
        hbm_request, hbm_response: 64-byte beats to the memory device, answers in order.
        profile_counter, profile_stage, profile_value: read-out of the counters, two cycles later.
    """

    start: Any
    entry: Any
    length: Any
    serial: Any
    imem_write_en: Any
    imem_write_address: Any
    imem_write_word: Any
    imem_write_stage: Any
    state: Any
    halt: Any
    pc: Any
    stall: Any
    bill_stage: Any
    counting: Any
    dispatch: Any
    immediate_done: Any
    hbm_request: Any
    hbm_response: Any
    profile_counter: Any
    profile_stage: Any
    profile_value: Any

    def __init__(self, config: PlenaConfig) -> None:
        self.config = config
        self.shapes = shapes = Shapes(config)
        self.dispatcher = Dispatcher(config)
        self.matrix_sram = MatrixSram(config)
        self.vector_sram = VectorSram(config)
        self.matrix = MatrixUnit(config)
        self.vector = VectorUnit(config)
        self.scalar = ScalarUnit(config)
        self.topk = TopkUnit(config)
        self.hbm = HbmPort(config)
        self.profile = ProfileCounters()
        ports: dict[str, object] = {
            "start": In(1),
            "entry": In(PC_BITS),
            "length": In(PC_BITS),
            "serial": In(1),
            "imem_write_en": In(1),
            "imem_write_address": In(PC_BITS),
            "imem_write_word": In(32),
            "imem_write_stage": In(Stage),
            "state": Out(RunState),
            "halt": Out(Halt),
            "pc": Out(PC_BITS),
            "stall": Out(Stall),
            "bill_stage": Out(Stage),
            "counting": Out(1),
            "dispatch": Out(Dispatch),
            "immediate_done": Out(Completion),
            "hbm_request": Out(shapes.hbm_request),
            "hbm_response": In(shapes.hbm_response),
            "profile_counter": In(range(len(COUNTERS) + 1)),
            "profile_stage": In(Stage),
            "profile_value": Out(COUNTER_BITS),
        }
        ports |= {f"{name}_done": Out(Completion) for name in COMPLETIONS}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dispatcher = dispatcher = self.dispatcher
        m.submodules.matrix_sram = self.matrix_sram
        m.submodules.vector_sram = self.vector_sram
        m.submodules.matrix = self.matrix
        m.submodules.vector = self.vector
        m.submodules.scalar = self.scalar
        m.submodules.topk = self.topk
        m.submodules.hbm = self.hbm
        m.submodules.profile = self.profile

        connect(m, dispatcher.matrix_issue, self.matrix.issue)
        connect(m, dispatcher.vector_issue, self.vector.issue)
        connect(m, dispatcher.scalar_issue, self.scalar.issue)
        connect(m, dispatcher.topk_issue, self.topk.issue)
        connect(m, dispatcher.hbm_issue, self.hbm.issue)

        connect(m, self.matrix.mram_read, self.matrix_sram.read)
        connect(m, self.hbm.mram_write, self.matrix_sram.write)
        connect(m, self.matrix.vram_read, self.vector_sram.matrix_read)
        connect(m, self.vector.a_read, self.vector_sram.vector_a_read)
        connect(m, self.vector.b_read, self.vector_sram.vector_b_read)
        connect(m, self.topk.vram_read, self.vector_sram.topk_read)
        connect(m, self.hbm.vram_read, self.vector_sram.hbm_read)
        connect(m, self.matrix.vram_write, self.vector_sram.matrix_write)
        connect(m, self.vector.write, self.vector_sram.vector_write)
        connect(m, self.hbm.vram_write, self.vector_sram.hbm_write)
        connect(m, self.scalar.vram_write, self.vector_sram.scalar_write)

        connect(m, self.hbm.request, flipped(self.hbm_request))
        connect(m, flipped(self.hbm_response), self.hbm.response)

        done = {
            "matrix_product": self.matrix.product_done,
            "matrix_write": self.matrix.write_done,
            "vector": self.vector.done,
            "vector_reduce": self.vector.reduce_done,
            "scalar": self.scalar.done,
            "topk": self.topk.done,
            "hbm": self.hbm.done,
        }
        for name in COMPLETIONS:
            m.d.comb += [
                getattr(dispatcher, f"{name}_done").eq(done[name]),
                getattr(self, f"{name}_done").eq(done[name]),
            ]
        m.d.comb += [
            dispatcher.scalar_fp_write.eq(self.scalar.fp_write),
            dispatcher.scalar_gp_write.eq(self.scalar.gp_write),
            dispatcher.vector_fp_write.eq(self.vector.fp_write),
            self.scalar.topk_fp_write.eq(self.topk.fp_write),
            self.scalar.topk_int_write.eq(self.topk.int_write),
            dispatcher.hbm_error.eq(self.hbm.error),
        ]
        for name in ("start", "entry", "length", "serial"):
            m.d.comb += getattr(dispatcher, name).eq(getattr(self, name))
        for name in ("en", "address", "word", "stage"):
            m.d.comb += getattr(dispatcher, f"imem_write_{name}").eq(
                getattr(self, f"imem_write_{name}")
            )
        for name in (
            "state",
            "halt",
            "pc",
            "stall",
            "bill_stage",
            "counting",
            "dispatch",
            "immediate_done",
        ):
            m.d.comb += getattr(self, name).eq(getattr(dispatcher, name))
        self._profile(m, done)
        return m

    def _profile(self, m: Module, done: dict[str, Any]) -> None:
        """Connects every counter's event and the stage it belongs to."""
        profile, dispatcher, scoreboard = self.profile, self.dispatcher, self.dispatcher.scoreboard
        dispatch, counting = dispatcher.dispatch, dispatcher.counting
        events: dict[str, tuple[object, object]] = {
            "wall": (counting, dispatcher.bill_stage),
            "dispatched": (dispatch.valid, dispatch.stage),
            "completed_immediate": (
                dispatcher.immediate_done.valid,
                dispatcher.immediate_done.tag.stage,
            ),
            "multipliers": (self.matrix.mac_busy, self.matrix.mac_tag.stage),
        }
        for name in COMPLETIONS:
            events[f"completed_{name}"] = (done[name].valid, done[name].tag.stage)
        busy = {}
        for unit in Unit:
            name = unit.name.lower()
            here = dispatcher.immediate_done.valid & (dispatch.unit == unit)
            if unit is Unit.CONTROL:
                events[f"busy_{name}"] = (here, dispatch.stage)
            else:
                tracked = getattr(scoreboard, f"busy_{name}")
                stage = getattr(scoreboard, f"busy_stage_{name}")
                events[f"busy_{name}"] = (tracked | here, Mux(tracked, stage, dispatch.stage))
            busy[name] = Signal(name=f"busy_{name}")
            m.d.comb += busy[name].eq(events[f"busy_{name}"][0])
        for reason in Stall:
            if reason is not Stall.NONE:
                stage = dispatcher.bill_stage if reason is Stall.DRAIN else dispatch.stage
                events[f"stall_{reason.name.lower()}"] = (
                    counting & (dispatcher.stall == reason),
                    stage,
                )
        request = self.hbm.request
        accepted = request.valid & request.ready
        events["hbm_reads"] = (accepted & ~request.payload.write, request.payload.tag.stage)
        events["hbm_writes"] = (accepted & request.payload.write, request.payload.tag.stage)
        for name in COUNTERS:
            en, stage = events[name]
            m.d.comb += [
                getattr(profile, f"{name}_en").eq(en),
                getattr(profile, f"{name}_stage").eq(stage),
            ]
        flags = Cat(*busy.values())
        m.d.comb += [
            profile.overlap_en.eq((flags & (flags - 1))[: len(flags)] != 0),
            profile.read_counter.eq(self.profile_counter),
            profile.read_stage.eq(self.profile_stage),
            self.profile_value.eq(profile.read_value),
        ]
