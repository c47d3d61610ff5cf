"""The scalar unit: BF16 scalar arithmetic, FP_MEM, INT_MEM, and the map from FP_MEM to a vector
row."""

from typing import Any

from amaranth.hdl import Cat, MemoryData, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from isa.config import PlenaConfig
from isa.opcodes import Op
from rtl.interfaces import BF16_BITS, Completion, FpWrite, GpWrite, Shapes, Tag
from rtl.leaves import BF16, BF16Exp, BF16MinMax, BF16Reciprocal, BF16Sqrt, FloatAdd, FloatMul


class ScalarUnit(wiring.Component):
    """Executes the S_* instructions that take more than their dispatch cycle, in order.

    ====== ============================= ================================= =================
    cycle  arithmetic                    loads and stores                  S_MAP_V_FP
    ====== ============================= ================================= =================
    0      operands registered           memory addressed or written       first row addressed
    1      result written, done          loaded word written, done         second row addressed
    2                                                                      row written, done
    ====== ============================= ================================= =================

    A new instruction every cycle, but none in the cycle after an S_MAP_V_FP (it uses the read
    port). FP_MEM is kept as rows of MLEN words, so a map of any alignment reads two rows.

    Members: `issue` stream; `done`; `fp_write`, `gp_write`; `vram_write` (S_MAP_V_FP's row);
    `topk_fp_write`, `topk_int_write`: words that the top-k unit writes at the end of this cycle.
    They go through the write ports of the stores: the dispatcher lets no instruction that uses
    FP_MEM or INT_MEM run beside a V_TOPK. For the host: the storages `fp_mem` and `int_mem`, and
    `fp_store` and `int_store`, the word that each takes at the end of this cycle.
    """

    issue: Any
    done: Any
    fp_write: Any
    gp_write: Any
    vram_write: Any
    topk_fp_write: Any
    topk_int_write: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._shapes = shapes = Shapes(config)
        self.fp_mem = MemoryData(
            shape=BF16_BITS * config.MLEN, depth=config.FP_MEM_WORDS // config.MLEN, init=[]
        )
        self.int_mem = MemoryData(shape=32, depth=config.INT_MEM_WORDS, init=[])
        self.fp_store: Any = Signal(shapes.fp_mem_write)
        self.int_store: Any = Signal(shapes.int_mem_write)
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.scalar_issue)),
                "done": Out(Completion),
                "fp_write": Out(FpWrite),
                "gp_write": Out(GpWrite),
                "vram_write": Out(shapes.vram_write),
                "topk_fp_write": In(shapes.fp_mem_write),
                "topk_int_write": In(shapes.int_mem_write),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lane_bits, width = self._shapes.lane_bits, BF16_BITS * self._config.MLEN
        m.submodules.fp_mem = fp_mem = memory.Memory(self.fp_mem)
        m.submodules.int_mem = int_mem = memory.Memory(self.int_mem)
        fp_read, fp_store = fp_mem.read_port(), fp_mem.write_port(granularity=BF16_BITS)
        int_read, int_store = int_mem.read_port(), int_mem.write_port()
        p = self.issue.payload
        take = Signal()
        x_valid = Signal()
        x_tag = Signal(Tag)
        x_op = Signal(Op)
        x_index = Signal(4)
        x_row = Signal.like(p.row)
        x_word = Signal.like(p.address)
        mapping = Signal()
        map_done = Signal()
        m.d.comb += [
            self.issue.ready.eq(~mapping),
            take.eq(self.issue.valid & ~mapping),
        ]
        m.d.sync += [
            x_valid.eq(take),
            mapping.eq(take & (p.op == Op.S_MAP_V_FP)),
            map_done.eq(mapping),
        ]
        with m.If(take):
            m.d.sync += [
                x_tag.eq(p.tag),
                x_op.eq(p.op),
                x_index.eq(p.index),
                x_row.eq(p.row),
                x_word.eq(p.address),
            ]

        # Memories are addressed and written in cycle 0, so a load sees the store before it.
        m.submodules.access = access = Module()
        topk_fp, topk_int = self.topk_fp_write, self.topk_int_write
        with access.If(topk_fp.valid):
            access.d.comb += [
                fp_store.addr.eq(topk_fp.address[lane_bits:]),
                fp_store.en.eq(1 << topk_fp.address[:lane_bits]),
                fp_store.data.eq(topk_fp.value.replicate(self._config.MLEN)),
            ]
        with access.If(topk_int.valid):
            access.d.comb += [
                int_store.addr.eq(topk_int.address),
                int_store.en.eq(1),
                int_store.data.eq(topk_int.value),
            ]
        with access.If(mapping):
            access.d.comb += [
                fp_read.addr.eq(x_word[lane_bits:] + 1),
                fp_read.en.eq(x_word[:lane_bits] != 0),
            ]
        with access.Elif(take):
            with access.Switch(p.op):
                with access.Case(Op.S_LD_FP, Op.S_MAP_V_FP):
                    access.d.comb += [fp_read.addr.eq(p.address[lane_bits:]), fp_read.en.eq(1)]
                with access.Case(Op.S_ST_FP):
                    access.d.comb += [
                        fp_store.addr.eq(p.address[lane_bits:]),
                        fp_store.en.eq(1 << p.address[:lane_bits]),
                        fp_store.data.eq(p.a.replicate(self._config.MLEN)),
                    ]
                with access.Case(Op.S_LD_INT):
                    access.d.comb += [int_read.addr.eq(p.address), int_read.en.eq(1)]
                with access.Case(Op.S_ST_INT):
                    access.d.comb += [
                        int_store.addr.eq(p.address),
                        int_store.en.eq(1),
                        int_store.data.eq(p.value),
                    ]

        self._watch(m, fp_store, int_store)
        results = self._arithmetic(m, take)
        m.submodules.retire = retire = Module()
        with retire.If(x_valid & ~mapping):
            retire.d.comb += [self.done.valid.eq(1), self.done.tag.eq(x_tag)]
            with retire.Switch(x_op):
                for op, value in results:
                    with retire.Case(op):
                        retire.d.comb += [self.fp_write.valid.eq(1), self.fp_write.value.eq(value)]
                with retire.Case(Op.S_LD_FP):
                    retire.d.comb += [
                        self.fp_write.valid.eq(1),
                        self.fp_write.value.eq(
                            fp_read.data.word_select(x_word[:lane_bits], BF16_BITS)
                        ),
                    ]
                with retire.Case(Op.S_LD_INT):
                    retire.d.comb += [
                        self.gp_write.valid.eq(1),
                        self.gp_write.value.eq(int_read.data),
                    ]
            retire.d.comb += [self.fp_write.index.eq(x_index), self.gp_write.index.eq(x_index)]
        with retire.Elif(map_done):
            retire.d.comb += [self.done.valid.eq(1), self.done.tag.eq(self.vram_write.tag)]

        # S_MAP_V_FP: the first row waits one cycle for the second; both shift down to the word
        # asked for.
        first = Signal(width)
        offset = Signal(lane_bits)
        m.submodules.map = map_ = Module()
        with m.If(mapping):
            m.d.sync += [
                first.eq(fp_read.data),
                offset.eq(x_word),
                self.vram_write.row.eq(x_row),
                self.vram_write.tag.eq(x_tag),
            ]
        with map_.If(map_done):
            map_.d.comb += [
                self.vram_write.en.eq(1),
                self.vram_write.lanes.eq((1 << self._config.MLEN) - 1),
                self.vram_write.data.eq(
                    Mux(offset == 0, first, Cat(first, fp_read.data) >> (offset * BF16_BITS))
                ),
            ]
        return m

    def _watch(self, m: Module, fp: Any, integer: Any) -> None:
        """Shows the host what the write ports of the two stores take."""
        lanes = range(self._config.MLEN)
        lane = Signal(self._shapes.lane_bits)
        for bit in range(len(lane)):
            m.d.comb += lane[bit].eq(Cat(fp.en[i] for i in lanes if i >> bit & 1).any())
        m.d.comb += [
            self.fp_store.valid.eq(fp.en.any()),
            self.fp_store.address.eq(Cat(lane, fp.addr)),
            self.fp_store.value.eq(fp.data.word_select(lane, BF16_BITS)),
            self.int_store.valid.eq(integer.en),
            self.int_store.address.eq(integer.addr),
            self.int_store.value.eq(integer.data),
        ]

    def _arithmetic(self, m: Module, take: Signal) -> list[tuple[Any, Signal]]:
        """One leaf per kind; its operand registers load only for its own operations."""
        p = self.issue.payload
        results: list[tuple[Any, Signal]] = []
        kinds: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
            ("add", FloatAdd(BF16), (Op.S_ADD_FP, Op.S_SUB_FP)),
            ("multiply", FloatMul(BF16, BF16), (Op.S_MUL_FP,)),
            ("maximum", BF16MinMax().bind(is_max=1), (Op.S_MAX_FP,)),
            ("exponential", BF16Exp(), (Op.S_EXP_FP,)),
            ("reciprocal", BF16Reciprocal(), (Op.S_RECI_FP,)),
            ("square_root", BF16Sqrt(), (Op.S_SQRT_FP,)),
        )
        for name, leaf, ops in kinds:
            m.submodules[name] = leaf
            binary = "b" in leaf.signature.members
            a = Signal(BF16_BITS, name=f"{name}_a")
            b = Signal(BF16_BITS, name=f"{name}_b")
            wanted = Signal(name=f"{name}_wanted")
            m.d.comb += wanted.eq(take & sum((p.op == op for op in ops), start=0))
            with m.If(wanted):
                m.d.sync += a.eq(p.a)
                if binary:
                    negated = Cat(p.b[:-1], p.b[-1] ^ (p.op == Op.S_SUB_FP))
                    m.d.sync += b.eq(negated if Op.S_SUB_FP in ops else p.b)
            leaf.bind(**({"a": a, "b": b} if binary else {"i": a}))
            results += [(op, leaf.o) for op in ops]
        return results
