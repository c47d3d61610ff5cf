"""The activation between the projections of an expert."""

from compiler.elementwise import rowwise
from compiler.program import Program
from compiler.registers import GP0, Register
from compiler.vram import VramMatrix
from isa import Stage


def load_constant(prog: Program, register: Register, name: str) -> None:
    """f = the FP_MEM constant called `name`."""
    prog.emit("S_LD_FP", register, GP0, prog.fp_mem.constant(name))


def standard_swiglu(
    prog: Program,
    *,
    stage: Stage | str,
    gate: VramMatrix,
    up: VramMatrix,
    scratch: VramMatrix,
    rows: int,
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
