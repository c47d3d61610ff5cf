"""The dispatcher: fetches in program order and issues at most one instruction per cycle, stops
precisely."""

from typing import Any

from amaranth.hdl import Cat, MemoryData, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.opcodes import Op, Unit
from isa.stages import Stage
from isa.traps import Trap
from rtl.dispatch.addresses import AddressResolver
from rtl.dispatch.decode import Decoder
from rtl.dispatch.events import COMPLETIONS, Dispatch, Halt, RunState, Stall
from rtl.dispatch.front import Front, Verdict
from rtl.dispatch.immediate import integer_result, sequence, state_registers
from rtl.dispatch.issue import issue
from rtl.dispatch.loops import LoopStack
from rtl.dispatch.policy import TopkPolicy
from rtl.dispatch.registers import f_file, gp_file
from rtl.dispatch.scoreboard import Scoreboard
from rtl.interfaces import (
    PC_BITS,
    SLOT_BITS,
    AddressWrite,
    Completion,
    FpWrite,
    GpWrite,
    Shapes,
)


class Dispatcher(wiring.Component):
    """Fetch, decode, issue.

    Cycle 0 is the cycle after `start`: the word at `entry` is decoded. A taken C_LOOP_END costs one
    cycle like any other instruction. Control and integer instructions are over in their dispatch
    cycle; the others occupy a scoreboard slot until their unit reports completion.

    Members: host side `start` (pulse), `entry`, `length` (words of the program), `serial` (issue
    policy), `imem_write_*`; `state`, `halt`; events `dispatch`, `immediate_done`, `stall`,
    `bill_stage` (whom this cycle belongs to), `counting` (this cycle is part of the run). Unit
    side: an issue stream per unit, the completion ports, register writes.
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
    dispatch: Any
    immediate_done: Any
    stall: Any
    bill_stage: Any
    counting: Any
    matrix_issue: Any
    vector_issue: Any
    scalar_issue: Any
    topk_issue: Any
    hbm_issue: Any
    scalar_fp_write: Any
    vector_fp_write: Any
    scalar_gp_write: Any
    hbm_error: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self.shapes = shapes = Shapes(config)
        self.imem = MemoryData(
            shape=data.StructLayout({"word": 32, "stage": Stage}), depth=config.IMEM_WORDS, init=[]
        )
        self.gp = gp_file()
        self.f = f_file()
        self.a = MemoryData(shape=64, depth=8, init=[])
        self.scoreboard = Scoreboard(config, COMPLETIONS)
        self.loops = LoopStack(config.LOOP_DEPTH)
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
            "dispatch": Out(Dispatch),
            "immediate_done": Out(Completion),
            "stall": Out(Stall),
            "bill_stage": Out(Stage),
            "counting": Out(1),
            "matrix_issue": Out(stream.Signature(shapes.matrix_issue)),
            "vector_issue": Out(stream.Signature(shapes.vector_issue)),
            "scalar_issue": Out(stream.Signature(shapes.scalar_issue)),
            "topk_issue": Out(stream.Signature(shapes.topk_issue)),
            "hbm_issue": Out(stream.Signature(shapes.hbm_issue)),
            "scalar_fp_write": In(FpWrite),
            "vector_fp_write": In(FpWrite),
            "scalar_gp_write": In(GpWrite),
            "hbm_error": In(Completion),
        }
        ports |= {f"{name}_done": In(Completion) for name in COMPLETIONS}
        super().__init__(ports)
        #: State registers, by their names in the ISA.
        self.scale = Signal(32)
        self.stride = Signal(32, init=1)
        self.v_mask = Signal(32)
        self.topk = Signal(32)
        self.topk_valid = Signal()
        #: What the address registers take at the end of this cycle, for the host to watch.
        self.a_write: Any = Signal(AddressWrite)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, scoreboard = self._config, self.scoreboard
        m.submodules.decoder = decoder = Decoder(config)
        m.submodules.resolver = resolver = AddressResolver(config)
        m.submodules.policy = policy = TopkPolicy(config)
        m.submodules.scoreboard = scoreboard
        m.submodules.loops = self.loops
        m.submodules.gp = gp = self.gp
        m.submodules.f = f = self.f
        m.submodules.imem = imem = memory.Memory(self.imem)
        m.submodules.a = address_file = memory.Memory(self.a)
        a_read, a_write = address_file.read_port(domain="comb"), address_file.write_port()

        # Fetch: the read port's address is the next pc, so the word is there one cycle later,
        # behind a taken C_LOOP_END too.
        fetch, host_write = imem.read_port(), imem.write_port()
        fetched: Any = fetch.data
        word = Signal(32)
        stage = Signal(Stage)
        at_end = Signal()
        front = Front(self.pc, word, stage, decoder, resolver, policy, gp, f, self.loops)
        m.d.comb += [
            fetch.en.eq(1),
            word.eq(fetched.word),
            stage.eq(fetched.stage),
            at_end.eq(self.pc == self.length),
            host_write.en.eq(self.imem_write_en),
            host_write.addr.eq(self.imem_write_address),
            host_write.data.eq(Cat(self.imem_write_word, self.imem_write_stage)),
        ]

        # Decode, registers, addresses.
        rd, rs1, rs2 = (front.field(name) for name in ("rd", "rs1", "rs2"))
        for file in (gp, f):
            m.d.comb += [file.index_rd.eq(rd), file.index_rs1.eq(rs1), file.index_rs2.eq(rs2)]
        m.d.comb += [
            decoder.word.eq(word),
            a_read.addr.eq(rs2),
            resolver.control.eq(decoder.control),
            resolver.rd.eq(gp.rd),
            resolver.rs1.eq(gp.rs1),
            resolver.rs2.eq(gp.rs2),
            resolver.imm.eq(front.field("imm18")),
            resolver.base.eq(a_read.data),
            resolver.scale.eq(self.scale),
            resolver.stride.eq(self.stride),
            resolver.use_stride.eq(front.field("rs3") != 0),
            resolver.has_stride_register.eq(rs1 != 0),
            resolver.topk_rows.eq(policy.rows),
            resolver.topk_words.eq(policy.top_k),
            policy.wanted.eq(decoder.control.topk),
            policy.rmask.eq(front.field("rs3")),
            policy.register.eq(self.topk),
            policy.register_valid.eq(self.topk_valid),
            scoreboard.candidate.eq(resolver.footprint),
            scoreboard.stage.eq(stage),
        ]
        verdict = Verdict()
        m.submodules.verdict = verdict.build(front)
        trapping = Signal()
        go = Signal()
        broke = Signal()
        running = Signal()
        stopping = Signal()
        m.d.comb += [
            running.eq(self.state == RunState.RUNNING),
            stopping.eq(self.state == RunState.STOPPING),
            trapping.eq(verdict.illegal | (~verdict.registers_wait & (verdict.trap != Trap.NONE))),
            # C_BREAK is dispatched by halting.
            broke.eq(running & ~at_end & (front.op == Op.C_BREAK) & ~trapping & scoreboard.empty),
        ]
        ends = at_end | trapping | (front.op == Op.C_BREAK)
        m.submodules.decision = self._decision(front, verdict, go, broke, running, stopping, ends)

        # What leaves, and what it does at once.
        leaves = Signal()
        m.d.comb += leaves.eq(go & ~front.control.immediate)
        for unit, stream_ in self._streams.items():
            wanted = leaves & (front.control.unit == unit)
            m.submodules[f"issue_{unit.name.lower()}"] = issue(
                unit,
                stream_,
                wanted,
                front,
                config,
                slot=scoreboard.free_slot,
                v_mask=self.v_mask,
            )
        m.submodules.integer, result = integer_result(front)
        m.submodules.sequence, next_pc = sequence(front, go, self.start, self.entry, a_write)
        m.d.comb += [fetch.addr.eq(next_pc), gp.early_value.eq(result)]
        m.d.sync += self.pc.eq(next_pc)
        m.d.comb += [
            self.a_write.valid.eq(a_write.en),
            self.a_write.index.eq(a_write.addr),
            self.a_write.value.eq(a_write.data),
        ]
        registers = {
            Op.C_SET_SCALE_REG: self.scale,
            Op.C_SET_STRIDE_REG: self.stride,
            Op.C_SET_V_MASK_REG: self.v_mask,
            Op.C_SET_TOPK_REG: self.topk,
        }
        state_registers(m, front, go, registers, self.topk_valid)
        self._book(m, front, leaves)
        self._show(m, front, go | broke)
        self._run_state(m, front, verdict, running, stopping, at_end, trapping, broke)
        return m

    @property
    def _streams(self) -> dict[Unit, Any]:
        return {
            Unit.MATRIX: self.matrix_issue,
            Unit.VECTOR: self.vector_issue,
            Unit.SCALAR: self.scalar_issue,
            Unit.TOPK: self.topk_issue,
            Unit.HBM: self.hbm_issue,
        }

    def _decision(
        self,
        front: Front,
        verdict: Verdict,
        go: Signal,
        broke: Signal,
        running: Signal,
        stopping: Signal,
        ends: Value,
    ) -> Module:
        """Whether the instruction goes; else why not, the first reason that holds."""
        m = Module()
        scoreboard, control = self.scoreboard, front.control
        unit_ready = Signal()
        with m.Switch(control.unit):
            for unit, stream_ in self._streams.items():
                with m.Case(unit):
                    m.d.comb += unit_ready.eq(stream_.ready)
        with m.If(running):
            with m.If(ends):
                m.d.comb += self.stall.eq(Mux(broke, Stall.NONE, Stall.DRAIN))
            with m.Elif(verdict.registers_wait):
                m.d.comb += self.stall.eq(Stall.HAZARD)
            with m.Elif(self.serial & ~scoreboard.empty):
                waits_for = Mux(scoreboard.busy_hbm, Stall.MEMORY, Stall.NO_UNIT)
                m.d.comb += self.stall.eq(waits_for)
            with m.Elif(control.immediate):
                m.d.comb += go.eq(1)
            with m.Elif(scoreboard.conflict):
                m.d.comb += self.stall.eq(Mux(scoreboard.conflict_hbm, Stall.MEMORY, Stall.HAZARD))
            with m.Elif(~unit_ready | scoreboard.full):
                hbm_full = (control.unit == Unit.HBM) & ~unit_ready
                m.d.comb += self.stall.eq(Mux(hbm_full, Stall.MEMORY, Stall.NO_UNIT))
            with m.Else():
                m.d.comb += go.eq(1)
        with m.Elif(stopping):
            m.d.comb += self.stall.eq(Stall.DRAIN)
        return m

    def _book(self, m: Module, front: Front, leaves: Signal) -> None:
        """Scoreboard slots and pending registers: taken at issue, given back at completion."""
        scoreboard, gp, f = self.scoreboard, self.gp, self.f
        rd = front.field("rd")
        m.d.comb += [
            scoreboard.allocate.eq(leaves),
            scoreboard.cancel.eq(self.hbm_error),
            gp.reserve.eq(leaves & front.control.gp_writes),
            gp.reserve_index.eq(rd),
            f.reserve.eq(leaves & front.control.f_writes),
            f.reserve_index.eq(rd),
        ]
        for file, port, write in (
            (gp, "late", self.scalar_gp_write),
            (f, "late", self.scalar_fp_write),
            (f, "late2", self.vector_fp_write),
        ):
            m.d.comb += [
                getattr(file, f"{port}_en").eq(write.valid),
                getattr(file, f"{port}_index").eq(write.index),
                getattr(file, f"{port}_value").eq(write.value),
            ]
        for name in COMPLETIONS:
            m.d.comb += getattr(scoreboard, f"completed_{name}").eq(getattr(self, f"{name}_done"))

    def _show(self, m: Module, front: Front, left: Value) -> None:
        """The events of this cycle."""
        m.d.comb += [
            self.dispatch.valid.eq(left),
            self.dispatch.pc.eq(self.pc),
            self.dispatch.word.eq(front.word),
            self.dispatch.op.eq(front.op),
            self.dispatch.stage.eq(front.stage),
            self.dispatch.unit.eq(front.control.unit),
            self.immediate_done.valid.eq(left & front.control.immediate),
            self.immediate_done.tag.pc.eq(self.pc),
            self.immediate_done.tag.stage.eq(front.stage),
        ]

    def _run_state(
        self,
        m: Module,
        front: Front,
        verdict: Verdict,
        running: Signal,
        stopping: Signal,
        at_end: Signal,
        trapping: Signal,
        broke: Signal,
    ) -> None:
        """Start, orderly end, precise traps, and the memory error, which is not always precise."""
        scoreboard, halt = self.scoreboard, self.halt
        finish = Signal()
        m.d.comb += [
            finish.eq(scoreboard.empty & ((running & (at_end | trapping)) | stopping) & ~broke),
            self.counting.eq((running | stopping) & ~finish),
            self.bill_stage.eq(Mux(scoreboard.empty, front.stage, scoreboard.oldest_stage)),
        ]
        record = self._slot_records(m, front)
        with m.If(self.start):
            m.d.sync += [self.state.eq(RunState.RUNNING), halt.eq(0)]
        with m.Elif(self.hbm_error.valid & running):
            m.d.sync += [
                self.state.eq(RunState.STOPPING),
                halt.cause.eq(Trap.HBM_ADDRESS),
                halt.precise.eq(self.serial),
                halt.pc.eq(self.hbm_error.tag.pc),
                halt.word.eq(record.data.word),
                halt.operand.eq(record.data.operand),
            ]
        with m.Elif(finish | broke):
            m.d.sync += self.state.eq(RunState.HALTED)
            with m.If(running):
                cause = Mux(at_end, Trap.DONE, Mux(broke, Trap.BREAK, verdict.trap))
                m.d.sync += [
                    halt.precise.eq(1),
                    halt.pc.eq(self.pc),
                    halt.word.eq(Mux(at_end, 0, front.word)),
                    halt.operand.eq(Mux(at_end | broke, 0, verdict.operand)),
                    halt.cause.eq(cause),
                ]

    def _slot_records(self, m: Module, front: Front) -> Any:
        """Word and address of every unfinished H_* instruction, for the record of its error."""
        layout = data.StructLayout({"word": 32, "operand": 64})
        m.submodules.records = records = memory.Memory(shape=layout, depth=1 << SLOT_BITS, init=[])
        write, read = records.write_port(), records.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.hbm_issue.valid),
            write.addr.eq(self.scoreboard.free_slot),
            write.data.word.eq(front.word),
            write.data.operand.eq(front.resolver.hbm_address),
            read.addr.eq(self.hbm_error.tag.slot),
        ]
        return read
