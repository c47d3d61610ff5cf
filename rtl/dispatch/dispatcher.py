"""The dispatcher: fetches in program order and issues at most one instruction per cycle, stops precisely."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.opcodes import Op, Unit
from isa.operands import FIELDS
from isa.stages import Stage
from isa.traps import Trap
from rtl.dispatch.addresses import AddressResolver
from rtl.dispatch.decode import Decoder
from rtl.dispatch.loops import LoopStack
from rtl.dispatch.registers import f_file, gp_file
from rtl.dispatch.scoreboard import Scoreboard
from rtl.interfaces import PC_BITS, SLOT_BITS, Completion, FpWrite, GpWrite, Shapes

#: Completion ports of the units: a unit has one per kind of work that can finish in the same cycle.
COMPLETIONS = ("matrix_product", "matrix_write", "vector", "vector_reduce", "scalar", "hbm")


class RunState(enum.Enum, shape=2):
    """What the machine as a whole is doing."""

    IDLE = 0
    RUNNING = 1
    STOPPING = 2  # the memory answered with an error; unfinished instructions drain, nothing is issued
    HALTED = 3


class Stall(enum.Enum, shape=3):
    """Why no instruction was dispatched in a cycle."""

    NONE = 0  # one was
    NO_UNIT = 1  # its unit or every slot is taken (under `serial`: something is unfinished)
    HAZARD = 2  # an older unfinished instruction conflicts with it
    MEMORY = 3  # it waits for an unfinished H_* instruction, or for room in the HBM port
    FETCH = 4  # the word is not there yet
    DRAIN = 5  # the program is over, or about to stop: unfinished instructions complete


class Halt(data.Struct):
    """The halt record (isa.md, "Traps"); valid while the machine is halted."""

    cause: Trap
    precise: 1
    pc: PC_BITS
    word: 32
    operand: 64


class Dispatch(data.Struct):
    """An instruction leaves the dispatcher in this cycle."""

    valid: 1
    pc: PC_BITS
    word: 32
    op: Op
    stage: Stage
    unit: Unit


class Dispatcher(wiring.Component):
    """Fetch, decode, issue.

    Cycle 0 is the cycle after `start`: the word at `entry` is decoded. A taken C_LOOP_END costs one cycle like any
    other instruction. Control and integer instructions are over in their dispatch cycle; the others occupy a
    scoreboard slot until their unit reports completion.

    Members: host side `start` (pulse), `entry`, `length` (words of the program), `serial` (issue policy),
    `imem_write_*`; `state`, `halt`; events `dispatch`, `immediate_done`, `stall`, `bill_stage` (whom this cycle
    belongs to), `counting` (this cycle is part of the run). Unit side: an issue stream per unit, the completion
    ports, register writes.
    """

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self.shapes = shapes = Shapes(config)
        self.imem = memory.MemoryData(
            shape=data.StructLayout({"word": 32, "stage": Stage}), depth=config.IMEM_WORDS, init=[]
        )
        self.gp = gp_file()
        self.f = f_file()
        self.a = memory.MemoryData(shape=64, depth=8, init=[])
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

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.decoder = decoder = Decoder(config)
        m.submodules.resolver = resolver = AddressResolver(config)
        m.submodules.scoreboard = scoreboard = self.scoreboard
        m.submodules.loops = loops = self.loops
        m.submodules.gp = gp = self.gp
        m.submodules.f = f = self.f
        m.submodules.imem = imem = memory.Memory(self.imem)
        m.submodules.a = address_file = memory.Memory(self.a)

        # Fetch: the read port's address is the next pc, so the word is there one cycle later, loops included.
        fetch = imem.read_port()
        next_pc = Signal(PC_BITS)
        word = Signal(32)
        stage = Signal(Stage)
        at_end = Signal()
        host_write = imem.write_port()
        m.d.comb += [
            fetch.en.eq(1),
            fetch.addr.eq(next_pc),
            word.eq(fetch.data.word),
            stage.eq(fetch.data.stage),
            at_end.eq(self.pc == self.length),
            host_write.en.eq(self.imem_write_en),
            host_write.addr.eq(self.imem_write_address),
            host_write.data.word.eq(self.imem_write_word),
            host_write.data.stage.eq(self.imem_write_stage),
        ]

        def field(name: str):
            f_ = FIELDS[name]
            return word[f_.base : f_.base + f_.width]

        control = decoder.control
        op = decoder.op
        rd, rs1, rs2 = field("rd"), field("rs1"), field("rs2")
        a_read = address_file.read_port(domain="comb")
        a_write = address_file.write_port()
        m.d.comb += [
            decoder.word.eq(word),
            gp.index_rd.eq(rd),
            gp.index_rs1.eq(rs1),
            gp.index_rs2.eq(rs2),
            f.index_rd.eq(rd),
            f.index_rs1.eq(rs1),
            f.index_rs2.eq(rs2),
            a_read.addr.eq(rs2),
            resolver.control.eq(control),
            resolver.rd.eq(gp.rd),
            resolver.rs1.eq(gp.rs1),
            resolver.rs2.eq(gp.rs2),
            resolver.imm.eq(field("imm18")),
            resolver.base.eq(a_read.data),
            resolver.scale.eq(self.scale),
            resolver.stride.eq(self.stride),
            resolver.use_stride.eq(field("rs3") != 0),
            resolver.has_stride_register.eq(rs1 != 0),
            scoreboard.candidate.eq(resolver.footprint),
            scoreboard.stage.eq(stage),
        ]

        # Verdicts. A register that a unit will still write is waited for before anything depends on its value.
        registers_wait = Signal()
        illegal = Signal(Trap)
        trap = Signal(Trap)
        operand = Signal(64)
        m.submodules.verdict = verdict = Module()
        with verdict.If(~decoder.legal_opcode):
            verdict.d.comb += illegal.eq(Trap.ILLEGAL_OPCODE)
        with verdict.Elif(~decoder.legal_encoding):
            verdict.d.comb += illegal.eq(Trap.ILLEGAL_ENCODING)
        with verdict.Elif(~decoder.legal_registers):
            verdict.d.comb += illegal.eq(Trap.REGISTER_INDEX)
        verdict.d.comb += registers_wait.eq(
            (control.gp_reads.rd & gp.pending.bit_select(rd, 1))
            | (control.gp_reads.rs1 & gp.pending.bit_select(rs1, 1))
            | (control.gp_reads.rs2 & gp.pending.bit_select(rs2, 1))
            | (control.gp_writes & gp.pending.bit_select(rd, 1))
            | (control.f_reads.rd & f.pending.bit_select(rd, 1))
            | (control.f_reads.rs1 & f.pending.bit_select(rs1, 1))
            | (control.f_reads.rs2 & f.pending.bit_select(rs2, 1))
            | (control.f_writes & f.pending.bit_select(rd, 1))
        )
        is_loop_start, is_loop_end = op == Op.C_LOOP_START, op == Op.C_LOOP_END
        with verdict.If(illegal != Trap.NONE):
            verdict.d.comb += [trap.eq(illegal), operand.eq(word)]
        with verdict.Elif(is_loop_start & (field("imm22") == 0)):
            verdict.d.comb += trap.eq(Trap.LOOP_COUNT_ZERO)
        with verdict.Elif(is_loop_start & loops.full):
            verdict.d.comb += [trap.eq(Trap.LOOP_OVERFLOW), operand.eq(loops.level)]
        with verdict.Elif(is_loop_end & (loops.empty | (loops.top_register != rd))):
            verdict.d.comb += [trap.eq(Trap.LOOP_MISMATCH), operand.eq(rd)]
        with verdict.Elif(resolver.matrix_bad):
            verdict.d.comb += [trap.eq(Trap.MATRIX_ADDRESS), operand.eq(resolver.matrix_address)]
        with verdict.Elif(resolver.vector_bad):
            verdict.d.comb += [trap.eq(Trap.VECTOR_ADDRESS), operand.eq(resolver.vector_address)]
        with verdict.Elif(resolver.fp_bad):
            verdict.d.comb += [trap.eq(Trap.FP_MEM_ADDRESS), operand.eq(resolver.word_address)]
        with verdict.Elif(resolver.int_bad):
            verdict.d.comb += [trap.eq(Trap.INT_MEM_ADDRESS), operand.eq(resolver.word_address)]
        with verdict.Elif(resolver.hbm_bad):
            verdict.d.comb += [trap.eq(Trap.HBM_ADDRESS), operand.eq(resolver.hbm_address)]

        # Decision, in the order in which a reason is reported.
        running = Signal()
        unit_ready = Signal()
        trapping = Signal()
        stopping = Signal()  # this instruction ends the run once everything older is finished
        go = Signal()
        m.d.comb += running.eq(self.state == RunState.RUNNING)
        m.submodules.decision = decision = Module()
        with decision.Switch(control.unit):
            for unit, issue in (
                (Unit.MATRIX, self.matrix_issue),
                (Unit.VECTOR, self.vector_issue),
                (Unit.SCALAR, self.scalar_issue),
                (Unit.HBM, self.hbm_issue),
            ):
                with decision.Case(unit):
                    decision.d.comb += unit_ready.eq(issue.ready)
        decision.d.comb += [
            trapping.eq((illegal != Trap.NONE) | (~registers_wait & (trap != Trap.NONE))),
            stopping.eq(trapping | (op == Op.C_BREAK)),
        ]
        with decision.If(running):
            with decision.If(at_end | stopping):
                decision.d.comb += self.stall.eq(Stall.DRAIN)
            with decision.Elif(registers_wait):
                decision.d.comb += self.stall.eq(Stall.HAZARD)
            with decision.Elif(self.serial & ~scoreboard.empty):
                decision.d.comb += self.stall.eq(Mux(scoreboard.busy_hbm, Stall.MEMORY, Stall.NO_UNIT))
            with decision.Elif(control.immediate):
                decision.d.comb += go.eq(1)
            with decision.Elif(scoreboard.conflict):
                decision.d.comb += self.stall.eq(Mux(scoreboard.conflict_hbm, Stall.MEMORY, Stall.HAZARD))
            with decision.Elif(~unit_ready | scoreboard.full):
                decision.d.comb += self.stall.eq(
                    Mux((control.unit == Unit.HBM) & ~unit_ready, Stall.MEMORY, Stall.NO_UNIT)
                )
            with decision.Else():
                decision.d.comb += go.eq(1)
        with decision.Elif(self.state == RunState.STOPPING):
            decision.d.comb += self.stall.eq(Stall.DRAIN)

        broke = Signal()  # C_BREAK is dispatched by halting
        m.d.comb += broke.eq(running & ~at_end & (op == Op.C_BREAK) & ~trapping & scoreboard.empty)
        self._issue(m, go, broke, word, stage, field)
        self._immediate(m, go, stage, field, next_pc, a_write)

        # The run's end: DONE and traps are noticed when nothing is unfinished.
        finish = Signal()
        m.d.comb += [
            finish.eq(
                scoreboard.empty & ((running & (at_end | trapping)) | (self.state == RunState.STOPPING)) & ~broke
            ),
            self.counting.eq((running | (self.state == RunState.STOPPING)) & ~finish),
            self.bill_stage.eq(Mux(scoreboard.empty, stage, scoreboard.oldest_stage)),
        ]
        slot_record = self._slot_records(m, word, resolver.hbm_address)
        with m.If(self.start):
            m.d.sync += [self.state.eq(RunState.RUNNING), self.pc.eq(self.entry), self.halt.eq(0)]
        with m.Elif(self.hbm_error.valid & running):
            m.d.sync += [
                self.state.eq(RunState.STOPPING),
                self.halt.cause.eq(Trap.HBM_ADDRESS),
                self.halt.precise.eq(self.serial),
                self.halt.pc.eq(self.hbm_error.tag.pc),
                self.halt.word.eq(slot_record.data.word),
                self.halt.operand.eq(slot_record.data.operand),
            ]
        with m.Elif(finish | broke):
            m.d.sync += self.state.eq(RunState.HALTED)
            with m.If(running):
                m.d.sync += [
                    self.halt.precise.eq(1),
                    self.halt.pc.eq(self.pc),
                    self.halt.word.eq(Mux(at_end, 0, word)),
                    self.halt.operand.eq(Mux(at_end | broke, 0, operand)),
                    self.halt.cause.eq(Mux(at_end, Trap.DONE, Mux(broke, Trap.BREAK, trap))),
                ]
        with m.If(~self.start):
            m.d.sync += self.pc.eq(next_pc)
        return m

    def _slot_records(self, m: Module, word: Signal, operand: Signal) -> memory.ReadPort:
        """Word and address of every unfinished instruction, for the record of a memory error."""
        record = data.StructLayout({"word": 32, "operand": 64})
        m.submodules.records = records = memory.Memory(shape=record, depth=1 << SLOT_BITS, init=[])
        write, read = records.write_port(), records.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.hbm_issue.valid),
            write.addr.eq(self.scoreboard.free_slot),
            write.data.word.eq(word),
            write.data.operand.eq(operand),
            read.addr.eq(self.hbm_error.tag.slot),
        ]
        return read

    def _issue(self, m: Module, go: Signal, broke: Signal, word: Signal, stage: Signal, field) -> None:
        """Drives the units' issue streams and the scoreboard for the instruction that leaves."""
        decoder, resolver, scoreboard = m.submodules.decoder, m.submodules.resolver, self.scoreboard
        control, op, f, gp = decoder.control, decoder.op, self.f, self.gp
        heads = self._config.heads
        leaves = Signal()  # to a unit
        m.d.comb += leaves.eq(go & ~control.immediate)
        units = (
            (Unit.MATRIX, self.matrix_issue),
            (Unit.VECTOR, self.vector_issue),
            (Unit.SCALAR, self.scalar_issue),
            (Unit.HBM, self.hbm_issue),
        )
        footprint = resolver.footprint
        for unit, issue in units:
            name = f"issue_{unit.name.lower()}"
            m.submodules[name] = box = Module()
            p = issue.payload
            with box.If(leaves & (control.unit == unit)):
                box.d.comb += [
                    issue.valid.eq(1),
                    p.tag.pc.eq(self.pc),
                    p.tag.stage.eq(stage),
                    p.tag.slot.eq(scoreboard.free_slot),
                    p.op.eq(op),
                ]
                if unit is Unit.MATRIX:
                    box.d.comb += [
                        p.tile.eq(footprint.tile),
                        p.index.eq(resolver.tile_index),
                        p.row.eq(Mux(footprint.a_valid, footprint.a_first, footprint.w_first)),
                        p.lane.eq(resolver.lane),
                        p.stride.eq(resolver.row_stride),
                    ]
                elif unit is Unit.VECTOR:
                    shift = Mux(gp.rs2 > self._config.MLEN, self._config.MLEN, gp.rs2)
                    box.d.comb += [
                        p.a_row.eq(footprint.a_first),
                        p.b_row.eq(footprint.b_row),
                        p.d_row.eq(footprint.w_first),
                        p.scalar.eq(Mux(control.f_writes, f.rd, f.rs2)),
                        p.f_index.eq(field("rd")),
                        p.heads.eq(Mux(control.masked & (field("rs3") == 1), self.v_mask, (1 << heads) - 1)),
                        p.reverse.eq(control.masked & (field("funct1") == 1)),
                        p.shift.eq(shift),
                    ]
                elif unit is Unit.SCALAR:
                    box.d.comb += [
                        p.a.eq(Mux(control.f_reads.rd, f.rd, f.rs1)),
                        p.b.eq(f.rs2),
                        p.address.eq(resolver.word),
                        p.row.eq(footprint.w_first),
                        p.index.eq(field("rd")),
                        p.value.eq(gp.rd),
                    ]
                else:
                    box.d.comb += [
                        p.elements.eq(resolver.hbm_elements),
                        p.scales.eq(resolver.hbm_scales),
                        p.stride.eq(resolver.hbm_stride),
                        p.row.eq(
                            Mux(
                                control.m_writes,
                                footprint.tile,
                                Mux(control.w_valid, footprint.w_first, footprint.a_first),
                            )
                        ),
                        p.precision.eq(field("funct1")),
                    ]
        m.d.comb += [
            scoreboard.allocate.eq(leaves),
            scoreboard.cancel.eq(self.hbm_error),
            gp.reserve.eq(leaves & control.gp_writes),
            gp.reserve_index.eq(field("rd")),
            f.reserve.eq(leaves & control.f_writes),
            f.reserve_index.eq(field("rd")),
            gp.late_en.eq(self.scalar_gp_write.valid),
            gp.late_index.eq(self.scalar_gp_write.index),
            gp.late_value.eq(self.scalar_gp_write.value),
        ]
        for port, write in (("late", self.scalar_fp_write), ("late2", self.vector_fp_write)):
            m.d.comb += [
                getattr(f, f"{port}_en").eq(write.valid),
                getattr(f, f"{port}_index").eq(write.index),
                getattr(f, f"{port}_value").eq(write.value),
            ]
        for name in COMPLETIONS:
            m.d.comb += getattr(scoreboard, f"completed_{name}").eq(getattr(self, f"{name}_done"))
        left = go | broke
        m.d.comb += [
            self.dispatch.valid.eq(left),
            self.dispatch.pc.eq(self.pc),
            self.dispatch.word.eq(word),
            self.dispatch.op.eq(op),
            self.dispatch.stage.eq(stage),
            self.dispatch.unit.eq(control.unit),
            self.immediate_done.valid.eq(left & control.immediate),
            self.immediate_done.tag.pc.eq(self.pc),
            self.immediate_done.tag.stage.eq(stage),
        ]

    def _immediate(self, m: Module, go: Signal, stage: Signal, field, next_pc: Signal, a_write) -> None:
        """Executes what is over in its dispatch cycle: integer arithmetic, state registers, loops; and the next pc."""
        decoder, loops, gp = m.submodules.decoder, self.loops, self.gp
        control, op = decoder.control, decoder.op
        m.submodules.integer = alu = Module()
        result = Signal(32)
        with alu.If(control.immediate):
            with alu.Switch(op):
                for member, value in (
                    (Op.S_ADD_INT, gp.rs1 + gp.rs2),
                    (Op.S_ADDI_INT, gp.rs1 + field("imm18")),
                    (Op.S_SUB_INT, gp.rs1 - gp.rs2),
                    (Op.S_MUL_INT, gp.rs1 * gp.rs2),
                    (Op.S_LUI_INT, field("imm22") << 12),
                    (Op.C_LOOP_START, field("imm22")),
                    (Op.C_LOOP_END, Mux(gp.rd > 1, gp.rd - 1, 0)),
                ):
                    with alu.Case(member):
                        alu.d.comb += result.eq(value)
        m.submodules.sequence = sequence = Module()
        again = gp.rd > 1
        with sequence.If(self.start):
            sequence.d.comb += next_pc.eq(self.entry)
        with sequence.Elif(go):
            sequence.d.comb += next_pc.eq(self.pc + 1)
            with sequence.If(control.immediate):
                sequence.d.comb += [gp.early_en.eq(control.gp_writes), a_write.en.eq(control.a_writes)]
                with sequence.If(op == Op.C_LOOP_START):
                    sequence.d.comb += loops.push.eq(1)
                with sequence.If(op == Op.C_LOOP_END):
                    with sequence.If(again):
                        sequence.d.comb += next_pc.eq(loops.top_pc + 1)
                    with sequence.Else():
                        sequence.d.comb += loops.pop.eq(1)
        with sequence.Else():
            sequence.d.comb += next_pc.eq(self.pc)
        m.d.comb += [
            gp.early_index.eq(field("rd")),
            gp.early_value.eq(result),
            a_write.addr.eq(field("rd")),
            a_write.data.eq(Cat(gp.rs2, gp.rs1)),
            loops.push_pc.eq(self.pc),
            loops.push_register.eq(field("rd")),
        ]
        with m.If(go & control.immediate):
            with m.Switch(op):
                for member, register in (
                    (Op.C_SET_SCALE_REG, self.scale),
                    (Op.C_SET_STRIDE_REG, self.stride),
                    (Op.C_SET_V_MASK_REG, self.v_mask),
                ):
                    with m.Case(member):
                        m.d.sync += register.eq(gp.rd)
                with m.Case(Op.C_SET_TOPK_REG):
                    m.d.sync += [self.topk.eq(gp.rd), self.topk_valid.eq(1)]
