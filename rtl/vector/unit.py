"""The vector unit: operand fetch, lanes, write-back, reductions."""

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from isa.opcodes import Op
from rtl.interfaces import BF16_BITS, Completion, FpWrite, Shapes, Tag
from rtl.leaves import BF16Exp, BF16Reciprocal

from .lanes import AddLanes, ClampLanes, MultiplyLanes, ShiftLanes
from .reduce import Reduction
from .special import SpecialLanes

__all__ = ["VectorUnit"]


class Kind(enum.Enum, shape=3):  # pyright: ignore
    """The part of the unit that executes an instruction."""

    ADD = 0
    MULTIPLY = 1
    CLAMP = 2
    SHIFT = 3
    EXP = 4
    RECIPROCAL = 5
    SUM = 6
    MAXIMUM = 7


OPS: dict[Any, tuple[Any, ...]] = {
    Kind.ADD: (Op.V_ADD_VV, Op.V_ADD_VF, Op.V_SUB_VV, Op.V_SUB_VF),
    Kind.MULTIPLY: (Op.V_MUL_VV, Op.V_MUL_VF),
    Kind.CLAMP: (Op.V_MAX_VF, Op.V_MIN_VF),
    Kind.SHIFT: (Op.V_SHFT_V,),
    Kind.EXP: (Op.V_EXP_V,),
    Kind.RECIPROCAL: (Op.V_RECI_V,),
    Kind.SUM: (Op.V_RED_SUM,),
    Kind.MAXIMUM: (Op.V_RED_MAX,),
}
SPECIAL = (Kind.EXP, Kind.RECIPROCAL)
REDUCTIONS = (Kind.SUM, Kind.MAXIMUM)
WITH_SCALAR = (Op.V_ADD_VF, Op.V_SUB_VF, Op.V_MUL_VF)
SUBTRACT = (Op.V_SUB_VV, Op.V_SUB_VF)
TWO_ROWS = (Op.V_ADD_VV, Op.V_SUB_VV, Op.V_MUL_VV)


class VectorUnit(wiring.Component):
    """Execute V_* (but V_TOPK) in program order, a row of MLEN lanes per instruction.

    Members
    -------
    issue : In(stream of shapes.vector_issue)
        ``heads`` must be all ones for V_SHFT_V, which has no mask; ``shift`` at most MLEN.
    a_read, b_read : Out(shapes.vram_read)
    write : Out(shapes.vram_write)
        Always whole rows: the lanes of heads that are off are written with V[rs1].
    done : Out(Completion)
        Of the instructions that write the vector SRAM, in the cycle of their ``write``.
    reduce_done : Out(Completion)
        Of V_RED_SUM and V_RED_MAX, in the cycle of their ``fp_write``.
    fp_write : Out(FpWrite)

    Cycle 0 is the one with ``issue.valid`` and ``issue.ready``; P = MLEN / SFU_LANES passes; n is
    log2(MLEN)::

        cycle            0         1              2               3            after
        element-wise     address   row -> lanes   lanes -> row    write, done
        exp, reciprocal  address   pass 0 in      pass 0 out,     pass 1 out,  P + 1: pass P-1 out
                                                  pass 1 in       pass 2 in    P + 2: write, done
        reductions       address   row -> tree    tree level 1    tree level 2 n + 2: with f
                                                                               n + 3: fp_write,
                                                                                      reduce_done

    An instruction per cycle; exp and reciprocal take P, with ``ready`` low for the P - 1 cycles
    after their cycle 0. An instruction issued in the cycle after ``done`` reads the row that was
    written.

    Order within the unit: an instruction reads in its cycle 0 and writes three cycles later or
    more, and the rows are written in issue order, so write-after-read and write-after-write need no
    care outside. Reductions complete in order among themselves, independently of the others.
    Read-after-write is the dispatcher's.

    Stages, by the prefix of their signals::

        issue --a_read, b_read--> x_ operands --lanes--> w_ result --> write
                                       \\------ reduction ------> fp_write

    Every kind of lane has operand registers of its own that load only for its instructions, so that
    nothing else moves.
    """

    issue: stream.Interface
    a_read: Any
    b_read: Any
    write: Any
    done: data.View
    reduce_done: data.View
    fp_write: data.View

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._shapes = shapes = Shapes(config)
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.vector_issue)),
                "a_read": Out(shapes.vram_read),
                "b_read": Out(shapes.vram_read),
                "write": Out(shapes.vram_write),
                "done": Out(Completion),
                "reduce_done": Out(Completion),
                "fp_write": Out(FpWrite),
            }
        )

    @property
    def passes(self) -> int:
        """Issue slots that an exponential or reciprocal takes."""
        return self._config.MLEN // self._config.SFU_LANES

    def latency(self, op: int) -> int:
        """Cycles from issue to completion."""
        kind = next(kind for kind, ops in OPS.items() if op in ops)
        if kind in REDUCTIONS:
            return exact_log2(self._config.MLEN) + 3
        return 2 + self.passes if kind in SPECIAL else 3

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, passes = self._config, self.passes
        lanes = config.MLEN
        special = {"lanes": config.SFU_LANES, "row_lanes": lanes}
        m.submodules.add = add = AddLanes(lanes)
        m.submodules.multiply = multiply = MultiplyLanes(lanes)
        m.submodules.clamp = clamp = ClampLanes(lanes)
        m.submodules.shift = shift = ShiftLanes(lanes)
        m.submodules.exp = exp = SpecialLanes(BF16Exp, **special)
        m.submodules.reciprocal = reciprocal = SpecialLanes(BF16Reciprocal, **special)
        m.submodules.reduction = reduction = Reduction(lanes, config.heads)

        # Cycle 0: addresses. They move on only when the instruction in x_ has had its last pass, so
        # that its row stays on the read port until then.
        issue = self.issue.payload
        x_valid = Signal()
        x = Signal(self._shapes.vector_issue)
        x_pass = Signal(range(passes))
        x_kind = Signal(Kind)
        x_last = Signal()
        accept = Signal()
        kind = Signal(Kind)
        m.submodules.fetch = fetch = Module()
        with fetch.Switch(issue.op):
            for each, ops in OPS.items():
                with fetch.Case(*ops):
                    fetch.d.comb += kind.eq(each)
        fetch.d.comb += [
            x_last.eq(~_among(x_kind, SPECIAL) | (x_pass == passes - 1)),
            self.issue.ready.eq(~x_valid | x_last),
            accept.eq(self.issue.valid & self.issue.ready),
            self.a_read.en.eq(accept),
            self.a_read.row.eq(issue.a_row),
            self.b_read.en.eq(accept & _among(issue.op, TWO_ROWS)),
            self.b_read.row.eq(issue.b_row),
        ]
        with m.If(accept):
            m.d.sync += [x_valid.eq(1), x.eq(issue), x_kind.eq(kind), x_pass.eq(0)]
        with m.Elif(x_last):
            m.d.sync += x_valid.eq(0)
        with m.Else():
            m.d.sync += x_pass.eq(x_pass + 1)

        # Cycle 1: operands.
        a, b = self.a_read.data.as_value(), self.b_read.data.as_value()
        m.submodules.operands = operands = Module()
        for each, load in (
            (Kind.ADD, add.load),
            (Kind.MULTIPLY, multiply.load),
            (Kind.CLAMP, clamp.load),
            (Kind.SHIFT, shift.load),
            (Kind.EXP, exp.load),
            (Kind.RECIPROCAL, reciprocal.load),
            (Kind.SUM, reduction.load_sum),
            (Kind.MAXIMUM, reduction.load_max),
        ):
            operands.d.comb += load.eq(x_valid & (x_kind == each))
        for port in (add.a, multiply.a, clamp.a, shift.a, exp.a, reciprocal.a, reduction.row):
            operands.d.comb += port.eq(a)
        for pair in (add, multiply):
            operands.d.comb += [
                pair.b.eq(b),
                pair.scalar.eq(x.scalar),
                pair.use_scalar.eq(_among(x.op, WITH_SCALAR)),
            ]
        for some in (exp, reciprocal):
            operands.d.comb += some.part.eq(x_pass)
        subtract = _among(x.op, SUBTRACT)
        operands.d.comb += [
            add.negate_a.eq(subtract & x.reverse),
            add.negate_b.eq(subtract & ~x.reverse),
            clamp.bound.eq(x.scalar),
            clamp.is_max.eq(x.op == Op.V_MAX_VF),
            shift.amount.eq(x.shift),
            reduction.heads.eq(x.heads),
            reduction.start.eq(x.scalar),
            reduction.index.eq(x.f_index),
            reduction.tag.eq(x.tag),
        ]

        # Cycle 2: the result, in the register that is the write port. Early passes leave theirs
        # there too: nobody else needs it before the last one.
        w_valid = Signal()
        w_kept = Signal.like(a, name="w_kept")
        w = Signal(
            data.StructLayout(
                {
                    "kind": Kind,
                    "tag": Tag,
                    "row": self._shapes.row_bits,
                    "heads": config.heads,
                    "part": range(passes),
                    "last": 1,
                }
            )
        )
        m.d.sync += w_valid.eq(x_valid & ~_among(x_kind, REDUCTIONS))
        with m.If(x_valid & ~_among(x_kind, REDUCTIONS)):
            m.d.sync += [
                w.kind.eq(x_kind),
                w.tag.eq(x.tag),
                w.row.eq(x.d_row),
                w.heads.eq(x.heads),
                w.part.eq(x_pass),
                w.last.eq(x_last),
            ]
            with m.If((x_pass == 0) & ~x.heads.all()):
                m.d.sync += w_kept.eq(a)

        result = self.write.data.as_value()

        def store(first: int, source: Value) -> None:
            """Take the lanes from ``first`` on from `source`, where their head is on."""
            step = min(config.HLEN * BF16_BITS, len(source))
            start = first * BF16_BITS
            for at in range(0, len(source), step):
                head = (start + at) // (config.HLEN * BF16_BITS)
                with m.If(w.heads[head]):
                    m.d.sync += result[start + at : start + at + step].eq(source[at : at + step])

        m.d.sync += self.write.en.eq(w_valid & w.last)
        with m.If(w_valid):
            with m.If(w.part == 0):
                m.d.sync += result.eq(w_kept)
            with m.Switch(w.kind):
                for each, whole in (
                    (Kind.ADD, add),
                    (Kind.MULTIPLY, multiply),
                    (Kind.CLAMP, clamp),
                    (Kind.SHIFT, shift),
                ):
                    with m.Case(each):
                        store(0, whole.o)
                for each, some in ((Kind.EXP, exp), (Kind.RECIPROCAL, reciprocal)):
                    with m.Case(each), m.Switch(w.part):
                        for part in range(passes):
                            with m.Case(part):
                                store(part * config.SFU_LANES, some.o)
            with m.If(w.last):
                m.d.sync += [self.write.row.eq(w.row), self.write.tag.eq(w.tag)]

        # Cycle 3: written, and reported.
        m.d.comb += [
            self.write.lanes.eq(~0),
            self.done.valid.eq(self.write.en),
            self.done.tag.eq(self.write.tag),
            self.reduce_done.eq(reduction.done),
            self.fp_write.eq(reduction.fp_write),
        ]
        return m


def _among(code: Any, members: tuple[Any, ...]) -> Value:
    """Whether an enumeration's value is one of `members`."""
    return Value.cast(code).matches(*members)
