"""The payload of every unit's issue stream, from the instruction at dispatch."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, ValueLike

from isa.config import PlenaConfig
from isa.opcodes import Unit
from rtl.dispatch.front import Front


def operands(unit: Unit, front: Front, config: PlenaConfig, v_mask: Signal) -> dict[str, ValueLike]:
    """The fields of `unit`'s payload beyond tag and opcode: addresses resolved, registers read."""
    resolver, control, gp, f = front.resolver, front.control, front.gp, front.f
    footprint = resolver.footprint
    if unit is Unit.MATRIX:
        return {
            "tile": footprint.tile,
            "index": resolver.tile_index,
            "row": Mux(footprint.a_valid, footprint.a_first, footprint.w_first),
            "lane": resolver.lane,
            "stride": resolver.row_stride,
        }
    if unit is Unit.VECTOR:
        masked = control.masked & (front.field("rs3") == 1)
        return {
            "a_row": footprint.a_first,
            "b_row": footprint.b_row,
            "d_row": footprint.w_first,
            "scalar": Mux(control.f_writes, f.rd, f.rs2),
            "f_index": front.field("rd"),
            "heads": Mux(masked, v_mask, (1 << config.heads) - 1),
            "reverse": control.masked & (front.field("funct1") == 1),
            "shift": Mux(gp.rs2 > config.MLEN, config.MLEN, gp.rs2),
        }
    if unit is Unit.SCALAR:
        return {
            "a": Mux(control.f_reads.rd, f.rd, f.rs1),
            "b": f.rs2,
            "address": resolver.word,
            "row": footprint.w_first,
            "index": front.field("rd"),
            "value": gp.rd,
        }
    if unit is Unit.TOPK:
        return {
            "row": footprint.a_first,
            "num_experts": front.policy.num_experts,
            "top_k": front.policy.top_k,
            "index_address": gp.rs2,
            "weight_address": gp.rd,
        }
    vector_row = Mux(control.w_valid, footprint.w_first, footprint.a_first)
    return {
        "elements": resolver.hbm_elements,
        "scales": resolver.hbm_scales,
        "stride": resolver.hbm_stride,
        "row": Mux(control.m_writes, footprint.tile, vector_row),
        "precision": front.field("funct1"),
    }


def issue(
    unit: Unit,
    stream: Any,
    valid: ValueLike,
    front: Front,
    config: PlenaConfig,
    *,
    slot: Signal,
    v_mask: Signal,
) -> Module:
    """Drives `stream` while `valid`; a module per unit, so that only the addressed one toggles."""
    m = Module()
    payload = stream.payload
    with m.If(valid):
        m.d.comb += [
            stream.valid.eq(1),
            payload.tag.pc.eq(front.pc),
            payload.tag.stage.eq(front.stage),
            payload.tag.slot.eq(slot),
            payload.op.eq(front.op),
        ]
        for name, value in operands(unit, front, config, v_mask).items():
            m.d.comb += payload[name].eq(value)
    return m
