"""The write-outs of the per-head forms."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import Completion, Shapes
from rtl.leaves import FP32, RoundToBF16

from .heads import address_bits, block_columns
from .slots import slot_layout

__all__ = ["HeadWriteOut"]


class HeadWriteOut(wiring.Component):
    """Read hm_acc or hv_acc row by row, round it, and write it to the vector SRAM.

    Members
    -------
    slot : In(slot_layout)
        May have a write-out, of which those of other accumulators move nothing.
    clear : Out(1), clear_hv : Out(1)
        The accumulator becomes +0.0 at the end of this cycle, but for the reads that follow.
    read_en : Out(1), read_address : Out(address_bits)
    words : In(block_columns x FP32), an array of MLEN / HLEN
        Two cycles later: a block of the row from each bank, that of column 0 from bank ``head``.
    write : Out(shapes.vram_write)
    write_done : Out(Completion)

    A row per cycle. N is MLEN * MLEN / HLEN rows for hm_acc, in the order [head][row], and
    MLEN / HLEN for hv_acc; slots with a write-out are N + 3 cycles or more apart::

        cycle    0       1               2        3                        ...  N + 2
        slot     clear   read row 0      (banks)  words; round, write           write row N - 1,
                         of head 0                row 0                         write_done
    """

    slot: Any
    clear: Signal
    clear_hv: Signal
    read_en: Signal
    read_address: Signal
    words: Any
    write: Any
    write_done: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        block = data.ArrayLayout(FP32.width, block_columns(config))
        super().__init__(
            {
                "slot": In(slot_layout(config)),
                "clear": Out(1),
                "clear_hv": Out(1),
                "read_en": Out(1),
                "read_address": Out(address_bits(config)),
                "words": In(block).array(config.heads),
                "write": Out(Shapes(config).vram_write),
                "write_done": Out(Completion),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        mlen, heads = self._config.MLEN, self._config.heads
        write_out = self.slot.write_out
        m.d.comb += [
            self.clear.eq(write_out.valid & write_out.acc[1]),
            self.clear_hv.eq(write_out.acc[0]),
        ]

        # Read.
        row_bits, head_bits = exact_log2(mlen), exact_log2(heads)
        one_row = Signal()  # per head
        position = Signal(row_bits + head_bits)  # row and head
        last = Signal()
        row, head = position[:row_bits], position[row_bits:]
        m.d.comb += [
            self.read_address.eq(Cat(head, row, one_row)),
            last.eq(position == Mux(one_row, (heads - 1) * mlen, heads * mlen - 1)),
        ]
        with m.If(self.read_en):
            m.d.sync += [position.eq(position + Mux(one_row, mlen, 1)), self.read_en.eq(~last)]

        # Write.
        step = data.StructLayout({"valid": 1, "head": max(1, head_bits), "last": 1})
        banks = Signal(step)
        rounding = Signal(step)
        target: Any = Signal(write_out.shape())  # of the row in `rounding`
        m.d.sync += [banks.valid.eq(self.read_en), rounding.valid.eq(banks.valid)]
        with m.If(self.read_en):
            m.d.sync += [banks.head.eq(head), banks.last.eq(last)]
        with m.If(banks.valid):
            m.d.sync += [rounding.head.eq(banks.head), rounding.last.eq(banks.last)]
        with m.If(rounding.valid):
            m.d.sync += target.row.eq(target.row + 1)
        with m.If(self.clear):
            m.d.sync += [
                self.read_en.eq(1),
                position.eq(0),
                one_row.eq(self.clear_hv),
                target.eq(write_out),
            ]

        blocks = []
        for bank, words in enumerate(self.words):
            rounded = []
            for place in range(block_columns(self._config)):
                m.submodules[f"round_{bank}_{place}"] = leaf = RoundToBF16().bind(i=words[place])
                rounded.append(leaf.o)
            blocks.append(Cat(rounded))
        m.submodules.result = result = Module()
        result.d.comb += [
            self.write.en.eq(rounding.valid),
            self.write.row.eq(target.row),
            self.write.lanes.eq(rounding.valid.replicate(mlen)),
            self.write.tag.eq(target.tag),
            self.write_done.valid.eq(rounding.valid & rounding.last),
            self.write_done.tag.eq(target.tag),
        ]
        with result.Switch(rounding.head):
            for first in range(heads):
                with result.Case(first):
                    result.d.comb += self.write.data.eq(Cat(blocks[first:], blocks[:first]))
        return m
