"""The vector SRAM: port timing, lane masks, ports at the same time."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.sim import Simulator

from isa.config import PRESETS
from rtl.vector import VectorSram

READERS = ("matrix_read", "vector_a_read", "vector_b_read", "hbm_read", "topk_read")
WRITERS = ("matrix_write", "vector_write", "hbm_write", "scalar_write")
CONFIG = PRESETS["tiny"]
LANES = CONFIG.MLEN


def row_of(lanes: list[int]) -> int:
    return sum(lane << 16 * i for i, lane in enumerate(lanes))


def drive(ctx: Any, port: Any, **values: Any) -> None:
    for member, value in values.items():
        ctx.set(getattr(port, member), value)


def simulate(testbench: Callable[[Any, VectorSram], Any]) -> None:
    sram = VectorSram(CONFIG)
    for i in range(64):
        sram.storage.init[i] = row_of([256 * i + lane for lane in range(LANES)])
    sim = Simulator(sram)
    sim.add_clock(1e-9)

    async def run(ctx: Any) -> None:
        await testbench(ctx, sram)

    sim.add_testbench(run)
    sim.run()


@pytest.mark.parametrize("name", READERS)
def test_read_comes_a_cycle_later_and_holds(name: str) -> None:
    async def testbench(ctx: Any, sram: VectorSram) -> None:
        port = getattr(sram, name)
        ctx.set(port.en, 1)
        for i in range(4):
            ctx.set(port.row, i)
            await ctx.tick()
            assert ctx.get(port.data.as_value()) == row_of([256 * i + k for k in range(LANES)])
            assert ctx.get(port.data[3]) == 256 * i + 3
        ctx.set(port.en, 0)
        for i in range(3):
            ctx.set(port.row, 10 + i)
            await ctx.tick()
            assert ctx.get(port.data[0]) == 256 * 3

    simulate(testbench)


@pytest.mark.parametrize("name", WRITERS)
def test_write_changes_the_lanes_of_the_mask_only(name: str) -> None:
    async def testbench(ctx: Any, sram: VectorSram) -> None:
        port = getattr(sram, name)
        rng = random.Random(name)
        golden = [[256 * i + lane for lane in range(LANES)] for i in range(8)]
        for _ in range(60):
            en, row, mask = rng.randrange(4) > 0, rng.randrange(8), rng.randrange(1 << LANES)
            new = [rng.randrange(1 << 16) for _ in range(LANES)]
            drive(ctx, port, en=en, row=row, lanes=mask, data=new)
            await ctx.tick()
            if en:
                golden[row] = [
                    n if mask >> i & 1 else old
                    for i, (old, n) in enumerate(zip(golden[row], new, strict=True))
                ]
            assert [ctx.get(sram.storage[i]) for i in range(8)] == [row_of(g) for g in golden]

    simulate(testbench)


def test_all_ports_in_one_cycle() -> None:
    async def testbench(ctx: Any, sram: VectorSram) -> None:
        # Four writers share the lanes of row 5; every reader asks for that row, or another.
        for k, name in enumerate(WRITERS):
            data = [0xA000 + 16 * k + lane for lane in range(LANES)]
            drive(ctx, getattr(sram, name), en=1, row=5, lanes=3 << 2 * k, data=data)
        for k, name in enumerate(READERS):
            drive(ctx, getattr(sram, name), en=1, row=5 if k < 3 else k)
        await ctx.tick()
        for k, name in enumerate(READERS):
            old = row_of([256 * (5 if k < 3 else k) + lane for lane in range(LANES)])
            assert ctx.get(getattr(sram, name).data.as_value()) == old
        for name in WRITERS:
            ctx.set(getattr(sram, name).en, 0)
        await ctx.tick()
        new = row_of([0xA000 + 16 * (lane // 2) + lane for lane in range(LANES)])
        assert ctx.get(sram.matrix_read.data.as_value()) == new
        assert ctx.get(sram.topk_read.data[0]) == 4 * 256

    simulate(testbench)
