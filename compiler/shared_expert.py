"""The shared expert as an emitter: projections, activation, projection, gate, in the order of
lowering.md section 5. The combine follows after all routed pairs, by `elementwise.combine`.
"""

from dataclasses import dataclass

from compiler.activation import activate
from compiler.arena import Interval
from compiler.elementwise import add_bias
from compiler.errors import CompileError
from compiler.gate import sigmoid_gate
from compiler.hbm import HbmTensor
from compiler.linear import Panels, linear_projection
from compiler.program import Program
from compiler.shared_spec import SharedExpertSpec
from compiler.vram import VramMatrix


@dataclass(frozen=True, kw_only=True)
class SharedExpertParameters:
    """Fused weights in HBM, gate row [1, H] and bias rows [1, width] or [1, H] in vector SRAM.

    `gate_row` is given exactly for a gated expert, the three biases exactly for one with biases.
    """

    w_gate: HbmTensor
    w_up: HbmTensor
    w_down: HbmTensor
    gate_row: VramMatrix | None = None
    bias_gate: VramMatrix | None = None
    bias_up: VramMatrix | None = None
    bias_down: VramMatrix | None = None

    def check(self, spec: SharedExpertSpec) -> None:
        """CompileError when the optional rows are not those that `spec` has."""
        biases = [row is not None for row in (self.bias_gate, self.bias_up, self.bias_down)]
        if (self.gate_row is not None) != spec.gated or any(b != spec.biases for b in biases):
            raise CompileError(
                f"shared expert {spec.arch}: gated = {spec.gated}, biases = {spec.biases}, but "
                f"gate_row given = {self.gate_row is not None}, biases given = {biases} "
                "(pass what the spec has)"
            )


@dataclass(frozen=True, kw_only=True)
class SharedExpertResult:
    """Where the shared expert left its values: output [rows, H], the activation [rows, width] and,
    if gated, one scalar per row in FP_MEM."""

    output: VramMatrix
    activation: VramMatrix
    gate_scalars: Interval | None


def emit_shared_expert(
    prog: Program,
    spec: SharedExpertSpec,
    parameters: SharedExpertParameters,
    panels: Panels,
    *,
    x: VramMatrix,
    rows: int,
) -> SharedExpertResult:
    """Emit the branch over rows 0 to rows-1 of x; the caller frees the result's matrices.

    Stages: shared_expert_projection, _activation, _projection again, and _gate when gated. Weight
    loads belong to the projection stage; that of the down projection starts before the activation.
    """
    parameters.check(spec)
    gate = prog.vram.matrix("gate", rows, spec.width)
    up = prog.vram.matrix("activation", rows, spec.width)
    prog.stage("shared_expert_projection", "gate and up")
    w_gate, w_up, w_down = parameters.w_gate, parameters.w_up, parameters.w_down
    linear_projection(prog, panels, act=x, weight=w_gate, out=gate, rows=rows, then=w_up)
    linear_projection(prog, panels, act=x, weight=w_up, out=up, rows=rows, then=w_down)
    _add_bias(prog, gate, parameters.bias_gate, rows)
    _add_bias(prog, up, parameters.bias_up, rows)

    sigmoid = prog.vram.matrix("sigmoid", rows, spec.width)
    activate(
        prog,
        "standard_swiglu",
        stage="shared_expert_activation",
        gate=gate,
        up=up,
        scratch=sigmoid,
        rows=rows,
    )
    prog.vram.free(gate, sigmoid)

    output = prog.vram.matrix("output", rows, spec.hidden)
    prog.stage("shared_expert_projection", "down")
    linear_projection(prog, panels, act=up, weight=w_down, out=output, rows=rows)
    _add_bias(prog, output, parameters.bias_down, rows)

    scalars = None
    if parameters.gate_row is not None:
        scalars = sigmoid_gate(prog, x=x, gate_row=parameters.gate_row, target=output, rows=rows)
    return SharedExpertResult(output=output, activation=up, gate_scalars=scalars)


def _add_bias(prog: Program, target: VramMatrix, bias: VramMatrix | None, rows: int) -> None:
    if bias is not None:
        add_bias(prog, target, bias, rows=rows)
