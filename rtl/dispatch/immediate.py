"""What is over in its dispatch cycle: integer arithmetic, loops, state registers."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal

from isa.opcodes import Op
from rtl.dispatch.front import Front


def integer_result(front: Front) -> tuple[Module, Signal]:
    """The value that goes to gp[rd], modulo 2^32."""
    m = Module()
    gp = front.gp
    result = Signal(32, name="integer_result")
    values: tuple[tuple[Any, Any], ...] = (
        (Op.S_ADD_INT, gp.rs1 + gp.rs2),
        (Op.S_ADDI_INT, gp.rs1 + front.field("imm18")),
        (Op.S_SUB_INT, gp.rs1 - gp.rs2),
        (Op.S_MUL_INT, gp.rs1 * gp.rs2),
        (Op.S_LUI_INT, front.field("imm22") << 12),
        (Op.C_LOOP_START, front.field("imm22")),
        (Op.C_LOOP_END, Mux(gp.rd > 1, gp.rd - 1, 0)),
    )
    with m.If(front.control.immediate):
        with m.Switch(front.op):
            for op, value in values:
                with m.Case(op):
                    m.d.comb += result.eq(value)
    return m, result


def sequence(front: Front, go: Signal, start: Signal, entry: Signal, a_write: Any) -> Any:
    """The next pc, and what an immediate instruction does at the end of its cycle.

    Returns the module and the next pc. A taken C_LOOP_END goes behind the start of its loop.
    """
    m = Module()
    gp, loops, op = front.gp, front.loops, front.op
    next_pc = Signal.like(front.pc, name="next_pc")
    with m.If(start):
        m.d.comb += next_pc.eq(entry)
    with m.Elif(go):
        m.d.comb += next_pc.eq(front.pc + 1)
        with m.If(front.control.immediate):
            m.d.comb += [
                gp.early_en.eq(front.control.gp_writes),
                a_write.en.eq(front.control.a_writes),
            ]
            with m.If(op == Op.C_LOOP_START):
                m.d.comb += loops.push.eq(1)
            with m.If(op == Op.C_LOOP_END):
                with m.If(gp.rd > 1):
                    m.d.comb += next_pc.eq(loops.top_pc + 1)
                with m.Else():
                    m.d.comb += loops.pop.eq(1)
    with m.Else():
        m.d.comb += next_pc.eq(front.pc)
    m.d.comb += [
        gp.early_index.eq(front.field("rd")),
        a_write.addr.eq(front.field("rd")),
        a_write.data.eq(Cat(gp.rs2, gp.rs1)),
        loops.push_pc.eq(front.pc),
        loops.push_register.eq(front.field("rd")),
    ]
    return m, next_pc


def state_registers(
    m: Module, front: Front, go: Signal, registers: dict[Any, Signal], topk_valid: Signal
) -> None:
    """C_SET_*_REG: `registers` maps the opcode to what it sets."""
    with m.If(go & front.control.immediate):
        with m.Switch(front.op):
            for op, register in registers.items():
                with m.Case(op):
                    m.d.sync += register.eq(front.gp.rd)
                    if op == Op.C_SET_TOPK_REG:
                        m.d.sync += topk_valid.eq(1)
