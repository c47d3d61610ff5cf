"""The vector unit's latency, throughput, quiet lanes and export."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.back import verilog

from isa.opcodes import Op
from rtl.vector import VectorUnit
from tests.rtl.test_unit_vector_bench import (
    ALL_OPS,
    CONFIGS,
    FAST,
    REDUCTIONS,
    UNARY,
    Instr,
    Rig,
    random_state,
    rig_for,
)


@pytest.fixture(params=FAST)
def rig(request: pytest.FixtureRequest) -> Rig:
    return rig_for(request.param)


def test_latency(rig: Rig) -> None:
    start = random_state(np.random.default_rng(4), rig.config)
    levels, passes = rig.config.MLEN.bit_length() - 1, rig.config.MLEN // rig.config.SFU_LANES
    for op in ALL_OPS:
        run = rig.check(start, [Instr(op, d=1, f=1)])
        expected = levels + 3 if op in REDUCTIONS else passes + 2 if op in UNARY else 3
        assert run.latency(0) == expected == rig.unit.latency(op), op


def test_a_dependent_instruction_issues_after_done(rig: Rig) -> None:
    start = random_state(np.random.default_rng(5), rig.config)
    for op in ALL_OPS:
        run = rig.check(start, [Instr(op, d=1, f=1), Instr(Op.V_ADD_VF, d=2, a=1, f=1)])
        assert run.issued[1] == run.done[0] + 1, op


@pytest.mark.parametrize("op", ALL_OPS, ids=lambda op: op.name)
def test_throughput_of_independent_instructions(rig: Rig, op: Any) -> None:
    start = random_state(np.random.default_rng(6), rig.config)
    # Reads of rows 8 to 15, writes of rows 0 to 7: and write-after-write does not wait.
    program = [Instr(op, d=k % 3, a=8 + k, b=15 - k, f=k) for k in range(1, 8)]
    run = rig.check(start, program)
    slots = rig.config.MLEN // rig.config.SFU_LANES if op in UNARY else 1
    assert [run.issued[k] - run.issued[0] for k in range(7)] == [slots * k for k in range(7)]
    assert [run.done[k] - run.done[0] for k in range(7)] == [slots * k for k in range(7)]


def test_special_functions_are_pipelined_with_the_rest(rig: Rig) -> None:
    start = random_state(np.random.default_rng(7), rig.config)
    ops = (Op.V_ADD_VV, Op.V_EXP_V, Op.V_MUL_VF, Op.V_RECI_V, Op.V_EXP_V, Op.V_RED_MAX, Op.V_SHFT_V)
    run = rig.check(start, [Instr(op, d=k, a=8 + k, b=15, f=1) for k, op in enumerate(ops)])
    passes = rig.config.MLEN // rig.config.SFU_LANES
    cost = [passes if op in UNARY else 1 for op in ops]
    assert [run.issued[k] - run.issued[0] for k in range(7)] == [sum(cost[:k]) for k in range(7)]
    assert all(run.latency(k) == rig.unit.latency(op) for k, op in enumerate(ops))


def test_nothing_moves_but_the_lanes_of_the_instruction(tmp_path: Path) -> None:
    leaves = {
        "add": (Op.V_ADD_VV, Op.V_SUB_VF), "multiply": (Op.V_MUL_VV,), "clamp": (Op.V_MAX_VF,),
        "shift": (Op.V_SHFT_V,), "exp": (Op.V_EXP_V,), "reciprocal": (Op.V_RECI_V,),
        "sum": (Op.V_RED_SUM,), "max": (Op.V_RED_MAX,),
    }  # fmt: skip
    rig = Rig(CONFIGS["tiny"])
    start = random_state(np.random.default_rng(8), rig.config)
    for kind, ops in leaves.items():
        program = [Instr(op, d=k, a=8 + k, f=1 + k, shift=1) for k, op in enumerate(ops * 3)]
        rig.run(start, program, vcd=tmp_path / "run.vcd")
        assert moving_lanes((tmp_path / "run.vcd").read_text(), set(leaves)) == {kind}


def moving_lanes(vcd: str, kinds: set[str]) -> set[str]:
    """The kinds of lanes with a change, after time 0, inside one of their leaves."""
    header, _, body = vcd.partition("$enddefinitions $end")
    scope: list[str] = []
    owner: dict[str, str] = {}
    for line in header.splitlines():
        words = line.split()
        if words[:1] == ["$scope"]:
            scope.append(words[2])
        elif words[:1] == ["$upscope"]:
            scope.pop()
        elif words[:1] == ["$var"]:
            kind = [k for k in kinds if k in scope or f"{k}_merge" in scope]
            if kind and (scope[-1] != kind[0] or words[4].startswith("moved")):
                owner[words[3]] = kind[0]
    changes = body[body.index("\n#", body.index("$dumpvars") if "$dumpvars" in body else 0) :]
    return {
        owner[name]
        for name in re.findall(r"^(?:b[01]+ |s\S* |[01])(\S+)$", changes, re.MULTILINE)
        if name in owner
    }


def test_verilog_export() -> None:
    text = verilog.convert(VectorUnit(CONFIGS["tiny"]), name="vector_unit", emit_src=False)
    assert "module vector_unit(" in text
    assert "issue__payload" in text
