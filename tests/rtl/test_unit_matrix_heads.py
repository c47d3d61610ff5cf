"""The matrix-vector and per-head forms of MatrixUnit: results and cycles."""

import numpy as np
import pytest

from isa.opcodes import Op
from tests.rtl.test_unit_matrix_bench import (
    CONFIGS,
    HALF,
    Instruction,
    bench,
    product,
    random_program,
    write_out,
)

HEADED = ("square", "slim", "pairs")  # one head, four and two
#: Write-outs by their products.
FORMS = {
    "M_MM": "M_MM_WO",
    "M_TMM": "M_MM_WO",
    "M_MV": "M_MV_WO",
    "M_TMV": "M_MV_WO",
    "M_BMM": "M_BMM_WO",
    "M_BTMM": "M_BMM_WO",
    "M_BMV": "M_BMV_WO",
    "M_BTMV": "M_BMV_WO",
}
NEW = [name for name in FORMS if name not in ("M_MM", "M_TMM")]


def steps(cycles: list[int]) -> list[int]:
    return np.diff(cycles).tolist()


def sliced(name: str, config: str, **fields: int) -> Instruction:
    """A product with the last slice or group of columns of its tile."""
    machine = CONFIGS[config]
    width = machine.HLEN if "B" in name else machine.BLEN
    return product(name, index=machine.MLEN - width, **fields)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", HEADED)
def test_random_programs_are_bit_exact(name: str, seed: int) -> None:
    rng = np.random.default_rng([9, seed])
    program = random_program(rng, CONFIGS[name], 32, heads=True, apart=seed < 2)
    gaps = rng.geometric(0.15, len(program)) - 1 if seed % 2 else np.zeros(len(program), int)
    bench(name).run(program, gaps.tolist())
    bench(name).check()


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("config", HEADED)
def test_latency_alone(name: str, config: str) -> None:
    unit = bench(config).unit
    run = bench(config).run([sliced(name, config, row=3, tile=1), write_out(FORMS[name])], [2, 90])
    took = [run.done[n] - run.issued[n] for n in range(2)]
    assert took == [unit.latency(Op[name]), unit.latency(Op[FORMS[name]])]
    bench(config).check()


def test_latency_as_stated() -> None:
    """slim has BLEN 4, four heads and three levels."""
    slim = bench("slim").unit.latency
    assert [slim(Op[name]) for name in NEW[::2]] == [12, 27, 16]
    assert [slim(Op[f"{name}_WO"]) for name in ("M_MV", "M_BMM", "M_BMV")] == [10, 43, 15]


@pytest.mark.parametrize("name", ["M_MV", "M_BTMM", "M_BMV"])
@pytest.mark.parametrize("config", ["slim", "pairs"])
def test_products_follow_each_other_without_a_bubble(name: str, config: str) -> None:
    here, count = bench(config), 4 if name == "M_BTMM" else 6
    run = here.run([sliced(name, config, row=n, tile=n % 3) for n in range(count)])
    interval = here.unit.interval(Op[name])
    assert steps([run.done[n] for n in range(count)]) == [interval] * (count - 1)
    if name == "M_BTMM":
        assert interval == CONFIGS[config].MLEN ** 2 // CONFIGS[config].BLEN
        assert set(steps([cycle for cycle, _ in run.multiplying])) == {1}
        assert len(run.multiplying) == count * interval
    here.check()


@pytest.mark.parametrize("config", HEADED)
def test_a_write_out_behind_its_product_takes_no_slot(config: str) -> None:
    """Of v_acc not at all; a per-head product after it waits for the rows."""
    here = bench(config)
    run = here.run([product("M_MV"), write_out("M_MV_WO")] * 4)
    assert steps([run.done[n] for n in range(0, 8, 2)]) == [CONFIGS[config].BLEN] * 3
    assert {run.done[n + 1] - run.done[n] for n in range(0, 8, 2)} == {1}
    here.check()
    run = here.run([product("M_BMM"), write_out("M_BMM_WO"), product("M_BMM"), product("M_BMV")])
    rows = CONFIGS[config].heads * CONFIGS[config].MLEN
    assert run.done[1] - run.done[0] == rows + 2
    levels = CONFIGS[config].heads.bit_length() - 1
    interval = here.unit.interval(Op["M_BMM"])
    assert run.done[2] - run.done[0] == rows + 3 + levels + interval
    assert run.done[3] - run.done[2] == here.unit.interval(Op["M_BMV"]) - CONFIGS[config].BLEN + 1
    here.check()


def test_other_products_do_not_wait_for_a_long_write_out() -> None:
    here = bench("slim")
    products = [product(row=n) for n in range(3)] + [product("M_MV", row=n) for n in range(3)]
    run = here.run([write_out("M_BMM_WO"), *products, write_out("M_MV_WO"), write_out()])
    assert max(run.done[n] for n in range(1, 7)) < run.done[0]
    assert run.done[0] < run.done[7] < run.done[8]
    here.check()


@pytest.mark.parametrize("config", HEADED)
def test_accumulators_start_clear_add_up_and_are_cleared(config: str) -> None:
    """Each twice written out before, between and after sums; a third sum stays."""
    here = bench(config)
    outs = sorted({*FORMS.values()})
    program = [write_out(out, row=HALF) for out in outs]
    for round_, count in enumerate((1, 3)):
        program += [sliced(n, config, tile=k % 3, row=k) for n in NEW for k in range(count)]
        program += [write_out(out, row=HALF + 8 * round_) for out in outs]
        program += [write_out(out, row=HALF + 3) for out in outs]
    here.run(program)
    assert not any(acc.any() for acc in here.result.accs.values())
    here.check()
    assert not here.result.vram[HALF + 3 : HALF + 3 + CONFIGS[config].MLEN].any()
    here.run([sliced(n, config, tile=k, row=k) for k in range(3) for n in NEW])
    assert all(here.result.accs[name].any() for name in ("v_acc", "hm_acc", "hv_acc"))
    here.check()


@pytest.mark.parametrize("late", [*range(20, 34)])
def test_a_long_write_out_at_any_time_after_its_product(late: int) -> None:
    program = [
        product("M_BMM", row=3),
        write_out("M_BMM_WO"),
        product("M_BMV", row=9),
        write_out("M_BMV_WO", row=70),
        write_out("M_MV_WO", row=36),
    ]
    bench("pairs").run(program, [0, late, 0, 0, 0])
    bench("pairs").check()


@pytest.mark.slow
def test_more_lanes() -> None:
    """Two heads, and a block of columns of two groups."""
    for seed in range(3):
        rng = np.random.default_rng([3, seed])
        bench("small").run(random_program(rng, CONFIGS["small"], 32, heads=True, apart=True))
        bench("small").check()


@pytest.mark.slow
def test_default() -> None:
    here = bench("default")
    program = [sliced(n, "default", row=3, tile=k % 3) for k, n in enumerate(NEW)]
    here.run([*program, *(write_out(out, row=64) for out in ("M_MV_WO", "M_BMV_WO", "M_BMM_WO"))])
    here.check()
