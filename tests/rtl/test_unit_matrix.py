"""MatrixUnit with its SRAM, against sim.numerics.matrix."""

import numpy as np
import pytest
from amaranth.back import verilog

from isa.opcodes import Op
from rtl.matrix import MatrixUnit
from tests.rtl.test_unit_matrix_bench import (
    CONFIGS,
    TILES,
    bench,
    product,
    random_program,
    write_out,
)


@pytest.mark.parametrize("pace", ["dense", "gaps"])
@pytest.mark.parametrize(
    ("name", "seed"),
    [("tiny", 0), ("tiny", 1), ("tiny", 2), ("two", 0), ("two", 1), ("small", 0), ("square", 0)],
)
def test_random_programs_are_bit_exact(name: str, seed: int, pace: str) -> None:
    rng = np.random.default_rng([seed, len(pace)])
    program = random_program(rng, CONFIGS[name], 40)
    gaps = rng.geometric(0.15, len(program)) - 1 if pace == "gaps" else np.zeros(len(program), int)
    bench(name).run(program, gaps.tolist())
    bench(name).check()


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_accumulators_start_clear_and_hold_what_is_added(name: str) -> None:
    """In FP32, where the order of the additions shows."""
    here = bench(name)
    here.run([write_out(row=40)])
    assert not here.result.accs["m_acc"].any()
    here.check()
    for count in (1, 2, 3, 6):
        here.run([product(row=24 + 5 * n, tile=n % TILES) for n in range(count)])
        here.check()


def test_other_operations_have_no_latency() -> None:
    with pytest.raises(ValueError, match="executes M_\\* only, not V_ADD_VV"):
        bench("tiny").unit.latency(Op["V_ADD_VV"])
    with pytest.raises(ValueError, match="M_MM_WO is not a product of the matrix unit"):
        bench("tiny").unit.interval(Op["M_MM_WO"])


def test_verilog_export() -> None:
    text = verilog.convert(MatrixUnit(CONFIGS["pairs"]), name="matrix_unit", emit_src=False)
    assert "module matrix_unit(" in text
    assert "latch" not in text
