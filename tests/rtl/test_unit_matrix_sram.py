"""MatrixSram: rows and columns of tiles, against an array of words."""

from typing import Any

import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.sim import Simulator

from isa.config import PRESETS, PlenaConfig
from rtl.matrix import MatrixSram

TINY = PRESETS["tiny"].replace(MRAM_TILES=3)
SMALL = PRESETS["small"].replace(MRAM_TILES=2)


def simulate(sram: MatrixSram, testbench: Any) -> None:
    simulator = Simulator(sram)
    simulator.add_clock(1e-9)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("config", [TINY, SMALL], ids=["tiny", "small"])
def test_random_reads_and_writes(config: PlenaConfig) -> None:
    """Reads and writes at random; a read shows the contents before the cycle, and holds."""
    lanes, tiles = config.MLEN, config.MRAM_TILES
    sram, rng = MatrixSram(config), np.random.default_rng(lanes)
    memory = np.zeros((tiles, lanes, lanes), np.uint16)

    async def testbench(ctx: Any) -> None:
        expected = None
        for _ in range(60 * tiles):
            tile, index, to_tile, to_row = (int(rng.integers(n)) for n in (tiles, lanes) * 2)
            reads, transposed, writes = (bool(bit) for bit in rng.integers(0, 2, 3))
            words = rng.integers(0, 1 << 16, lanes, dtype=np.uint16)
            asked = {"en": reads, "tile": tile, "index": index, "transposed": transposed}
            given = {"en": writes, "tile": to_tile, "row": to_row, "data": words.tolist()}
            for port, values in ((sram.read, asked), (sram.write, given)):
                for name, value in values.items():
                    ctx.set(getattr(port, name), value)
            await ctx.tick()
            if reads:
                expected = memory[tile, index] if transposed else memory[tile, :, index]
                expected = expected.tolist()
            if writes:
                memory[to_tile, to_row] = words
            if expected is not None:
                assert list(ctx.get(sram.read.data)) == expected
        for (tile, row, column), word in np.ndenumerate(memory):
            bank, address = sram.place(lanes, tile, row, column)
            assert ctx.get(sram.banks[bank][address]) == word

    simulate(sram, testbench)


def test_the_host_loads_by_place() -> None:
    sram = MatrixSram(TINY)
    for tile in range(3):
        for row in range(8):
            for column in range(8):
                bank, address = MatrixSram.place(8, tile, row, column)
                assert MatrixSram.element(8, bank, address) == (tile, row, column)
                sram.banks[bank].init[address] = 100 * tile + 10 * row + column

    async def testbench(ctx: Any) -> None:
        ctx.set(sram.read.en, 1)
        ctx.set(sram.read.tile, 2)
        ctx.set(sram.read.index, 5)
        for transposed, expected in ((0, [205 + 10 * i for i in range(8)]), (1, range(250, 258))):
            ctx.set(sram.read.transposed, transposed)
            await ctx.tick()
            assert list(ctx.get(sram.read.data)) == list(expected)

    simulate(sram, testbench)


def test_the_widest_configuration_elaborates() -> None:
    Simulator(MatrixSram(PRESETS["default"].replace(MLEN=512, MRAM_TILES=2, FP_MEM_WORDS=1024)))


def test_verilog_export() -> None:
    text = verilog.convert(MatrixSram(TINY), name="matrix_sram", emit_src=False)
    assert "module matrix_sram(" in text
    assert text.count("reg [15:0]") >= 8
