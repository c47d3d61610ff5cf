"""Linear projections: K-split, panels, short rows, rolled column blocks, pinned small inputs."""

import numpy as np
import pytest

from compiler import CompileError, Order, Program
from compiler.elementwise import UNROLL, add_bias, copy, rowwise
from compiler.linear import linear_projection
from compiler.registers import F0, GP0
from compiler.weight_panels import WeightPanels, default_cap, split_k
from isa import PRESETS
from sim.numerics import bf16, mx
from testbench.reference import matrix as reference
from testbench.reference.data import exact, order_sensitive
from tests.compiler.host import projected, read_matrix, write_matrix
from tests.compiler.interpreter import Interpreter

TINY, SMALL = PRESETS["tiny"], PRESETS["small"]


def equal(got: np.ndarray, want: np.ndarray) -> bool:
    return np.array_equal(bf16.canonical_bits(got), bf16.canonical_bits(want))


def small_integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return bf16.round_to_bf16(rng.integers(-3, 4, shape).astype(np.float32))


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("cap", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("shape", [(5, 8, 3), (1, 3, 1), (8, 1, 5), (12, 5, 2)])
def test_matches_the_reference_and_exact_integers(
    shape: tuple[int, int, int], cap: int, order: Order
) -> None:
    rows, tiles, blocks = shape
    rng = np.random.default_rng(cap)
    act = small_integers(rng, rows, tiles * 8)
    weights = [small_integers(rng, tiles * 8, blocks * 8) for _ in range(2)]
    _, outs, _, _ = projected(TINY, act, weights, cap=cap, order=order)
    for out, weight in zip(outs, weights, strict=True):
        assert equal(out, reference.linear_projection(act, weight, 8, cap))
        product = act.astype(np.float64) @ weight.astype(np.float64)
        if cap >= tiles:
            assert equal(out, bf16.round_to_bf16(product))


@pytest.mark.parametrize("cap", [1, 2, 3, 4])
@pytest.mark.parametrize("blocks", [7, 20])
def test_rolled_column_blocks_are_short_and_right(cap: int, blocks: int) -> None:
    act = exact((9, 64), seed=cap)
    weight = exact((64, blocks * 8), seed=blocks)
    unit = 1 if (8 // cap) % 2 == 0 and 8 % cap == 0 else 2
    _, outs, _, prog = projected(TINY, act, [weight, weight], cap=cap)
    assert all(equal(o, reference.linear_projection(act, weight, 8, cap)) for o in outs)
    written = sum(i.opcode.mnemonic == "M_MM" for i in prog.instructions)
    per_block = 8 * 3 * 2  # K tiles, row groups, column groups
    # Seven blocks are written out; twenty are a loop over `unit` blocks and a rest of as many.
    assert written == 2 * per_block * (7 if blocks == 7 else 2 * unit)


def test_chunks_are_added_in_bf16_in_chunk_order() -> None:
    act = bf16.round_to_bf16(np.ones((4, 64), np.float32))
    column = np.zeros((64, 16))
    column[::8] = 1.0
    column[0] = 256.0  # neighbours of 256 are 2 apart: what is added one by one is lost
    for cap, want in ((1, 256), (2, 262), (4, 264)):
        _, outs, _, _ = projected(TINY, act, [bf16.round_to_bf16(column)], cap=cap)
        assert set(outs[0].astype(int).ravel().tolist()) == {want}


def test_accumulation_order_within_a_chunk() -> None:
    act, weight = order_sensitive(4, 64, 16, seed=3)
    _, outs, _, _ = projected(TINY, act, [weight])
    assert equal(outs[0], reference.linear_projection(act, weight, 8))


def test_small_k_is_never_split() -> None:
    assert default_cap(PRESETS["default"]) == 8
    assert [(c.first, c.tiles) for c in split_k(8, 8)] == [(0, 8)]
    assert [(c.first, c.tiles) for c in split_k(9, 4)] == [(0, 4), (4, 4), (8, 1)]


def test_k_of_three_tiles_reads_each_tile_once() -> None:
    act = bf16.round_to_bf16(np.ones((4, 48), np.float32))
    weight = bf16.round_to_bf16(np.repeat([1.0, 2.0, 3.0], 16)[:, None] * np.ones((1, 16)))
    _, outs, _, _ = projected(SMALL, act, [weight])
    assert set(bf16.to_bits(outs[0]).ravel().tolist()) == {0x42C0}


def test_column_groups_come_out_in_order() -> None:
    act = bf16.round_to_bf16(np.eye(4, 48))
    weight = np.zeros((48, 16))
    weight[0] = np.arange(1, 17)
    _, outs, _, _ = projected(SMALL, act, [bf16.round_to_bf16(weight)])
    assert outs[0][0].astype(int).tolist() == list(range(1, 17))
    assert not bf16.to_bits(outs[0][1:]).any()


def test_a_second_write_out_is_zero() -> None:
    prog = Program(TINY, "twice")
    act, out = prog.vram.matrix("act", 4, 8), prog.vram.matrix("out", 4, 8)
    with prog.gps("m", "v", "o") as (m, v, o):
        for register, value in ((m, 0), (v, act.base), (o, out.base)):
            prog.emit("S_ADDI_INT", register, GP0, value)
        prog.emit("M_MM", m, v)
        prog.emit("M_MM_WO", o, GP0, 0)
        prog.emit("M_MM_WO", o, GP0, 4)
    machine = Interpreter(TINY, 64)
    write_matrix(machine, act, bf16.round_to_bf16(np.ones((4, 8), np.float32)))
    machine.mram[0] = 1.0
    machine.run(prog.build())
    got = read_matrix(machine, out)
    assert (got[:, :4] == 8).all()
    assert not bf16.to_bits(got[:, 4:]).any()


@pytest.mark.parametrize("cap", [None, 1])
def test_five_rows_touch_two_row_groups_and_nothing_else(cap: int | None) -> None:
    config = TINY.replace(HBM_V_PREFETCH=8)  # 16 physical rows for 9, so that some stay unused
    act = exact((9, 24), seed=1)
    machine, outs, matrices, _ = projected(config, act, [exact((24, 16), seed=2)], cap=cap)
    assert matrices[0].physical_rows == 16
    assert not np.isnan(outs[0].astype(np.float32)).any()
    for block in range(2):
        start = matrices[0].row_address(12, block) // 8
        assert (bf16.to_bits(machine.vram[start : start + 4]) == 0x7FC0).all()


def test_the_next_panel_is_fetched_before_this_one_is_used() -> None:
    act, weight = exact((4, 8), seed=1), exact((8, 32), seed=2)
    _, _, _, prog = projected(TINY, act, [weight, weight])
    order = [i.opcode.mnemonic for i in prog.instructions]
    relevant = [m for m in order if m in ("H_PREFETCH_M", "M_MM")]
    runs = [m for i, m in enumerate(relevant) if i == 0 or m != relevant[i - 1]]
    assert relevant[:2] == ["H_PREFETCH_M"] * 2
    assert runs == ["H_PREFETCH_M", "M_MM"] * 7  # the last products have no fetch before them
    assert relevant.count("H_PREFETCH_M") == 8


def test_weights_are_loaded_once_for_all_row_groups() -> None:
    _, _, _, prog = projected(TINY, exact((40, 16), seed=1), [exact((16, 24), seed=2)])
    assert sum(i.opcode.mnemonic == "H_PREFETCH_M" for i in prog.instructions) == 2 * 3
    assert sum(i.opcode.mnemonic == "C_SET_ADDR_REG" for i in prog.instructions) == 1
    assert sum(i.opcode.mnemonic == "C_SET_SCALE_REG" for i in prog.instructions) == 1
    assert sum(i.opcode.mnemonic == "C_SET_STRIDE_REG" for i in prog.instructions) == 1


def test_addresses_beyond_18_bits_and_several_row_spans() -> None:
    config = TINY.replace(
        name="wide",
        MLEN=512,
        BLEN=64,
        HLEN=64,
        VRAM_ROWS=2048,
        MRAM_TILES=4,
        HBM_M_PREFETCH=None,
        HBM_V_PREFETCH=None,
        HBM_V_WRITEBACK=None,
    )
    act = exact((512, 1024), seed=1)
    weight = exact((1024, 512), seed=2)
    _, outs, _, _ = projected(config, act, [weight], cap=2)
    want = act.astype(np.float64) @ weight.astype(np.float64)
    np.testing.assert_allclose(outs[0].astype(np.float64), want, rtol=2**-7, atol=0.05)


def test_refusals_name_both_sides() -> None:
    prog = Program(TINY, "bad")
    act, out = prog.vram.matrix("act", 4, 16), prog.vram.matrix("out", 4, 8)
    weight = prog.hbm.tensor("w", 8, 8)
    with prog.a("weights") as address:
        panels = WeightPanels(prog, address)
        with pytest.raises(CompileError) as error:
            linear_projection(prog, panels, act=act, weight=weight, out=out, rows=4)
        assert str(error.value) == (
            "linear_projection w [8, 8]: must be [K, N] for act act [.., 16] and out out [.., 8] "
            "(use matrices of those widths)"
        )
        wide = prog.hbm.tensor("w2", 16, 8)
        with pytest.raises(CompileError, match=r"rows = 5: act has 4 physical rows"):
            linear_projection(prog, panels, act=act, weight=wide, out=out, rows=5)
        linear_projection(prog, panels, act=act, weight=wide, out=out, rows=4, then=weight)
        with pytest.raises(CompileError, match=r"w was fetched ahead, but w2 comes next"):
            linear_projection(prog, panels, act=act, weight=wide, out=out, rows=4)


# Row-wise operations.


@pytest.mark.parametrize("rows", [1, 3, 8, 17, 40])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_rowwise_operations_cover_every_row_once(rows: int, blocks: int) -> None:
    prog = Program(TINY, "rows")
    shape = (rows, blocks * 8)
    x, y = prog.vram.matrix("x", *shape), prog.vram.matrix("y", *shape)
    bias = prog.vram.matrix("bias", 1, shape[1])
    copy(prog, y, x, rows=rows)
    add_bias(prog, y, bias, rows=rows)
    rowwise(prog, "V_MUL_VV", y, y, x, rows=rows)
    machine = Interpreter(TINY, 64)
    values, row = exact(shape, seed=1), exact((1, shape[1]), seed=2)
    write_matrix(machine, x, values)
    write_matrix(machine, bias, row)
    before = machine.vram.copy()
    machine.run(prog.build())
    copied = bf16.add(values, bf16.round_to_bf16(0.0))  # -0 becomes +0
    assert equal(read_matrix(machine, y), bf16.mul(bf16.add(copied, row), values))
    changed = (bf16.to_bits(machine.vram) != bf16.to_bits(before)).any(axis=1)
    assert changed.sum() == rows * blocks
    for mnemonic in ("V_ADD_VF", "V_ADD_VV", "V_MUL_VV"):
        assert machine.issued["other", mnemonic] == rows * blocks


def test_rowwise_refusals() -> None:
    prog = Program(TINY, "rows")
    x, y = prog.vram.matrix("x", 4, 8), prog.vram.matrix("y", 4, 16)
    with pytest.raises(CompileError, match=r"V_ADD_VV: columns differ: x 8, y 16"):
        rowwise(prog, "V_ADD_VV", x, x, y, rows=4)
    with pytest.raises(CompileError, match=r"V_ADD_VF: rows = 5: x has 4 physical rows"):
        rowwise(prog, "V_ADD_VF", x, x, F0, rows=5)


def test_row_loops_unroll() -> None:
    prog = Program(TINY, "rows")
    x = prog.vram.matrix("x", 40, 8)
    rowwise(prog, "V_EXP_V", x, x, rows=40)
    body = 2 * UNROLL + 3
    assert len(prog.instructions) == body


def test_quantised_weights_are_what_the_matrix_unit_sees() -> None:
    rng = np.random.default_rng(5)
    act = exact((4, 8), seed=4)
    weight = bf16.round_to_bf16(rng.normal(size=(8, 8)))
    _, outs, _, _ = projected(TINY, act, [weight])
    assert equal(outs[0], reference.linear_projection(act, mx.round_trip(weight), 8))


def test_one_column_group_and_row_group_per_tile() -> None:
    config = TINY.replace(BLEN=8, HBM_V_PREFETCH=None, HBM_V_WRITEBACK=None)
    act, weight = exact((9, 16), seed=1), exact((16, 16), seed=2)
    _, outs, _, _ = projected(config, act, [weight])
    assert equal(outs[0], reference.linear_projection(act, weight, 8))
