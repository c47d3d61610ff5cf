"""The activation between the projections of an expert."""

from collections.abc import Sequence

from compiler.elementwise import Rows, rowwise
from compiler.errors import unknown_name
from compiler.program import Program
from compiler.registers import GP0, Register
from compiler.vram import VramMatrix
from isa import Stage


def load_constant(prog: Program, register: Register, name: str) -> None:
    """f = the FP_MEM constant called `name`."""
    prog.emit("S_LD_FP", register, GP0, prog.fp_mem.constant(name))


def one_over_one_plus_exp(prog: Program, values: Sequence[Register], one: Register) -> None:
    """f = 1 / (1 + exp(f)) for each register, a step for all of them before the next: the sigmoid
    of what was negated before. `one` holds 1."""
    for value in values:
        prog.emit("S_EXP_FP", value, value)
    for value in values:
        prog.emit("S_ADD_FP", value, value, one)
    for value in values:
        prog.emit("S_RECI_FP", value, value)


def standard_swiglu(
    prog: Program,
    *,
    stage: Stage | str,
    gate: VramMatrix,
    up: VramMatrix,
    scratch: VramMatrix,
    rows: Rows,
) -> None:
    """up = silu(gate) * up in six roundings, under `stage`; gate and scratch are overwritten.

    The steps are -gate, exp, + 1, reciprocal, gate * that, up * that: numerics.md, "SwiGLU".
    """
    prog.stage(stage=stage, detail=f"standard_swiglu {up.name}")
    with (
        prog.emitter(f"standard_swiglu {up.name}"),
        prog.fs("one", "minus one") as (one, minus_one),
    ):
        load_constant(prog, one, "one")
        load_constant(prog, minus_one, "minus_one")
        rowwise(prog, "V_MUL_VF", scratch, gate, minus_one, rows=rows)
        rowwise(prog, "V_EXP_V", scratch, scratch, rows=rows)
        rowwise(prog, "V_ADD_VF", scratch, scratch, one, rows=rows)
        rowwise(prog, "V_RECI_V", scratch, scratch, rows=rows)
        rowwise(prog, "V_MUL_VV", gate, gate, scratch, rows=rows)
        rowwise(prog, "V_MUL_VV", up, up, gate, rows=rows)


def clamp(prog: Program, *, gate: VramMatrix, up: VramMatrix, rows: Rows) -> None:
    """gate = min(gate, 7), up = max(min(up, 7), -7), in place; marks no stage."""
    with prog.fs("limit", "minus limit") as (limit, minus_limit):
        load_constant(prog, limit, "clamp_limit")
        load_constant(prog, minus_limit, "minus_clamp_limit")
        rowwise(prog, "V_MIN_VF", gate, gate, limit, rows=rows)
        rowwise(prog, "V_MIN_VF", up, up, limit, rows=rows)
        rowwise(prog, "V_MAX_VF", up, up, minus_limit, rows=rows)


def gpt_oss_clamp_gated(
    prog: Program,
    *,
    stage: Stage | str,
    gate: VramMatrix,
    up: VramMatrix,
    scratch: VramMatrix,
    rows: Rows,
) -> None:
    """up = (clamp(up) + 1) * (g * sigmoid(1.702 g)), g = clamp(gate), under `stage`.

    The gate is clamped from above only, at 7; up to -7 .. 7. A rounding per instruction;
    lowering.md section 4, "Activations". gate and scratch are overwritten.
    """
    prog.stage(stage=stage, detail=f"gpt_oss_clamp_gated {up.name}")
    with prog.emitter(f"gpt_oss_clamp_gated {up.name}"):
        clamp(prog, gate=gate, up=up, rows=rows)
        with prog.fs("one", "minus alpha") as (one, minus_alpha):
            load_constant(prog, one, "one")
            load_constant(prog, minus_alpha, "minus_alpha")
            rowwise(prog, "V_MUL_VF", scratch, gate, minus_alpha, rows=rows)
            rowwise(prog, "V_EXP_V", scratch, scratch, rows=rows)
            rowwise(prog, "V_ADD_VF", scratch, scratch, one, rows=rows)
            rowwise(prog, "V_RECI_V", scratch, scratch, rows=rows)
            rowwise(prog, "V_MUL_VV", gate, gate, scratch, rows=rows)
            rowwise(prog, "V_ADD_VF", up, up, one, rows=rows)
            rowwise(prog, "V_MUL_VV", up, up, gate, rows=rows)


#: Names that a routed expert's spec takes; lowering.md section 4.
ACTIVATIONS = ("standard_swiglu", "gpt_oss_clamp_gated")


def activate(
    prog: Program,
    name: str,
    *,
    stage: Stage | str,
    gate: VramMatrix,
    up: VramMatrix,
    scratch: VramMatrix,
    rows: Rows,
) -> None:
    """Emit the activation called `name`, one of `ACTIVATIONS`, under `stage`; the result is up."""
    if name not in ACTIVATIONS:
        raise unknown_name("activation", name, ACTIVATIONS)
    if name == "standard_swiglu":
        standard_swiglu(prog, stage=stage, gate=gate, up=up, scratch=scratch, rows=rows)
    else:
        gpt_oss_clamp_gated(prog, stage=stage, gate=gate, up=up, scratch=scratch, rows=rows)
