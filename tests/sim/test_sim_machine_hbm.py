"""The architectural machine: transfers, strides, scales, and errors of the memory."""

import numpy as np
import pytest

from isa.config import PlenaConfig
from isa.traps import Trap
from sim.hbm import HbmDevice, HbmMemory
from sim.machine import Halt, Machine
from sim.numerics import mx
from sim.numerics.bf16 import from_bits, to_bits
from tests.sim.machine_bench import SMALL, TINY, bits, canonical, make, row

RNG = np.random.default_rng(3)


def device(config: PlenaConfig = TINY) -> HbmDevice:
    """4 KiB of element codes, then scales near 1 at 4096."""
    hbm = HbmDevice(config)
    hbm.write(0, RNG.integers(0, 256, 4096).astype(np.uint8))
    hbm.write(4096, RNG.integers(120, 134, 512).astype(np.uint8))
    return hbm


def rows_at(hbm: HbmMemory, base: int, offset: int, stride: int, count: int, mlen: int) -> object:
    """The rows as isa.md places them: a + gp + r * stride, scales at a + SCALE + that / 8."""
    codes, scales = [], []
    for r in range(count):
        at = offset + r * stride
        codes.append(np.frombuffer(hbm.read(base + at, mlen), np.uint8))
        scales.append(np.frombuffer(hbm.read(base + 4096 + at // 8, mlen // 8), np.uint8))
    return canonical(to_bits(mx.decode(np.array(codes), np.array(scales))))


SETUP = """
S_ADDI_INT gp1, gp0, 4096
C_SET_SCALE_REG gp1
S_ADDI_INT gp1, gp0, {stride}
C_SET_STRIDE_REG gp1
S_ADDI_INT gp1, gp0, {base}
C_SET_ADDR_REG a2, gp0, gp1
S_ADDI_INT gp2, gp0, {offset}
S_ADDI_INT gp3, gp0, {target}
"""


@pytest.mark.parametrize("strided", [0, 1])
@pytest.mark.parametrize("precision", [0, 1])
def test_prefetches_read_elements_and_scales(strided: int, precision: int):
    hbm = device(SMALL)
    setup = SETUP.format(stride=40, base=3, offset=104, target=256)
    text = (
        f"H_PREFETCH_M gp3, gp2, a2, {strided}, {precision}\nH_PREFETCH_V gp3, gp2, a2, {strided}"
    )
    machine = make(setup + text, SMALL, hbm)
    assert machine.run().cause is Trap.DONE
    stride = 40 if strided else 16
    memories = machine.memories
    assert canonical(memories.read_matrix(1)) == rows_at(hbm, 3, 104, stride, 16, 16)
    assert canonical(memories.read_vector(16, 4)) == rows_at(hbm, 3, 104, stride, 4, 16)
    assert not memories.read_matrix(0).any()
    assert not memories.read_vector(20, 1).any()


def test_prefetch_amounts_are_of_the_configuration():
    config = SMALL.replace(HBM_M_PREFETCH=3, HBM_V_PREFETCH=2, HBM_V_WRITEBACK=1)
    hbm = device(config)
    text = "H_PREFETCH_M gp0, gp0, a0, 0, 0\nH_PREFETCH_V gp0, gp0, a0, 0, 0\n"
    text = SETUP.format(stride=8, base=0, offset=0, target=0) + text
    machine = make(text, config, hbm)
    machine.memories.write_matrix(0, np.full((16, 16), 7, np.uint16))
    machine.memories.write_vector(0, np.full((4, 16), 7, np.uint16))
    machine.run()
    want = rows_at(hbm, 0, 0, 16, 3, 16)
    assert canonical(machine.memories.read_matrix(0)) == want + [[7] * 16] * 13  # type: ignore
    assert canonical(machine.memories.read_vector(0, 4)) == want[:2] + [[7] * 16] * 2  # type: ignore


@pytest.mark.parametrize(
    ("scale", "code", "want"),
    [
        *((0xFF, 0x38, 0x7FC0), (0x00, 0x38, 0x0040), (0xFE, 0x7E, 0x7F80), (0x00, 0x01, 0x0000)),
        *((0x00, 0x07, 0x0001), (0x7F, 0x7F, 0x7FC0), (0x7F, 0x80, 0x8000), (0x7F, 0x38, 0x3F80)),
    ],
)
def test_mx_edges(scale: int, code: int, want: int):
    hbm = HbmDevice(TINY)
    hbm.write(0, bytes([code]))
    hbm.write(4096, bytes([scale]))
    text = SETUP.format(stride=8, base=0, offset=0, target=0) + "H_PREFETCH_V gp0, gp0, a0, 0, 0"
    machine = make(text, TINY, hbm)
    machine.run()
    assert canonical(machine.memories.read_vector(0, 1))[0][0] == want


def test_a_store_writes_codes_and_scales_and_nothing_else():
    hbm = HbmDevice(TINY)
    hbm.fill(0, 8192, 0xAA)
    values = bits([[2.0**-r * (i + 1) for i in range(8)] for r in range(4)])
    text = SETUP.format(stride=24, base=5, offset=64, target=80) + "H_STORE_V gp3, gp2, a2, 1, 0"
    machine = make(text, TINY, hbm)
    machine.memories.write_vector(10, values)
    assert machine.run().cause is Trap.DONE
    want = np.full(8192, 0xAA, np.uint8)
    codes, scales = mx.encode(from_bits(values))
    for r in range(4):
        at = 64 + 24 * r
        want[5 + at : 13 + at] = codes[r]
        want[5 + 4096 + at // 8] = scales[r, 0]
    assert hbm.read(0, 8192) == want.tobytes()


def test_what_is_stored_reads_back():
    values = bits([[8.0, -4.0, 0.5, 3.0, -0.0, 1.5, 7.0, 0.25]] * 4)
    text = SETUP.format(stride=8, base=0, offset=8, target=64)
    machine = make(text + "H_STORE_V gp0, gp2, a2, 0, 0\nH_PREFETCH_V gp3, gp2, a2, 0, 0", TINY)
    machine.memories.write_vector(0, values)
    machine.run()
    assert machine.memories.read_vector(8, 4).tolist() == values.tolist()


def faulty(text: str, *addresses: int) -> tuple[Machine, HbmDevice]:
    hbm = device()
    for address in addresses:
        hbm.inject_fault(address)
    machine = make(SETUP.format(stride=64, base=0, offset=0, target=64) + text, TINY, hbm)
    return machine, hbm


@pytest.mark.parametrize("address", [0, 63, 4096, 64 * 3 + 7])
@pytest.mark.parametrize("op", ["H_PREFETCH_V", "H_PREFETCH_M", "H_STORE_V"])
def test_an_error_of_the_memory_ends_the_run(op: str, address: int):
    machine, _ = faulty(f"{op} gp3, gp0, a0, 1, 0\nS_ADDI_INT gp15, gp0, 1", address)
    word = int(machine.image.words[8])
    assert machine.run() == Halt(Trap.HBM_ADDRESS, 8, word, 0, by_memory=True)
    assert machine.memories.read_gp()[15] == 0
    assert not machine.memories.read_vector().any()
    assert not machine.memories.read_matrix(1).any()


def test_a_faulty_beat_that_is_not_touched_does_nothing():
    machine, _ = faulty("H_PREFETCH_V gp3, gp0, a0, 1, 0", 64 * 4, 4096 + 64)
    assert machine.run().cause is Trap.DONE


def test_a_failed_store_writes_what_the_memory_accepts():
    machine, hbm = faulty("H_STORE_V gp3, gp0, a0, 1, 0", 64)
    before = hbm.read(0, 256)
    machine.memories.write_vector(8, row(*[1.0] * 8).repeat(4, 0))
    assert machine.run().cause is Trap.HBM_ADDRESS
    after = hbm.read(0, 256)
    changed = [beat for beat in range(4) if before[64 * beat :][:64] != after[64 * beat :][:64]]
    assert changed == [0, 2, 3]
