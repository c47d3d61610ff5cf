"""What the parts of the matrix unit tell each other about an instruction and its rows."""

from amaranth.hdl import Module
from amaranth.lib import data, enum
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from isa.opcodes import OPCODES, State, Unit
from rtl.interfaces import Shapes, Tag

__all__ = ["Acc", "decode", "group_bits", "slot_layout", "work_layout", "write_out_layout"]

TRANSPOSED = ("M_TMM", "M_TMV", "M_BTMM", "M_BTMV")


class Acc(enum.IntEnum, shape=2):
    """The accumulator of an instruction. Bit 0: it holds one row; bit 1: something per head."""

    M_ACC = 0
    V_ACC = 1
    HM_ACC = 2
    HV_ACC = 3


def group_bits(config: PlenaConfig) -> int:
    """Bits of the number of a group of BLEN columns; at least 1."""
    return max(1, exact_log2(config.MLEN // config.BLEN))


def write_out_layout(config: PlenaConfig) -> data.StructLayout:
    """Where a write-out puts its accumulator."""
    shapes = Shapes(config)
    return data.StructLayout(
        {
            "valid": 1,
            "acc": Acc,
            "tag": Tag,
            "row": shapes.row_bits,
            "lane": shapes.lane_bits,
            "stride": shapes.row_bits,
        }
    )


def slot_layout(config: PlenaConfig) -> data.StructLayout:
    """What enters the pipeline in a cycle: a row of activations, a write-out, both, or nothing."""
    return data.StructLayout(
        {
            "valid": 1,  # there is a row
            "acc": Acc,  # that its sums are added to
            "row": Shapes(config).lane_bits,  # which one of its instruction's
            "group": group_bits(config),  # per head: of the BLEN columns that its sums belong to
            "last": 1,  # of its instruction
            "tag": Tag,
            "write_out": write_out_layout(config),  # happens after this slot's row is added
        }
    )


def work_layout(config: PlenaConfig) -> data.StructLayout:
    """An instruction that waits: its payload, with the opcode taken apart."""
    decoded = {"acc": Acc, "write_out": 1, "transposed": 1}
    payload = {name: field.shape for name, field in Shapes(config).matrix_issue}
    return data.StructLayout(decoded | {n: shape for n, shape in payload.items() if n != "op"})


def decode(payload: data.View, work: data.View) -> Module:
    """Drive `work` with the instruction in the issue payload."""
    m = Module()
    for name in payload.shape().members:
        if name != "op":
            m.d.comb += work[name].eq(payload[name])
    with m.Switch(payload.op):
        for row in OPCODES.values():
            if row.unit is Unit.MATRIX:
                acc = next(acc for acc in Acc if row.access(State[acc.name], writes=True))
                with m.Case(row.code):
                    m.d.comb += [
                        work.acc.eq(acc),
                        work.write_out.eq(bool(row.access(State.VECTOR_SRAM, writes=True))),
                        work.transposed.eq(row.mnemonic in TRANSPOSED),
                    ]
    return m
