"""The matrix instructions on the whole machine: results, addresses, traps and hazards."""

import numpy as np
import pytest

from isa.config import PRESETS
from isa.traps import Trap
from sim.numerics.bf16 import canonical_bits
from tests.rtl.test_unit_matrix_bench import (
    Instruction,
    accumulators,
    execute,
    operands,
    product,
    write_out,
)

CONFIG = PRESETS["tiny"].replace(name="two heads", HLEN=4)
LANES, ROWS, TILES = CONFIG.MLEN, 128, 3
PRODUCTS = ("M_MM", "M_TMM", "M_MV", "M_TMV", "M_BMM", "M_BTMM", "M_BMV", "M_BTMV")
BOTH = pytest.mark.parametrize("issue", ["overlap", "serial"])


class Copy:
    """V[to] = V[row], by the vector unit."""

    def __init__(self, row: int, to: int) -> None:
        self.row, self.to = row, to

    def text(self) -> str:
        return load(gp1=self.row * LANES, gp2=self.to * LANES) + "V_SHFT_V gp2, gp1, gp0\n"

    def execute(self, vram, tiles, accs) -> None:
        vram[self.to] = vram[self.row]


class PrefetchZeros:
    """A prefetch from empty memory into a tile, or into BLEN rows."""

    def __init__(self, tile: int | None = None, row: int = 0) -> None:
        self.tile, self.row = tile, row

    def text(self) -> str:
        if self.tile is None:
            return load(gp1=self.row * LANES) + "H_PREFETCH_V gp1, gp0, a0, 0, 0\n"
        return load(gp1=self.tile * LANES * LANES) + "H_PREFETCH_M gp1, gp0, a0, 0, 0\n"

    def execute(self, vram, tiles, accs) -> None:
        if self.tile is None:
            vram[self.row : self.row + CONFIG.BLEN] = 0
        else:
            tiles[self.tile][:] = 0


class Matrix:
    """A matrix instruction; plain write-outs have stride 1."""

    def __init__(self, me: Instruction) -> None:
        self.me = me

    def text(self) -> str:
        me, name = self.me, self.me.op.name
        vector = me.row * LANES + me.lane
        if me.is_write_out:  # half of the address is the immediate
            stride = "gp0, " if name == "M_MM_WO" else ""
            return load(gp1=vector // 2) + f"{name} gp1, {stride}{vector - vector // 2}\n"
        tile = me.tile * LANES * LANES
        if "B" in name:
            offset = me.index if me.transposed else me.index * LANES
            return load(gp1=tile, gp2=offset, gp3=vector) + f"{name} gp2, gp1, gp3\n"
        registers = "gp3, gp1" if name == "M_TMM" else "gp1, gp3"
        return load(gp1=tile + me.index * LANES, gp3=vector) + f"{name} 0, {registers}\n"

    def execute(self, vram, tiles, accs) -> None:
        execute(CONFIG, self.me, vram, tiles, accs)


def load(**registers: int) -> str:
    return "".join(f"S_ADDI_INT {name}, gp0, {value}\n" for name, value in registers.items())


def times(name: str, **fields: int) -> Matrix:
    return Matrix(product(name, **fields))


def out(name: str, **fields: int) -> Matrix:
    return Matrix(write_out(name, **fields))


def check(program, items, issue="overlap"):
    """Runs the items, and compares vector SRAM, tiles and accumulators with those in order."""
    rng = np.random.default_rng(7)
    vram = operands(rng, (ROWS, LANES))
    tiles = [operands(rng, (LANES, LANES)) for _ in range(TILES)]
    accs = accumulators(CONFIG)
    sim = program("".join(item.text() for item in items), CONFIG, issue)
    sim.memories.write_vector(0, vram)
    for number, tile in enumerate(tiles):
        sim.memories.write_matrix(number, tile)
    result = sim.run(max_cycles=4000)
    assert result.cause is Trap.DONE, result.report(sim.image)
    for item in items:
        item.execute(vram, tiles, accs)
    np.testing.assert_array_equal(sim.memories.read_vector(0, ROWS), vram)
    for number, tile in enumerate(tiles):
        np.testing.assert_array_equal(sim.memories.read_matrix(number), tile)
    for name, seen in sim.memories.read_accumulators().items():
        np.testing.assert_array_equal(canonical_bits(seen), canonical_bits(accs[name]), name)
    return sim, result


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_product_and_its_write_out(program, name):
    """Two products of different places; the second write-out gives zeros."""
    out_name = name.replace("T", "") + "_WO"
    lane = 0 if "_B" in name else 4
    items = [
        times(name, tile=1, index=4, row=3),
        times(name, tile=2, index=0, row=9),
        out(out_name, row=32, lane=lane),
        out(out_name, row=64, lane=lane),
    ]
    sim, result = check(program, items)
    rows = write_out(out_name, row=64).rows(CONFIG)
    assert not sim.memories.read_vector(64, len(rows))[:, lane : lane + CONFIG.BLEN].any()
    assert sum(result.counters["completed_matrix_product"]) == 2
    assert sum(result.counters["completed_matrix_write"]) == 2


def test_sums_stay_until_they_are_written_out(program):
    items = [times(name, tile=k, index=4 * k % 8, row=k + 2) for name in PRODUCTS for k in range(3)]
    sim, _ = check(program, items)
    assert all(acc.any() for acc in sim.memories.read_accumulators().values())


def test_a_per_head_product_streams_a_row_per_cycle(program):
    count = 3
    _, result = check(program, [times("M_BMM", tile=1, row=8), times("M_BTMM"), times("M_BMM")])
    cycles = count * LANES * LANES // CONFIG.BLEN
    assert sum(result.counters["multipliers"]) == cycles
    assert result.cycles < cycles + 24


BMM, BMM_OUT = times("M_BMM", tile=1, index=4, row=8), out("M_BMM_WO", row=32)
HAZARDS = {
    "reads a row that the vector unit writes": [Copy(0, 15), Copy(1, 8), BMM, BMM_OUT],
    "the vector unit writes rows that it reads": [BMM, Copy(0, 15), Copy(1, 8), BMM_OUT],
    "one row of the vector unit": [Copy(0, 3), times("M_BTMV", row=3), Copy(1, 3), out("M_BMV_WO")],
    "M_MV with rows before and behind it": [
        Copy(0, 3),
        times("M_MV", row=3),
        Copy(1, 3),
        out("M_MV_WO", row=3, lane=4),
        Copy(3, 4),
    ],
    "the vector unit reads the last row written": [BMM, BMM_OUT, Copy(47, 3), Copy(32, 4)],
    "the vector unit writes rows that are written": [BMM, BMM_OUT, Copy(0, 47), Copy(1, 33)],
    "the vector unit reads what will be written": [BMM, Copy(40, 0), Copy(47, 1), BMM_OUT],
    "write-outs of the same rows": [
        BMM,
        times("M_MV"),
        times("M_MM"),
        times("M_BMV"),
        BMM_OUT,
        out("M_MM_WO", row=43, lane=4),
        out("M_BMV_WO", row=46),
        out("M_MV_WO", row=47),
    ],
    "short write-outs, then a long one": [
        BMM,
        times("M_MM"),
        times("M_BMV"),
        out("M_MM_WO", row=33),
        out("M_BMV_WO", row=32),
        BMM_OUT,
    ],
    "reads what another wrote out": [BMM, BMM_OUT, times("M_BTMM", row=40), out("M_BMM_WO", row=4)],
    "writes out where it read": [BMM, out("M_BMM_WO", row=8), times("M_BMV", row=23)],
    "a tile prefetched before, and behind": [
        PrefetchZeros(tile=2),
        times("M_BMM", tile=2),
        BMM,
        PrefetchZeros(tile=1),
        times("M_BTMM", tile=1),
        BMM_OUT,
    ],
    "rows prefetched before, and behind": [
        PrefetchZeros(row=8),
        BMM,
        PrefetchZeros(row=12),
        BMM_OUT,
        PrefetchZeros(row=44),
        times("M_BTMV", row=44),
        out("M_BMV_WO", row=43),
    ],
}


@BOTH
@pytest.mark.parametrize("name", HAZARDS)
def test_hazards(program, name, issue):
    check(program, HAZARDS[name], issue)


def test_overlap_is_faster_than_serial_and_ends_the_same(program):
    items = [
        item
        for k in range(3)
        for item in (
            *(times(name, tile=k, index=4, row=2 * k) for name in PRODUCTS),
            *(out(name, row=64 + 8 * k) for name in ("M_MM_WO", "M_MV_WO", "M_BMV_WO")),
            out("M_BMM_WO", row=96),
        )
    ]
    _, overlap = check(program, items, "overlap")
    _, serial = check(program, items, "serial")
    assert overlap.cycles < serial.cycles


TRAPS = {
    "M_BMM rows of the slice": (load(gp2=8) + "M_BMM gp2, gp0, gp0", Trap.MATRIX_ADDRESS, 8),
    "M_BMM column": (load(gp1=4) + "M_BMM gp0, gp1, gp0", Trap.MATRIX_ADDRESS, 4),
    "M_BTMM row": (load(gp1=64, gp2=8) + "M_BTMM gp2, gp1, gp0", Trap.MATRIX_ADDRESS, 72),
    "M_BTMV column": (load(gp2=2) + "M_BTMV gp2, gp0, gp0", Trap.MATRIX_ADDRESS, 2),
    "a tile past the end by the sum": (
        load(gp1=1020, gp2=4) + "M_BTMV gp2, gp1, gp0",
        Trap.MATRIX_ADDRESS,
        1024,
    ),
    "M_MV column group": (load(gp1=8) + "M_MV 0, gp1, gp0", Trap.MATRIX_ADDRESS, 8),
    "M_BMM rows past the end": (
        load(gp1=1017 * 8) + "M_BMM gp0, gp0, gp1",
        Trap.VECTOR_ADDRESS,
        1017 * 8,
    ),
    "M_BMM_WO rows past the end": (
        load(gp1=1008 * 8) + "M_BMM_WO gp1, 8",
        Trap.VECTOR_ADDRESS,
        1009 * 8,
    ),
    "M_BMV_WO lane": ("M_BMV_WO gp0, 4", Trap.VECTOR_ADDRESS, 4),
    "M_MV_WO lane": ("M_MV_WO gp0, 2", Trap.VECTOR_ADDRESS, 2),
}


@pytest.mark.parametrize("name", TRAPS)
def test_addresses_are_checked(program, name):
    text, cause, operand = TRAPS[name]
    result = program(text, CONFIG).run(max_cycles=100)
    assert (result.cause, result.operand, result.precise) == (cause, operand, True)


def test_the_last_addresses_are_good(program):
    text = load(gp1=960, gp2=32, gp3=4, gp4=1016 * 8, gp5=1023 * 8) + (
        "M_BMM gp2, gp1, gp4\nM_BTMM gp3, gp1, gp4\nM_BTMV gp3, gp1, gp5\nM_MV 0, gp1, gp5\n"
        f"M_BMM_WO gp0, {1008 * 8}\nM_BMV_WO gp0, {1022 * 8}\nM_MV_WO gp5, 4\n"
    )
    assert program(text, CONFIG).run(max_cycles=500).cause is Trap.DONE
