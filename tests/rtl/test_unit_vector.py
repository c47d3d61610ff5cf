"""The results of the vector unit, with its SRAM, against the NumPy reference."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from isa.opcodes import Op
from sim.numerics import bf16
from tests.rtl.test_unit_vector_bench import (
    ALL_OPS,
    FAST,
    ROWS,
    Instr,
    Rig,
    random_instr,
    random_state,
    random_stream,
    rig_for,
)


@pytest.fixture(params=FAST)
def rig(request: pytest.FixtureRequest) -> Rig:
    return rig_for(request.param)


@pytest.mark.parametrize("op", ALL_OPS, ids=lambda op: op.name)
def test_every_op_on_every_kind_of_value(rig: Rig, op: Any) -> None:
    rng = random.Random(op.value)
    for seed in range(2):
        start = random_state(np.random.default_rng(100 * op.value + seed), rig.config)
        program = [random_instr(rng, rig.config, op) for _ in range(24)]
        program += [replace(i, d=i.a) for i in program[:8]]  # in place
        rig.check(start, program)


@pytest.mark.parametrize("op", ALL_OPS[:-1], ids=lambda op: op.name)  # a shift has no mask
def test_every_mask(op: Any) -> None:
    for name in ("4heads", "4passes"):
        rig = rig_for(name)
        start = random_state(np.random.default_rng(op.value), rig.config)
        rig.check(
            start,
            [
                Instr(op, d=mask % 4, a=4 + mask % 8, b=15, f=1 + mask % 7, mask=mask)
                for mask in range(1 << rig.config.heads)
            ],
        )


def test_reduction_with_no_lane_enabled(rig: Rig) -> None:
    start = random_state(np.random.default_rng(1), rig.config)
    start.f[:] = (0, 0x7FC0, 0xFF80, 0x7F80, 0x8000, 0x0001, 0xC000, 0xFFC1)
    run = rig.check(start, [Instr(Op.V_RED_MAX, a=k, f=k, mask=0) for k in range(1, 8)])
    assert list(run.state.f[1:]) == [0x7FC0, 0xFF80, 0x7F80, 0x8000, 0x0001, 0xC000, 0x7FC0]
    run = rig.check(start, [Instr(Op.V_RED_SUM, a=k, f=k, mask=0) for k in range(1, 8)])
    assert list(run.state.f[1:]) == [0x7FC0, 0xFF80, 0x7F80, 0x0000, 0x0001, 0xC000, 0x7FC0]


def test_sum_is_neighbours_first_and_rounded_twice() -> None:
    rig = rig_for("tiny")
    start = random_state(np.random.default_rng(2), rig.config)
    big, tiny = 0x4B80, 0x3F80  # 2^24 and 1: FP32 loses a 1 beside 2^24
    start.rows[0] = (big, tiny, tiny, tiny, tiny, tiny, tiny, big | 0x8000)
    start.rows[1] = (0x3B80, 0x3280, 0, 0, 0, 0, 0, 0)  # 2^-8 and 2^-26
    start.f[1:4] = (0, tiny, tiny)
    program = [Instr(Op.V_RED_SUM, f=1), Instr(Op.V_RED_SUM, f=2), Instr(Op.V_RED_SUM, a=1, f=3)]
    run = rig.check(start, program)
    # 5 and 6, where exact arithmetic has 6 and 7 and lane order 0 and 1; and 1 + 2^-8 is a tie once
    # FP32 has lost the 2^-26.
    assert list(run.state.f[1:4]) == [0x40A0, 0x40C0, 0x3F80]


def test_order_sensitive_sums(rig: Rig) -> None:
    # What is left of numbers that cancel exactly depends on the order of the additions.
    rng = np.random.default_rng(9)
    start = random_state(rng, rig.config)
    for row in start.rows:
        half = rng.normal(0, 1, rig.config.MLEN // 2) * 2.0 ** rng.integers(0, 40, row.size // 2)
        row[:] = rng.permutation(bf16.to_bits(bf16.round_to_bf16(np.concatenate([half, -half]))))
    start.f[:] = 0
    for first in range(0, ROWS, 7):
        rows = range(first, min(first + 7, ROWS))
        rig.check(start, [Instr(Op.V_RED_SUM, a=row, f=1 + row % 7) for row in rows])


def test_every_shift(rig: Rig) -> None:
    start = random_state(np.random.default_rng(3), rig.config)
    for first in range(0, rig.config.MLEN + 1, 8):
        shifts = range(first, min(first + 8, rig.config.MLEN + 1))
        rig.check(start, [Instr(Op.V_SHFT_V, d=s % 8, a=8 + s % 8, shift=s) for s in shifts])


@pytest.mark.parametrize("seed", range(4))
def test_random_streams(rig: Rig, seed: int) -> None:
    random_stream(rig, seed)


@pytest.mark.slow
def test_random_streams_at_the_default_configuration() -> None:
    for seed in range(4):
        random_stream(rig_for("default"), seed)
