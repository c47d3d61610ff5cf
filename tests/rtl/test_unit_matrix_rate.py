"""The cycles of MatrixUnit, against its docstring."""

import numpy as np
import pytest

from isa.opcodes import Op
from tests.rtl.test_unit_matrix_bench import (
    CONFIGS,
    QUICK,
    TILES,
    bench,
    product,
    random_program,
    write_out,
)


def steps(cycles: list[int]) -> set[int]:
    return set(np.diff(cycles).tolist())


@pytest.mark.parametrize("name", QUICK)
def test_latency_alone(name: str) -> None:
    config, unit = CONFIGS[name], bench(name).unit
    blen, levels = config.BLEN, config.MLEN.bit_length() - 1
    run = bench(name).run([product(row=blen), write_out()], [3, 60])
    took = [run.done[n] - run.issued[n] for n in range(2)]
    assert took == [2 * blen + levels + 3, blen + levels + 5]
    assert took == [unit.latency(Op["M_MM"]), unit.latency(Op["M_MM_WO"])]
    assert took[0] <= 3 * blen + 11
    first = run.issued[0] + blen + 3
    assert run.multiplying == [(first + i, 0) for i in range(blen)]
    bench(name).check()


@pytest.mark.parametrize("name", QUICK)
def test_products_take_blen_cycles(name: str) -> None:
    blen = CONFIGS[name].BLEN
    run = bench(name).run([product(tile=n % TILES, row=n) for n in range(12)])
    assert bench(name).unit.interval(Op["M_MM"]) == blen
    assert steps([run.done[n] for n in range(12)]) == {blen}
    assert steps([cycle for cycle, _ in run.multiplying]) == {1}
    assert [n for _, n in run.multiplying] == [n for n in range(12) for _ in range(blen)]
    bench(name).check()


@pytest.mark.parametrize("name", QUICK)
def test_products_with_write_outs_take_blen_cycles(name: str) -> None:
    blen = CONFIGS[name].BLEN
    pairs = [(product(tile=n % TILES, row=n), write_out(row=40 + n)) for n in range(12)]
    run = bench(name).run([each for pair in pairs for each in pair])
    assert steps([run.done[n] for n in range(0, 24, 2)]) == {blen}
    assert steps([run.done[n] for n in range(1, 24, 2)]) == {blen}
    assert {run.done[n + 1] - run.done[n] for n in range(0, 24, 2)} == {blen}
    assert steps([cycle for cycle, _ in run.multiplying]) == {1}
    bench(name).check()


@pytest.mark.parametrize("name", QUICK)
def test_write_outs_keep_their_distance(name: str) -> None:
    blen = CONFIGS[name].BLEN
    program = [product(), *(write_out(row=32 + 3 * n) for n in range(4)), product(row=5)]
    run = bench(name).run(program)
    assert steps([run.done[n] for n in range(1, 5)]) == {blen}
    bench(name).check()


@pytest.mark.parametrize("late", range(1, 24))
def test_a_write_out_at_any_time_after_its_product(late: int) -> None:
    """From riding along to a slot of its own; the next pair is right behind."""
    program = [product(row=3), write_out(row=40), product(row=9), write_out(row=50)]
    run, unit = bench("tiny").run(program, [0, late, 0, 0]), bench("tiny").unit
    riding = run.issued[0] + unit.latency(Op["M_MM"]) + unit.interval(Op["M_MM"])
    assert run.done[1] == max(riding, run.issued[1] + unit.latency(Op["M_MM_WO"]))
    loaded_behind = run.issued[2] + unit.latency(Op["M_MM"]) + unit.interval(Op["M_MM"])
    assert run.done[3] <= max(run.done[1] + unit.interval(Op["M_MM"]), loaded_behind)
    bench("tiny").check()


def test_the_queue_holds_four() -> None:
    run = bench("small").run([product(row=n) for n in range(10)])
    assert [run.issued[n] for n in range(4)] == [0, 1, 2, 3]
    assert steps([run.issued[n] for n in range(6, 10)]) == {4}


@pytest.mark.slow
def test_default() -> None:
    program = random_program(np.random.default_rng(7), CONFIGS["default"], 16)
    bench("default").run(program)
    bench("default").check()
    test_latency_alone("default")
    test_products_take_blen_cycles("default")
    test_products_with_write_outs_take_blen_cycles("default")
