"""The matrix unit: products of rows with BLEN columns at a time, accumulated and written out."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, MemoryData, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import BF16_BITS, Completion, Shapes, Tag

from .accumulator import Accumulator
from .array import MultiplierArray
from .head_write_out import HeadWriteOut
from .heads import HeadAccumulator
from .sequencer import Sequencer
from .slots import Acc, slot_layout

__all__ = ["MatrixUnit"]

Get = Callable[[Any], int]
Read = Callable[[MemoryData, int, int], Sequence[int]]


class MatrixUnit(wiring.Component):
    """Execute the M_* instructions in program order.

    Members
    -------
    issue : In(stream of shapes.matrix_issue)
        ``index`` and ``lane`` are multiples of BLEN, or ``index`` of HLEN in the per-head forms.
    mram_read : Out(shapes.mram_read)
    vram_read : Out(shapes.vram_read)
    vram_write : Out(shapes.vram_write)
    product_done : Out(Completion)
        Of a product, in the cycle of its last addition or the one after it.
    write_done : Out(Completion)
        Of a write-out, in the cycle of its last ``vram_write``.
    mac_busy : Out(1), mac_tag : Out(Tag)
        A row of activations is in the multipliers, and whose.

    Cycle 0 is the one with ``issue.valid`` and ``issue.ready``, and the unit is idle. B = BLEN,
    n = log2(MLEN), i = 0 .. B - 1 is a column or row, l = 1 .. n a level of the adder trees::

        cycle           stage        M_MM, M_TMM
        0                            into the queue
        1 + i                        mram_read of column i (M_TMM: of row i)
        B + 1 + i       fetch        vram_read of row i
        B + 2 + i       operand      row i arrives; with row 0 the weights swap
        B + 3 + i       multiply     mac_busy
        B + 3 + l + i   add_l
        B + 4 + n + i   accumulate   product_done with the last row: cycle 2 B + n + 3

        cycle           stage        M_MM_WO with no product before it
        2               fetch        a slot without a row
        5 + n           accumulate   t
        t + 1 + i                    vram_write of row i; write_done with the last: cycle B + n + 5

    The others pass the same stages; s is the last cycle in which they are in ``fetch``, and H the
    number of heads, MLEN / HLEN::

                        s                    done                cycles per instruction
        M_MM, M_TMM     2 B                  s + n + 3           B
        M_MV, M_TMV     B + 1                s + n + 4           B
        M_BMM, M_BTMM   B + MLEN * MLEN / B  s + n + 4           MLEN * MLEN / B
        M_BMV, M_BTMV   MLEN + 1             s + n + 4           MLEN
        M_MM_WO         2                    s + n + 3 + B       B
        M_MV_WO         2                    s + n + 5           B
        M_BMM_WO        2                    s + n + 6 + H MLEN  H MLEN + 3 + log2(H)
        M_BMV_WO        2                    s + n + 6 + H       H + 3 + log2(H)

    Behind level log2(HLEN) of the trees a per-head row is scaled, and added to its accumulators one
    stage later: in ``retire``, behind ``accumulate``, if HLEN is MLEN, and earlier if not.

    A write-out behind a product that has not read its last row yet rides with that row, which gives
    s, and takes no slot. It writes a row per cycle. Throughput: as in the table, without a bubble
    between products of any kind, and write-outs of m_acc and v_acc take no time of theirs. Those of
    hm_acc and hv_acc keep per-head products and other write-outs waiting, but not other products.
    A product and a write-out can complete in one cycle.

    Order within the unit: products accumulate, write-outs take what was accumulated before them,
    and write their rows in issue order. Rows of activations are read B + 1 cycles or more after
    issue, so until product_done nothing outside may write them (a later write-out does so only
    after). A product that reads what a write-out writes must not be issued before write_done.

    Structure::

        issue --Sequencer--> slot -> operand -> multiply -> add_1 .. add_n -> accumulate -> retire
                   | mram_read          |          |           |                  |           |
                   | vram_read          v          v           v                  v           |
                   | (data)  .---> MultiplierArray ----- sums -------------> Accumulator      |
                   v         |              |                                     |           v
                 spread -----'              '-- heads -> HeadAccumulator -words-> | HeadWriteOut
                                                                                  v           v
                                                                                 vram_write

    A slot (see `slot_layout`) goes down the pipeline beside the data.
    """

    issue: Any
    mram_read: Any
    vram_read: Any
    vram_write: Any
    product_done: Any
    write_done: Any
    mac_busy: Signal
    mac_tag: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self.accumulator = Accumulator(config)
        self.heads = HeadAccumulator(config)
        shapes = Shapes(config)
        super().__init__(
            {
                "issue": In(stream.Signature(shapes.matrix_issue)),
                "mram_read": Out(shapes.mram_read),
                "vram_read": Out(shapes.vram_read),
                "vram_write": Out(shapes.vram_write),
                "product_done": Out(Completion),
                "write_done": Out(Completion),
                "mac_busy": Out(1),
                "mac_tag": Out(Tag),
            }
        )

    def interval(self, op: IntEnum) -> int:
        """Cycles per product when the issue never waits, write-outs of m_acc and v_acc included."""
        mlen, blen = self._config.MLEN, self._config.BLEN
        if op.name in ("M_MM", "M_TMM", "M_MV", "M_TMV"):
            return blen
        if op.name in ("M_BMM", "M_BTMM"):
            return mlen * mlen // blen
        if op.name in ("M_BMV", "M_BTMV"):
            return mlen
        raise ValueError(f"{op.name} is not a product of the matrix unit")

    def latency(self, op: IntEnum) -> int:
        """Cycles from issue to completion, of an instruction that finds the unit idle."""
        mlen, blen, heads = self._config.MLEN, self._config.BLEN, self._config.heads
        levels = exact_log2(mlen)
        if op.name in ("M_MM", "M_TMM"):
            return 2 * blen + levels + 3
        if op.name in ("M_MV", "M_TMV"):
            return blen + levels + 5
        if op.name in ("M_BMM", "M_BTMM"):
            return blen + mlen * mlen // blen + levels + 4
        if op.name in ("M_BMV", "M_BTMV"):
            return mlen + levels + 5
        if op.name == "M_MM_WO":
            return blen + levels + 5
        if op.name == "M_MV_WO":
            return levels + 7
        if op.name == "M_BMM_WO":
            return heads * mlen + levels + 8
        if op.name == "M_BMV_WO":
            return heads + levels + 8
        raise ValueError(f"the matrix unit executes M_* only, not {op.name}")

    def m_acc(self, get: Get) -> list[list[int]]:
        """The program's m_acc[row][column] as FP32 words; ``get`` reads a signal."""
        bank = self.accumulator.banks[get(self.accumulator.active)]
        return [[get(row[j]) for j in range(self._config.BLEN)] for row in bank]

    def v_acc(self, get: Get) -> list[int]:
        """The program's v_acc[column] as FP32 words."""
        row = self.accumulator.v_banks[get(self.accumulator.v_active)]
        return [get(row[j]) for j in range(self._config.BLEN)]

    def accumulators(self, get: Get, read: Read) -> dict[str, Any]:
        """All accumulators as the program sees them, FP32 words in the shapes of isa.md, by name.

        ``read(memory, first, count)`` gives rows of a memory. While a per-head product is at work,
        what it has not reached yet may be words from before the last write-out.
        """
        contents = self.heads.contents(read)
        filled, zeros = get(self.heads.filled), [0] * self._config.MLEN
        return {
            "m_acc": self.m_acc(get),
            "v_acc": self.v_acc(get),
            "hm_acc": [[row if filled & 1 else zeros for row in head[:-1]] for head in contents],
            "hv_acc": [head[-1] if filled & 2 else zeros for head in contents],
        }

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.sequencer = sequencer = Sequencer(self._config)
        m.submodules.array = array = MultiplierArray(self._config)
        m.submodules.accumulator = accumulator = self.accumulator
        m.submodules.heads = heads = self.heads
        m.submodules.head_write_out = head_write_out = HeadWriteOut(self._config)

        # The slot of each stage, in the order of the stages.
        levels, tap = exact_log2(self._config.MLEN), exact_log2(self._config.HLEN)
        sums = [f"add_{n}" for n in range(1, levels + 1)]
        names = ("operand", "multiply", *sums, "accumulate", "retire")
        stages = [Signal(slot_layout(self._config), name=name) for name in names]
        stage = dict(zip(names, stages, strict=True))
        operand, multiply, accumulate, retire = (
            stage[name] for name in ("operand", "multiply", "accumulate", "retire")
        )
        for before, after in zip([sequencer.slot, *stages], stages, strict=False):
            m.d.sync += after.eq(before)

        connect(m, flipped(self.issue), sequencer.issue)
        for port in ("mram_read", "vram_read"):
            ours, asked = getattr(self, port), getattr(sequencer, port)
            for name in asked.signature.members:
                m.d.comb += getattr(ours, name).eq(getattr(asked, name))
        # Levels below the tap are for every row, those above it are not for the per-head forms.
        advance = [multiply, *(stage[name] for name in sums)]
        m.d.comb += [
            array.load.eq(sequencer.load),
            array.row_i.eq(self.vram_read.data),
            array.take.eq(operand.valid),
            array.swap.eq(operand.valid & (operand.row == 0)),
            array.advance.eq(
                Cat(s.valid & ~(s.acc[1] & (n >= tap)) for n, s in enumerate(advance))
            ),
            array.tap.eq(advance[tap].valid & advance[tap].acc[1]),
            accumulator.sums.eq(array.sums),
            accumulator.coming.eq(advance[-1]),
            accumulator.slot.eq(accumulate),
            self.mac_busy.eq(multiply.valid),
            self.mac_tag.eq(multiply.tag),
        ]
        m.submodules.spread = self._spread(sequencer, array)
        m.submodules.done = self._done(accumulate, retire)
        m.submodules.write = self._write(accumulator, head_write_out)

        # The per-head slots leave the others' way behind the tap.
        m.submodules.head_wires = wires = Module()
        at = names.index(f"add_{tap}")
        wires.d.comb += [
            port.eq(tapped) for port, tapped in zip(heads.sums, array.heads, strict=True)
        ]
        wires.d.comb += [
            heads.fetch.eq(stages[at]),
            heads.scale.eq(stages[at + 1]),
            heads.add.eq(stages[at + 2]),
            head_write_out.slot.eq(retire),
        ]
        for name in ("clear", "clear_hv", "read_en", "read_address"):
            wires.d.comb += getattr(heads, name).eq(getattr(head_write_out, name))
        m.submodules.row_wires = wires = Module()
        for port, words in zip(head_write_out.words, heads.words, strict=True):
            wires.d.comb += port.eq(words)
        return m

    def _spread(self, sequencer: Sequencer, array: MultiplierArray) -> Module:
        """The weights of a column: as they come, or the same HLEN of them for every head."""
        m = Module()
        weights = self.mram_read.data
        bits = self._config.HLEN * BF16_BITS
        with m.If(sequencer.per_head):
            part = weights.as_value().word_select(sequencer.part, bits)
            m.d.comb += array.column_i.eq(part.replicate(self._config.heads))
        with m.Else():
            m.d.comb += array.column_i.eq(weights)
        return m

    def _done(self, accumulate: Any, retire: Any) -> Module:
        """Products other than M_MM are a stage later. Two of both kinds cannot meet: rows of M_MM
        come two at least in a row."""
        m = Module()
        early = accumulate.last & (accumulate.acc == Acc.M_ACC)
        late = retire.last & (retire.acc != Acc.M_ACC)
        m.d.comb += [
            self.product_done.valid.eq(early | late),
            self.product_done.tag.eq(Mux(late, retire.tag, accumulate.tag)),
        ]
        return m

    def _write(self, accumulator: Accumulator, head_write_out: HeadWriteOut) -> Module:
        """The write port and the completion, for one write-out at a time."""
        m = Module()
        with m.If(head_write_out.write.en):
            connect(m, head_write_out.write, flipped(self.vram_write))
            m.d.comb += self.write_done.eq(head_write_out.write_done)
        with m.Else():
            connect(m, accumulator.write, flipped(self.vram_write))
            m.d.comb += self.write_done.eq(accumulator.write_done)
        return m
