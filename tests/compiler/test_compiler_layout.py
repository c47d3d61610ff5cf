"""Memory layouts: footprints, addresses, host conversion, allocation and its refusals."""

import math

import numpy as np
import pytest

from compiler import CompileError
from compiler.arena import Arena
from compiler.hbm import HbmLayout, Order
from compiler.scalar_memory import NAMED_CONSTANTS, FpMem, IntMem, bf16_bits
from compiler.vram import VramLayout, transfer_rows
from isa import PRESETS
from sim.numerics import bf16

TINY, DEFAULT = PRESETS["tiny"], PRESETS["default"]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# HBM.


def test_footprints_are_padded_rows() -> None:
    layout = HbmLayout(DEFAULT)
    assert layout.tensor("square", 64, 64).footprint == 4608
    assert layout.tensor("row", 1, 64).footprint == 96
    assert layout.tensors["row"].base == 4608
    assert layout.tensor("next", 1, 64).base == 4608 + 128  # starts are multiples of 64


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("shape", [(8, 8), (16, 24), (24, 8)])
def test_place_and_gather_are_inverse(shape: tuple[int, int], order: Order) -> None:
    tensor = HbmLayout(TINY, start=100).tensor("w", *shape, order=order)
    assert tensor.base == 128
    codes = rng().integers(0, 256, shape, np.uint8)
    scales = rng().integers(0, 256, (shape[0], shape[1] // 8), np.uint8)
    memory = bytearray(tensor.base + tensor.extent)
    for address, data in tensor.place(codes, scales):
        memory[address : address + len(data)] = data
    got = tensor.gather(lambda address, size: bytes(memory[address : address + size]))
    assert np.array_equal(got[0], codes)
    assert np.array_equal(got[1], scales)
    # Every row of every tile is where H_PREFETCH_M looks for it, and so is its scale.
    for k, column, row in np.ndindex(shape[0] // 8, shape[1] // 8, 8):
        offset = k * tensor.tile_step + column * tensor.column_step + row * tensor.stride
        start = tensor.base + offset
        block = slice(column * 8, column * 8 + 8)
        assert memory[start : start + 8] == codes[k * 8 + row, block].tobytes()
        scale = memory[tensor.base + tensor.scale_offset + offset // 8]
        assert scale == scales[k * 8 + row, column]


def test_tile_major_tiles_are_contiguous() -> None:
    tensor = HbmLayout(TINY).tensor("w", 24, 16, order=Order.TILES)
    assert (tensor.stride, tensor.tile_step, tensor.column_step) == (8, 64, 192)
    assert HbmLayout(TINY).tensor("w", 24, 16).stride == 16


def test_gathered_tensors_keep_readable_slack() -> None:
    layout = HbmLayout(TINY)
    tensor = layout.tensor("x", 4, 8, slack_rows=TINY.BLEN - 1)
    last = (tensor.rows - 1 + TINY.BLEN - 1) * tensor.cols
    assert tensor.extent >= max(last + 8, tensor.scale_offset + last // 8 + 1)
    assert layout.tensor("y", 4, 8).base >= tensor.base + tensor.extent


def test_padded_rows_are_zero_codes() -> None:
    tensor = HbmLayout(TINY).tensor("x", 3, 8, physical_rows=4)
    (_, codes), (_, scales) = tensor.place(
        np.full((3, 8), 7, np.uint8), np.full((3, 1), 9, np.uint8)
    )
    assert (len(codes), codes[24:]) == (32, bytes(8))
    assert scales == bytes([9, 9, 9, 0])


def test_hbm_refusals_name_both_sides() -> None:
    layout = HbmLayout(TINY)
    layout.tensor("a", 8, 8)
    with pytest.raises(CompileError) as error:
        layout.tensor("b", 8, 8, at=64)
    assert str(error.value) == (
        "HBM: 'b' [64, 192) (128 bytes) overlaps 'a' [0, 128) (128 bytes) (move one of them)"
    )
    for call, text in (
        (lambda: layout.tensor("c", 1, 8, at=96), "must be a multiple of 64: two tensors must not"),
        (lambda: layout.tensor("a", 8, 8), "'a' was allocated before"),
        (lambda: layout.tensor("d", 9, 8, order=Order.TILES), "d: rows = 9: must be a positive"),
        (lambda: layout.tensor("e", 8, 12), "e: cols = 12: must be a positive multiple of MLEN"),
        (lambda: layout.tensor("f", 0, 8), "f: rows = 0: must be at least 1"),
        (lambda: layout.tensor("g", 4, 8, physical_rows=3), "3 physical rows cannot hold 4"),
    ):
        with pytest.raises(CompileError, match=text):
            call()
    small = HbmLayout(TINY.replace(HBM_BYTES=4096))
    with pytest.raises(CompileError, match=r"'big' \[0, 4608\) leaves 0 to 4096 bytes"):
        small.tensor("big", 64, 64)


def test_hbm_arrays_are_encoded_bytes_of_the_shape() -> None:
    tensor = HbmLayout(TINY).tensor("x", 4, 8)
    good = np.zeros((4, 1), np.uint8)
    with pytest.raises(CompileError, match="x codes of dtype float16: must be uint8"):
        tensor.place(np.zeros((4, 8), np.float16), good)
    with pytest.raises(CompileError, match=r"x codes \(8, 4\): must be \(4, 8\)"):
        tensor.place(np.zeros((8, 4), np.uint8), good)


# Vector SRAM.


def test_matrix_addresses_and_host_conversion() -> None:
    layout = VramLayout(TINY)
    layout.matrix("before", 1, 8)
    matrix = layout.matrix("m", 5, 24)
    assert (matrix.first_row, matrix.physical_rows, matrix.memory_rows) == (4, 8, 24)
    assert matrix.row_address(3, 2) == (4 + 2 * 8 + 3) * 8
    values = rng().normal(size=(5, 24)).astype(bf16.BF16)
    rows = matrix.place(values)
    assert rows.shape == (24, 8)
    assert np.array_equal(rows[2 * 8 + 3], values[3, 16:])
    assert not rows[5:8].any()
    assert np.array_equal(matrix.gather(rows), values)
    assert matrix.place(np.ones((5, 24), np.uint16)).dtype == np.uint16
    for dtype in (np.float16, np.float32):
        with pytest.raises(CompileError, match="must be bfloat16, or uint16 patterns"):
            matrix.place(np.zeros((5, 24), dtype))
    with pytest.raises(CompileError, match=r"m \(24, 5\): must be \(5, 24\)"):
        matrix.place(np.zeros((24, 5), np.uint16))


def test_physical_rows_hold_whole_transfers() -> None:
    assert [transfer_rows(TINY, r) for r in (1, 4, 5)] == [4, 4, 8]
    assert transfer_rows(TINY.replace(HBM_V_PREFETCH=3), 5) == 12
    assert transfer_rows(TINY.replace(HBM_V_WRITEBACK=8), 5) == 8


def test_freed_rows_are_reused_best_fit_and_merged() -> None:
    layout = VramLayout(TINY)
    a, b, c, d = (layout.matrix(n, r, 8) for n, r in (("a", 8), ("b", 4), ("c", 12), ("d", 4)))
    layout.free(a, c)
    assert layout.matrix("fits a", 8, 8).first_row == a.first_row
    assert layout.matrix("fits c", 8, 8).first_row == c.first_row
    layout.free(b, d)
    assert "b" not in layout.matrices
    assert layout.matrix("b", 4, 8).name == "b#2"
    full = VramLayout(TINY)
    parts = [full.matrix(f"p{i}", 256, 8) for i in range(4)]
    full.free(parts[1], parts[2])
    assert full.largest_gap == 512
    assert full.matrix("merged", 512, 8).first_row == 256


def test_vram_refusals_name_both_sides_and_sizes() -> None:
    layout = VramLayout(TINY)
    x = layout.matrix("x", 1000, 8)
    with pytest.raises(CompileError) as error:
        layout.matrix("y", 32, 8)
    assert str(error.value) == (
        "vector SRAM: 'y' needs 32 rows; 24 of 1024 are free, at most 24 in one run; "
        "held by: x 1000 (lower rows, or raise VRAM_ROWS)"
    )
    with pytest.raises(CompileError) as error:
        layout.matrix("z", 8, 8, at_row=996)
    assert str(error.value) == (
        "vector SRAM: 'z' [996, 1004) (8 rows) overlaps 'x' [0, 1000) (1000 rows) "
        "(move one of them)"
    )
    layout.free(x)
    with pytest.raises(CompileError, match="vector SRAM: 'x' is not allocated"):
        layout.free(x)


# FP_MEM and INT_MEM.


def test_named_constants_come_first() -> None:
    memory = FpMem(DEFAULT)
    assert [memory.constant(name) for name in NAMED_CONSTANTS] == list(range(8))
    epsilon = memory.define("epsilon", 1e-6)
    window = memory.window("scalars", 10)
    assert (epsilon, window.start) == (8, 9)
    image = memory.initial()
    assert image.dtype == np.uint16
    assert len(image) == 1024
    assert [hex(v) for v in image[:9].tolist()] == [
        "0x0", "0x3f80", "0xbf80", "0xff80", "0x40e0", "0xc0e0", "0xbfda", "0x3fda", "0x3586",
    ]  # fmt: skip
    with pytest.raises(CompileError, match="no constant 'on'; defined: zero, one"):
        memory.constant("on")


def test_the_zero_row_is_reserved_once() -> None:
    memory = FpMem(TINY)
    assert memory.zero_row() == (8, True)
    assert memory.zero_row() == (8, False)
    assert memory.window("w", 4).start == 16
    assert memory.window("w", 4).name == "w#2"


def test_constants_are_rounded_once() -> None:
    assert bf16_bits(1.003906251) == bf16_bits(1 + 2**-8 + 2**-40) == 0x3F81
    values = [*rng().normal(size=200), 1e-45, 1e-39, 3e-39, 3.3895e38, 3.4e38, 1e300, 1e-300, 0.0]
    values += [2.0**-133, 2.0**-134, 3 * 2.0**-134, 2.0**-126 * (1 - 2**-9), math.inf]
    for value in [v * s for v in values for s in (1, -1)]:
        want = bf16.to_bits(bf16.round_to_bf16(np.array([value])))[0]
        assert bf16_bits(value) == want, value
    assert bf16_bits(math.nan) == 0x7FC0


def test_int_mem_tables_are_loaded_by_the_host() -> None:
    memory = IntMem(TINY)
    memory.window("indices", 8)
    table = memory.table("offsets", np.arange(5, dtype=np.uint32) * 64)
    assert memory.initial()[table.start : table.end].tolist() == [0, 64, 128, 192, 256]
    with pytest.raises(CompileError, match="INT_MEM: 'more' needs 2000 words"):
        memory.window("more", 2000)


def test_an_arena_aligns_and_keeps_names() -> None:
    arena = Arena("memory", "units", 32, "make room")
    arena.reserve("odd", 0, 3)
    assert arena.allocate("even", 8, align=4).start == 4
    assert arena.gaps() == [(3, 1), (12, 20)]
    with pytest.raises(CompileError, match="leaves 0 to 32 units"):
        arena.reserve("beyond", 30, 4)
