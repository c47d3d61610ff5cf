"""The matrix SRAM."""

from typing import Any

from amaranth.hdl import Cat, Const, MemoryData, Module, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from isa.config import PlenaConfig
from rtl.interfaces import BF16_BITS, Shapes

__all__ = ["MatrixSram"]


class MatrixSram(wiring.Component):
    """MRAM_TILES tiles of MLEN x MLEN BF16, of which a row and a column both read in one cycle.

    Members
    -------
    read : In(shapes.mram_read)
    write : In(shapes.mram_write)
    banks : list[MemoryData]
        The contents of the MLEN banks, for the host loader; `place` says where an element is.

    Both ports work in every cycle::

        cycle        0                        1                        2
        read         en, tile, index, ...     data                     data as long as
                                                                       en is low
        write        en, tile, row, data      readable: a read in
                                              cycle 1 gets it

    Element (i, j) of a tile is in bank (i + j) mod MLEN, at address tile * MLEN + i. So the
    elements of a row are in different banks, at one address, and those of a column too, each at
    an address of its own::

        bank       0    1    2    3           (MLEN 4; the number is the column)
        row 0      0    1    2    3
        row 1      3    0    1    2
        row 2      2    3    0    1
        row 3      1    2    3    0

    Lane x of row (or column) n is in bank (x + n) mod MLEN either way: one rotation by ``index``
    behind the banks serves both, and the opposite one aligns a row that is written. Contents are
    not reset. A read of the row that is being written gets the contents before the write.
    """

    read: Any
    write: Any
    banks: list[MemoryData]

    def __init__(self, config: PlenaConfig) -> None:
        self._lanes = config.MLEN
        depth = config.MRAM_TILES * config.MLEN
        self.banks = [
            MemoryData(shape=unsigned(BF16_BITS), depth=depth, init=[]) for _ in range(config.MLEN)
        ]
        shapes = Shapes(config)
        super().__init__({"read": In(shapes.mram_read), "write": In(shapes.mram_write)})

    @staticmethod
    def place(lanes: int, tile: int, row: int, column: int) -> tuple[int, int]:
        """Bank and address of an element, for the host; ``lanes`` is MLEN."""
        return (row + column) % lanes, tile * lanes + row

    @staticmethod
    def element(lanes: int, bank: int, address: int) -> tuple[int, int, int]:
        """Tile, row and column of what is at an address of a bank: the inverse of `place`."""
        tile, row = divmod(address, lanes)
        return tile, row, (bank - row) % lanes

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        lanes = self._lanes
        lane_bits = exact_log2(lanes)

        def rotate(row: Value, by: Value) -> Value:
            """Lane x of the result is lane (x + by) mod MLEN of the row."""
            return (Cat(row, row) >> Cat(Const(0, exact_log2(BF16_BITS)), by[:lane_bits]))[
                : len(row)
            ]

        # Wires are in modules of their own: a simulator then evaluates only those of a port in use.
        m.submodules.address = address = Module()
        m.submodules.align = align = Module()
        m.submodules.rotate = rotation = Module()
        skewed = Signal(BF16_BITS * lanes)  # the row to write, as the banks take it
        align.d.comb += skewed.eq(rotate(self.write.data.as_value(), -self.write.row))

        outputs = []
        for number, contents in enumerate(self.banks):
            m.submodules[f"bank_{number}"] = bank = Memory(contents)
            reader, writer = bank.read_port(), bank.write_port()
            row_here = (number - self.read.index)[:lane_bits]  # of column `index`
            with address.If(self.read.transposed):
                address.d.comb += reader.addr.eq(Cat(self.read.index, self.read.tile))
            with address.Else():
                address.d.comb += reader.addr.eq(Cat(row_here, self.read.tile))
            address.d.comb += reader.en.eq(self.read.en)
            align.d.comb += [
                writer.en.eq(self.write.en),
                writer.addr.eq(Cat(self.write.row, self.write.tile)),
                Value.cast(writer.data).eq(skewed.word_select(number, BF16_BITS)),
            ]
            outputs.append(reader.data)

        shown = Signal(lane_bits)  # index of the row or column at the outputs
        with m.If(self.read.en):
            m.d.sync += shown.eq(self.read.index)
        rotation.d.comb += self.read.data.eq(rotate(Cat(*outputs), shown))
        return m
