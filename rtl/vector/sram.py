"""The vector SRAM."""

from typing import Any

from amaranth.hdl import MemoryData, Module, Mux, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from isa.config import PlenaConfig
from rtl.interfaces import BF16_BITS, Shapes

__all__ = ["VectorSram"]

READERS = ("matrix_read", "vector_a_read", "vector_b_read", "hbm_read", "topk_read")
WRITERS = ("matrix_write", "vector_write", "hbm_write", "scalar_write")


class VectorSram(wiring.Component):
    """VRAM_ROWS rows of MLEN BF16 lanes, with a port for every unit that reads or writes them.

    Members
    -------
    matrix_read, vector_a_read, vector_b_read, hbm_read, topk_read : In(shapes.vram_read)
    matrix_write, vector_write, hbm_write, scalar_write : In(shapes.vram_write)
    storage : MemoryData
        The contents, a row per word with lane 0 in the low bits, for the host loader.

    All ports work in every cycle, independently of each other::

        cycle        0              1                      2
        read         en, row        data (old contents if  data as long as
                                    written in cycle 0)    en is low
        write        en, row, ...   readable: a read in
                                    cycle 1 gets it

    A read of the row that is being written gets the contents before the write. Two ports must not
    write the same lanes of one row in one cycle; the dispatcher's scoreboard sees to that.
    Different lanes of one row, or different rows, are fine. Reset leaves the contents.
    """

    matrix_read: Any
    vector_a_read: Any
    vector_b_read: Any
    hbm_read: Any
    topk_read: Any
    matrix_write: Any
    vector_write: Any
    hbm_write: Any
    scalar_write: Any
    storage: MemoryData

    def __init__(self, config: PlenaConfig) -> None:
        shapes = Shapes(config)
        row_bits = BF16_BITS * config.MLEN
        self.storage = MemoryData(shape=unsigned(row_bits), depth=config.VRAM_ROWS, init=[])
        super().__init__(
            {name: In(shapes.vram_read) for name in READERS}
            | {name: In(shapes.vram_write) for name in WRITERS}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(self.storage)

        # A module of wires per port: a simulator then evaluates only the ports that are in use.
        for name in READERS:
            m.submodules[name] = wires = Module()
            asked, port = getattr(self, name), memory.read_port()
            wires.d.comb += [
                port.en.eq(asked.en),
                port.addr.eq(asked.row),
                asked.data.eq(port.data),
            ]
        for name in WRITERS:
            m.submodules[name] = wires = Module()
            asked, port = getattr(self, name), memory.write_port(granularity=BF16_BITS)
            wires.d.comb += [
                port.en.eq(Mux(asked.en, asked.lanes, 0)),
                port.addr.eq(asked.row),
                port.data.eq(asked.data),
            ]
        return m
