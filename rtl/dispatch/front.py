"""What the parts of the dispatcher share about the instruction at dispatch, and its verdict."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Signal, Value

from isa.opcodes import Op
from isa.operands import FIELDS
from isa.traps import Trap
from rtl.dispatch.addresses import AddressResolver
from rtl.dispatch.decode import Decoder
from rtl.dispatch.loops import LoopStack
from rtl.dispatch.policy import TopkPolicy
from rtl.dispatch.registers import RegisterFile


@dataclass(frozen=True)
class Front:
    """The instruction at dispatch: word, tag, decoded control, register values, addresses."""

    pc: Any
    word: Signal
    stage: Any
    decoder: Decoder
    resolver: AddressResolver
    policy: TopkPolicy
    gp: RegisterFile
    f: RegisterFile
    loops: LoopStack

    def field(self, name: str) -> Value:
        """A field of the word."""
        f = FIELDS[name]
        return self.word[f.base : f.base + f.width]

    @property
    def control(self) -> Any:
        """The decoded control bits."""
        return self.decoder.control

    @property
    def op(self) -> Any:
        """The opcode."""
        return self.decoder.op


class Verdict:
    """Whether the instruction may go, as far as it alone decides.

    `registers_wait`: a register that it reads or writes is still to be written by a unit; until
    then nothing that depends on register values counts. `trap` and `operand`: the first rule that
    it breaks (NONE when it breaks none); `illegal` is set when the word alone breaks it.
    """

    def __init__(self) -> None:
        self.registers_wait = Signal()
        self.illegal = Signal()
        self.trap: Any = Signal(Trap)
        self.operand = Signal(64)

    def build(self, front: Front) -> Module:
        """The logic, as a module of its own."""
        m = Module()
        control, decoder, resolver = front.control, front.decoder, front.resolver
        policy = front.policy
        gp, f, loops = front.gp, front.f, front.loops
        rd, rs1, rs2 = (front.field(name) for name in ("rd", "rs1", "rs2"))
        m.d.comb += self.registers_wait.eq(
            (control.gp_reads.rd & gp.pending.bit_select(rd, 1))
            | (control.gp_reads.rs1 & gp.pending.bit_select(rs1, 1))
            | (control.gp_reads.rs2 & gp.pending.bit_select(rs2, 1))
            | (control.gp_writes & gp.pending.bit_select(rd, 1))
            | (control.f_reads.rd & f.pending.bit_select(rd, 1))
            | (control.f_reads.rs1 & f.pending.bit_select(rs1, 1))
            | (control.f_reads.rs2 & f.pending.bit_select(rs2, 1))
            | (control.f_writes & f.pending.bit_select(rd, 1))
        )
        is_start, is_end = front.op == Op.C_LOOP_START, front.op == Op.C_LOOP_END
        wrong_loop = loops.empty | (loops.top_register != rd)
        # In order of priority: what the word alone breaks, then loops, top-k policy, addresses.
        by_word = (
            (~decoder.legal_opcode, Trap.ILLEGAL_OPCODE),
            (~decoder.legal_encoding, Trap.ILLEGAL_ENCODING),
            (~decoder.legal_registers, Trap.REGISTER_INDEX),
        )
        rules: tuple[tuple[Any, Trap, Any], ...] = (
            *((broken, trap, front.word) for broken, trap in by_word),
            (is_start & (front.field("imm22") == 0), Trap.LOOP_COUNT_ZERO, 0),
            (is_start & loops.full, Trap.LOOP_OVERFLOW, loops.level),
            (is_end & wrong_loop, Trap.LOOP_MISMATCH, rd),
            (policy.unset, Trap.TOPK_POLICY_UNSET, 0),
            (policy.out_of_range, Trap.TOPK_POLICY_RANGE, policy.policy),
            (resolver.matrix_bad, Trap.MATRIX_ADDRESS, resolver.matrix_address),
            (resolver.vector_bad, Trap.VECTOR_ADDRESS, resolver.vector_address),
            (resolver.fp_bad, Trap.FP_MEM_ADDRESS, resolver.word_address),
            (resolver.int_bad, Trap.INT_MEM_ADDRESS, resolver.word_address),
            (resolver.hbm_bad, Trap.HBM_ADDRESS, resolver.hbm_address),
        )
        for number, (broken, trap, operand) in enumerate(rules):
            with m.Elif(broken) if number else m.If(broken):
                m.d.comb += [self.trap.eq(trap), self.operand.eq(operand)]
                if number < len(by_word):
                    m.d.comb += self.illegal.eq(1)
        return m
