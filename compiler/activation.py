"""The activations between the projections of an expert, as data, and their emitter."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from compiler.elementwise import Rows, rowwise
from compiler.errors import unknown_name
from compiler.program import Program
from compiler.registers import GP0, Register
from compiler.vram import VramMatrix
from isa import Stage

#: The matrices that the steps of an activation name; every other name is an FP_MEM constant.
MATRICES = ("gate", "up", "scratch")


@dataclass(frozen=True)
class Step:
    """One vector instruction per row, and one rounding: `target` = mnemonic of `sources`."""

    mnemonic: str
    target: str
    sources: tuple[str, ...]

    @property
    def operands(self) -> tuple[str, ...]:
        """Target and sources."""
        return (self.target, *self.sources)


@dataclass(frozen=True)
class Activation:
    """up = f(gate, up), in place: steps that need the gate alone, then those that need up too.

    gate and scratch are overwritten. numerics.md, "SwiGLU"; lowering.md section 4, "Activations".
    """

    gate_steps: tuple[Step, ...]
    up_steps: tuple[Step, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of them, in order."""
        return self.gate_steps + self.up_steps


#: gate times the sigmoid whose negated argument is in scratch.
_GATED = (
    Step("V_EXP_V", "scratch", ("scratch",)),
    Step("V_ADD_VF", "scratch", ("scratch", "one")),
    Step("V_RECI_V", "scratch", ("scratch",)),
    Step("V_MUL_VV", "gate", ("gate", "scratch")),
)
_CLAMP_GATE = (Step("V_MIN_VF", "gate", ("gate", "clamp_limit")),)
_CLAMP_UP = (
    Step("V_MIN_VF", "up", ("up", "clamp_limit")),
    Step("V_MAX_VF", "up", ("up", "minus_clamp_limit")),
)
_TIMES_GATE = Step("V_MUL_VV", "up", ("up", "gate"))

#: Names that a routed expert's spec takes; lowering.md section 4.
#: standard_swiglu is silu(gate) * up. gpt_oss_clamp_gated is (clamp(up) + 1) * (g * sigmoid(1.702
#: g)), g = clamp(gate): the gate is clamped from above only, at 7, up to -7 .. 7.
ACTIVATIONS: dict[str, Activation] = {
    "standard_swiglu": Activation(
        gate_steps=(Step("V_MUL_VF", "scratch", ("gate", "minus_one")), *_GATED),
        up_steps=(_TIMES_GATE,),
    ),
    "gpt_oss_clamp_gated": Activation(
        gate_steps=(*_CLAMP_GATE, Step("V_MUL_VF", "scratch", ("gate", "minus_alpha")), *_GATED),
        up_steps=(*_CLAMP_UP, Step("V_ADD_VF", "up", ("up", "one")), _TIMES_GATE),
    ),
}


def activation_of(name: str) -> Activation:
    """The activation called `name`; CompileError lists the names."""
    if name not in ACTIVATIONS:
        raise unknown_name("activation", name, tuple(ACTIVATIONS))
    return ACTIVATIONS[name]


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


def load_constants(prog: Program, steps: Sequence[Step], stack: ExitStack) -> dict[str, Register]:
    """Registers with the constants of `steps`, held as long as `stack`."""
    names = dict.fromkeys(n for step in steps for n in step.operands if n not in MATRICES)
    registers = {name: stack.enter_context(prog.f(name)) for name in names}
    for name, register in registers.items():
        load_constant(prog, register, name)
    return registers


def _rowwise(prog: Program, steps: Sequence[Step], rows: Rows, **matrices: VramMatrix) -> None:
    """One step over all rows before the next."""
    with ExitStack() as stack:
        operands = load_constants(prog, steps, stack) | matrices
        for step in steps:
            rowwise(prog, step.mnemonic, *(operands[name] for name in step.operands), rows=rows)


def clamp(prog: Program, *, gate: VramMatrix, up: VramMatrix, rows: Rows) -> None:
    """gate = min(gate, 7), up = max(min(up, 7), -7), in place; marks no stage."""
    _rowwise(prog, _CLAMP_GATE + _CLAMP_UP, rows, gate=gate, up=up)


def activate(
    prog: Program,
    name: str,
    *,
    stage: Stage | str,
    gate: VramMatrix,
    up: VramMatrix,
    scratch: VramMatrix,
    rows: int,
) -> None:
    """Emit the activation called `name`, one of `ACTIVATIONS`, under `stage`; the result is up."""
    activation = activation_of(name)
    prog.stage(stage=stage, detail=f"{name} {up.name}")
    with prog.emitter(f"{name} {up.name}"):
        _rowwise(prog, activation.steps, rows, gate=gate, up=up, scratch=scratch)
