"""The accumulators of the per-head forms."""

from collections.abc import Callable, Iterator, Sequence
from math import log2
from typing import Any

from amaranth.hdl import Cat, Const, MemoryData, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.leaves import BF16, FP32, FloatAdd, FloatMul

from .slots import slot_layout

__all__ = ["HeadAccumulator", "address_bits", "block_columns"]


def block_columns(config: PlenaConfig) -> int:
    """Columns in a word of a bank."""
    return max(config.HLEN, config.BLEN)


def address_bits(config: PlenaConfig) -> int:
    """Bits of the address of a row of a head."""
    return exact_log2(config.heads) + exact_log2(config.MLEN) + 1


class HeadAccumulator(wiring.Component):
    """hm_acc and hv_acc: for each head MLEN rows of MLEN words, and one such row.

    Members
    -------
    sums : In(MLEN / HLEN x FP32), an array of BLEN
        sums[j][h] is that of head h in column j, of the row in ``scale``.
    fetch, scale, add : In(slot_layout)
        The slot of a row, cycle by cycle; one without a per-head row moves nothing.
    clear : In(1), clear_hv : In(1)
        hm_acc (or hv_acc) becomes +0.0, but reads go on to give what it was.
    read_en : In(1), read_address : In(address_bits)
        A row of a head; not in a cycle with a per-head row in ``fetch``.
    words : Out(block_columns x FP32), an array of MLEN / HLEN
        A block of that row from each bank; they hold their value without a read.
    storage : list[MemoryData]
        The banks; `place` says where a word is.
    filled : Out(2)
        Bit 0: the banks hold hm_acc, which is +0.0 otherwise; bit 1: hv_acc.

    A row per cycle::

        cycle    0              1                      2
        fetch    banks: addr    banks' data            add to the old words, write the banks
                                sums * bmm_scale
        read_en  banks: addr    banks' data            words

    There is a bank per head, and a word of it is a block of max(HLEN, BLEN) columns of one row of
    one head. Block p of head h is in bank (h + p) mod heads, at address row * heads + h, where row
    MLEN is that of hv_acc. So BLEN columns of a row are in different banks for different heads, and
    the blocks of one head's row too, at one address::

        bank        0        1        2        3          (4 heads; head.block)
        row i       0.0      0.1      0.2      0.3
                    1.3      1.0      1.1      1.2
                    2.2      2.3      2.0      2.1
                    3.1      3.2      3.3      3.0

    Clearing writes no bank: the next product adds to +0.0 instead of what it reads, and every
    product writes all of its accumulator. An entry is read again 8 cycles after it was, at least.
    """

    sums: Any
    fetch: Any
    scale: Any
    add: Any
    clear: Signal
    clear_hv: Signal
    read_en: Signal
    read_address: Signal
    words: Any
    filled: Signal
    storage: list[MemoryData]

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        word = data.ArrayLayout(FP32.width, block_columns(config))
        depth = (config.MLEN + 1) * config.heads
        self.storage = [
            MemoryData(shape=unsigned(word.size), depth=depth, init=[]) for _ in range(config.heads)
        ]
        slot = slot_layout(config)
        super().__init__(
            {
                "sums": In(data.ArrayLayout(FP32.width, config.heads)).array(config.BLEN),
                "fetch": In(slot),
                "scale": In(slot),
                "add": In(slot),
                "clear": In(1),
                "clear_hv": In(1),
                "read_en": In(1),
                "read_address": In(address_bits(config)),
                "words": Out(word).array(config.heads),
                "filled": Out(2),
            }
        )

    @staticmethod
    def place(config: PlenaConfig, head: int, row: int, column: int) -> tuple[int, int, int]:
        """Bank, address, and place in the bank's word; row MLEN is that of hv_acc."""
        block, place = divmod(column, block_columns(config))
        return (head + block) % config.heads, row * config.heads + head, place

    def contents(self, read: Callable[[MemoryData, int, int], Sequence[int]]) -> Any:
        """The words [head][row][column] that the banks hold; row MLEN is that of hv_acc.

        ``read(memory, first, count)`` gives rows of a memory.
        """
        config = self._config
        banks = [read(bank, 0, bank.depth) for bank in self.storage]

        def word(head: int, row: int, column: int) -> int:
            bank, address, place = self.place(config, head, row, column)
            return banks[bank][address] >> (FP32.width * place) & ((1 << FP32.width) - 1)

        lanes = range(config.MLEN)
        rows = range(config.MLEN + 1)
        return [[[word(h, i, j) for j in lanes] for i in rows] for h in range(config.heads)]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, scale, add = self._config, self.scale, self.add
        group_words = data.ArrayLayout(FP32.width, config.BLEN)
        readers, writers = [], []
        for number, contents in enumerate(self.storage):
            m.submodules[f"bank_{number}"] = bank = memory.Memory(contents)
            readers.append(bank.read_port())
            writers.append(bank.write_port(granularity=group_words.size))

        # Wires are in modules of their own: a simulator then evaluates only those in use.
        m.submodules.address = address = Module()
        with address.If(self.read_en):
            for reader in readers:
                address.d.comb += [reader.en.eq(1), reader.addr.eq(self.read_address)]
        with address.Elif(self.fetch.valid & self.fetch.acc[1]):
            for head_in in self._each_block(address, self.fetch):
                for bank, reader in enumerate(readers):
                    where = self._address(self.fetch, head_in(bank))
                    address.d.comb += [reader.en.eq(1), reader.addr.eq(where)]

        # Scale the sums while the old words arrive.
        factor = Const((int(log2(config.bmm_scale)) + BF16.bias) << BF16.man, BF16.width)
        scaled, old, new = [], [], []
        for h in range(config.heads):
            scaled.append(Signal(group_words, name=f"scaled_{h}"))
            old.append(Signal(group_words, name=f"old_{h}"))
            products, totals = [], []
            for j in range(config.BLEN):
                product = FloatMul(FP32, FP32, b_fmt=BF16).bind(a=self.sums[j][h], b=factor)
                total = FloatAdd(FP32).bind(a=old[h][j], b=scaled[h][j])
                m.submodules[f"scale_{h}_{j}"], m.submodules[f"add_{h}_{j}"] = product, total
                products.append(product.o)
                totals.append(total.o)
            with m.If(scale.valid & scale.acc[1]):
                m.d.sync += scaled[h].eq(Cat(products))
            new.append(Cat(totals))
        with m.If(scale.valid & scale.acc[1]):
            with m.If(self.filled.bit_select(scale.acc[0], 1)):
                for head_in in self._each_block(m, scale):
                    for bank, reader in enumerate(readers):
                        m.d.sync += old[head_in(bank)].eq(self._group_of(reader.data, scale))
            with m.Else():
                m.d.sync += [words.eq(0) for words in old]
            with m.If(scale.last):
                m.d.sync += self.filled.bit_select(scale.acc[0], 1).eq(1)

        m.submodules.store = store = Module()
        with store.If(add.valid & add.acc[1]):
            for head_in in self._each_block(store, add):
                for bank, writer in enumerate(writers):
                    store.d.comb += [
                        writer.addr.eq(self._address(add, head_in(bank))),
                        writer.data.eq(new[head_in(bank)].replicate(len(writer.en))),
                        writer.en.eq(1 << self._group_in_block(add)),
                    ]

        # Read a row of a head, and clear.
        arrives = Signal()
        was_filled = Signal()
        m.d.sync += arrives.eq(self.read_en)
        with m.If(self.clear):
            m.d.sync += [
                was_filled.eq(self.filled.bit_select(self.clear_hv, 1)),
                self.filled.bit_select(self.clear_hv, 1).eq(0),
            ]
        with m.If(arrives):
            for words, reader in zip(self.words, readers, strict=True):
                m.d.sync += words.eq(Mux(was_filled, reader.data, 0))
        return m

    @property
    def _groups(self) -> int:
        """Groups of BLEN columns in a block."""
        return block_columns(self._config) // self._config.BLEN

    def _group_in_block(self, slot: Any) -> Value:
        # One bit at least: a value without bits cannot choose.
        return Cat(slot.group[: exact_log2(self._groups)], Const(0, 1))

    def _group_of(self, block: Value, slot: Any) -> Value:
        """The words of a block that belong to the slot's group of columns."""
        return block.word_select(self._group_in_block(slot), FP32.width * self._config.BLEN)

    def _address(self, slot: Any, head: int) -> Value:
        """Where the slot's row is, for a head."""
        return Cat(Const(head, exact_log2(self._config.heads)), slot.row, slot.acc[0])

    def _each_block(self, m: Module, slot: Any) -> Iterator[Callable[[int], int]]:
        """Open a case for each block that the slot's columns may be in, with the head in a bank."""
        heads = self._config.heads
        block = Cat(slot.group >> exact_log2(self._groups), Const(0, 1))
        with m.Switch(block):
            for number in range(self._config.MLEN // block_columns(self._config)):
                with m.Case(number):
                    yield lambda bank, number=number: (bank - number) % heads
