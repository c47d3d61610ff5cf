"""The machine in MX dialect plena: any bytes of memory through both conversions, and a shared
expert, in lock step with the architectural machine."""

import numpy as np
import pytest

from isa.assembler import assemble
from isa.config import PRESETS
from isa.traps import Trap
from sim.hbm import HbmDevice
from sim.lockstep import Lockstep
from sim.numerics import mx
from sim.numerics.bf16 import canonical_bits, from_bits
from sim.simulation import Simulation
from testbench.shared_case import build_case, spec_of

CONFIG = PRESETS["tiny"].replace(name="plena", mx_dialect="plena")
ROWS = 64
CODES, SCALES, BACK = 0, 1024, 2048

#: Rows of codes to vector SRAM, BLEN at a time; then back, behind them in memory.
PROGRAM = f"""
    S_ADDI_INT gp1, gp0, {SCALES}
    C_SET_SCALE_REG gp1
    S_ADDI_INT gp2, gp0, {BACK}
    C_SET_ADDR_REG a1, gp0, gp2
    C_LOOP_START gp3, {ROWS // CONFIG.BLEN}
    H_PREFETCH_V gp4, gp4, a0, 0, 0
    H_STORE_V gp4, gp4, a1, 0, 0
    S_ADDI_INT gp4, gp4, {CONFIG.BLEN * CONFIG.MLEN}
    C_LOOP_END gp3
"""


def test_any_bytes_through_both_conversions(engine):
    rng = np.random.default_rng(8)
    codes = rng.integers(0, 256, (ROWS, 8)).astype(np.uint8)
    scales = rng.integers(0, 256, (ROWS, 1)).astype(np.uint8)
    scales[:4, 0] = 0, 255, 1, 254
    codes[1] = 0x00, 0x80, 0x38, 0xB8, 0x78, 0xF8, 0x79, 0x07
    hbm = HbmDevice(CONFIG)
    hbm.write(CODES, codes)
    hbm.write(SCALES, scales)
    image = assemble(PROGRAM, config=CONFIG)
    simulation = Simulation(CONFIG, image, hbm, engine=engine(CONFIG))
    result = simulation.run(max_cycles=20_000, observers=[Lockstep()])
    assert result.cause is Trap.DONE, result.report(image)
    values = mx.decode(codes, scales, 8, "plena")
    seen = from_bits(simulation.memories.read_vector(0, ROWS))
    assert np.array_equal(canonical_bits(seen), canonical_bits(values))
    back, back_scales = mx.encode(values, 8, "plena")
    assert hbm.read(BACK, ROWS * 8) == back.tobytes()
    assert hbm.read(BACK + SCALES, ROWS) == back_scales.tobytes()
    ocp = mx.decode(codes, scales, 8, "ocp")
    assert not np.array_equal(canonical_bits(values), canonical_bits(ocp))


@pytest.mark.parametrize("kind", ["exact", "random"])
def test_a_shared_expert(engine, kind):
    spec = spec_of("qwen2", hidden=CONFIG.MLEN, intermediate=2 * CONFIG.MLEN)
    case = build_case(CONFIG, spec, rows=5, kind=kind)
    simulation = Simulation(CONFIG, case.program.image, case.hbm(), engine=engine(CONFIG))
    case.load(simulation)
    result = simulation.run(max_cycles=200_000, observers=[Lockstep()])
    assert result.cause is Trap.DONE, result.report(simulation.image)
    assert [str(c) for c in case.check(simulation) if not c.ok] == []
