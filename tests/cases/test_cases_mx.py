"""MX conversion under OCP's rule, blocks of 4: leaves, reference, and transfers on both
machines."""

import numpy as np
import pytest

from rtl.leaves import MxBlockScale, MxDecode, MxEncode
from sim.numerics import mx
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16, to_bits
from tests.cases.sides import CONFIG, LANES, Side
from tests.cases.table import MX_BLOCKS, MX_DECODE
from tests.rtl.leaves.leaf_harness import evaluate, expect

BLOCK = CONFIG.MX_BLOCK
SCALES = 0x1000
SET_SCALE = f"S_ADDI_INT gp1, gp0, {SCALES}\nC_SET_SCALE_REG gp1\n"

blocks = pytest.mark.parametrize(("block", "scale", "codes"), MX_BLOCKS)


def bits(block: list[float]) -> np.ndarray:
    return to_bits(round_to_bf16(np.array(block, np.float64)))


@blocks
def test_encode_leaves_and_reference(block, scale, codes):
    words = bits(block).astype(np.uint32)
    got = evaluate(lambda: MxBlockScale(block=BLOCK), {f"i{k}": words[k : k + 1] for k in range(4)})
    assert f"{got[0]:02X}" == f"{scale:02X}"
    expect(evaluate(MxEncode, {"i": words, "scale": np.full(4, scale)}), np.array(codes), i=words)
    reference_codes, reference_scales = mx.encode(from_bits(words), BLOCK)
    assert (reference_codes.tolist(), reference_scales.tolist()) == (codes, [scale])


@blocks
def test_a_store_writes_them(side: Side, block, scale, codes):
    rows = np.zeros((CONFIG.v_writeback, LANES), np.uint16)
    rows[1, 4:] = bits(block)
    end = side(SET_SCALE + "H_STORE_V gp0, gp0, a0, 0, 1\n", lambda m, _: m.write_vector(0, rows))
    assert end.hbm.read(LANES + 4, 4) == bytes(codes)
    assert end.hbm.read(SCALES + (LANES + 4) // BLOCK, 1) == bytes([scale])


def test_decode_leaf_and_reference():
    codes, scales = (np.array(c, np.uint32) for c in zip(*MX_DECODE, strict=True))
    wanted = np.array(list(MX_DECODE.values()))
    operands = {"code": codes, "scale": scales}
    expect(evaluate(MxDecode, operands), wanted, **operands)
    decoded = mx.decode(codes.astype(np.uint8), scales.astype(np.uint8), 1)
    expect(canonical_bits(decoded), wanted, **operands)


def test_a_prefetch_reads_them(side: Side):
    for (code, scale), wanted in MX_DECODE.items():

        def prepare(_memories, hbm, code=code, scale=scale):
            hbm.write(0, bytes([0, 0, 0, 0, 0, 0, code, 0]))
            hbm.write(SCALES, bytes([0x7F, scale]))

        end = side(SET_SCALE + "H_PREFETCH_V gp0, gp0, a0, 0, 1\n", prepare)
        row = end.row(0)
        assert f"{row[6]:04X}" == f"{wanted:04X}", f"{code:02X} under {scale:02X}"
        # The other block is not touched by this one's scale; a scale of FF makes all of its own
        # block NaN.
        assert row[:4] == [0] * 4
        assert row[7] == (0x7FC0 if scale == 0xFF else 0)


def test_zeros_are_zeros_under_any_scale(side: Side):
    for first in range(0, 255, 8):
        scales = [min(first + k, 254) for k in range(8)]
        text = SET_SCALE + "H_PREFETCH_V gp0, gp0, a0, 0, 1\n"
        end = side(text, lambda _, hbm, s=scales: hbm.write(SCALES, bytes(s)))
        assert not end.memories.read_vector(0, 4).any()


def test_a_block_that_is_exact_reads_back(side: Side):
    block = [2.0**-126, 2.0**-127, 2.0**-133, 0]
    rows = np.zeros((CONFIG.v_writeback, LANES), np.uint16)
    rows[0, :4] = bits(block)
    text = (
        SET_SCALE + "H_STORE_V gp0, gp0, a0, 0, 1\n"
        f"S_ADDI_INT gp2, gp0, {8 * LANES}\nH_PREFETCH_V gp2, gp0, a0, 0, 1\n"
    )
    end = side(text, lambda m, _: m.write_vector(0, rows))
    assert end.row(8) == rows[0].tolist()
