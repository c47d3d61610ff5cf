"""A whole mixture-of-experts layer as an emitter, from the hidden state to the sum with it.

    residual_setup    residual = hidden; x = RMS norm of hidden, times its weight
    router_topk       experts and weights of every token, or placed by the host
    routed branch     pair-major or expert-major; stages of lowering.md section 6
    shared branch     where the model has one, and its addition
    scatter_combine   + residual

BF16 additions in this order: routed experts, shared expert, residual.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.elementwise import combine, copy, zero_rows
from compiler.errors import CompileError, require
from compiler.expert_sort import SortWorkspace, workspace_words
from compiler.hbm import Order
from compiler.moe_model import MoeModel
from compiler.norm import define_norm_constants, rms_norm
from compiler.program import Program
from compiler.routed_device import emit_routed_on_device
from compiler.routed_expert import RoutedParameters
from compiler.routed_experts import Accumulation, emit_routed_experts
from compiler.routed_pairs import emit_routed_pairs
from compiler.routed_spec import Lowering, RoutedSpec, Routing, check_known_routing
from compiler.router import Router
from compiler.shared_expert import SharedExpertParameters, emit_shared_expert
from compiler.shared_spec import SharedExpertSpec
from compiler.vram import VramMatrix
from compiler.weight_panels import WeightPanels

#: What is added to the mean square before its root is taken.
EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """What to emit: a model at one size, tokens, and how its routed experts are lowered.

    `known`: experts [tokens, top_k] that the host places, with their weights; None: the router
    decides on the machine. CompileError for pair-major in expert order.
    """

    model: MoeModel
    tokens: int
    lowering: Lowering
    order: Accumulation
    known: npt.NDArray[np.integer] | None = None

    def __post_init__(self) -> None:
        require(
            self.tokens >= 1,
            f"tokens = {self.tokens}",
            "must be at least 1",
            "leave the layer out of an empty batch",
        )
        if self.lowering is Lowering.PAIR and self.order is not Accumulation.PAIR:
            raise CompileError("order: pair-major adds in pair order (use Accumulation.PAIR)")
        if self.known is not None:
            check_known_routing(self.routed, self.tokens, self.known)

    @property
    def routed(self) -> RoutedSpec:
        """The routed experts."""
        model = self.model
        return RoutedSpec(
            experts=model.experts,
            top_k=model.top_k,
            hidden=model.hidden,
            intermediate=model.intermediate,
            activation=model.activation.value,
            biases=model.expert_biases,
            scale_input=model.rule.on_input,
        )

    @property
    def shared(self) -> SharedExpertSpec | None:
        """The shared experts, fused."""
        return SharedExpertSpec.of_model(self.model)


class MoeLayer:
    """One layer of a program: its operands, allocated first, and its emitter.

    Attributes:
        norm_weight: [1, H] in vector SRAM. router: None with known routing.
        routing: where experts and weights are. parameters, shared: the weights.
    """

    def __init__(self, prog: Program, plan: LayerPlan, *, prefix: str = "") -> None:
        spec, config = plan.routed, prog.config
        spec.check(config, plan.tokens)
        self.prog, self.plan, self.spec = prog, plan, spec
        self.norm_weight = prog.vram.matrix(f"{prefix}norm_weight", 1, spec.hidden)
        self.router: Router | None = None
        if plan.known is None:
            router = self.router = Router(prog, plan.model.router, tokens=plan.tokens)
            self.routing = Routing(
                tokens=plan.tokens,
                top_k=spec.top_k,
                indices=router.indices,
                weights=router.weights,
            )
        else:
            self.routing = Routing.allocate(prog, plan.tokens, spec.top_k)
        self.parameters = RoutedParameters.allocate(prog, spec, prefix=prefix)
        self.shared = _shared_parameters(prog, plan.shared, prefix)
        self._constants = define_norm_constants(prog, spec.hidden, EPSILON)

    def emit(
        self, hidden: VramMatrix, panels: WeightPanels, workspace: SortWorkspace | None
    ) -> tuple[VramMatrix, VramMatrix]:
        """Emit the layer on rows of hidden [tokens, H]; (normalised input, result), both [tokens,
        H] and the caller's to free. `hidden` is kept. `workspace` is that of `sort_workspace`."""
        prog, plan, spec = self.prog, self.plan, self.spec
        rows, spare = plan.tokens, 0 if workspace is None else 1
        prog.stage("residual_setup", "residual and normalised input")
        residual = prog.vram.matrix("residual", rows, spec.hidden)
        copy(prog, residual, hidden, rows=rows)
        x = prog.vram.matrix("x", rows, spec.hidden, spare_rows=spare)
        rms_norm(
            prog,
            source=hidden,
            target=x,
            weight=self.norm_weight,
            rows=rows,
            constants=self._constants,
        )
        if self.router is not None:
            self.router.emit(x)
        total = prog.vram.matrix("sum", rows, spec.hidden, spare_rows=spare)
        zero_rows(prog, total, stage="accumulator_init", rows=total.physical_rows)
        self._emit_routed(panels, workspace, x, total)
        shared = plan.shared
        if shared is not None and self.shared is not None:
            branch = emit_shared_expert(prog, shared, self.shared, panels, x=x, rows=rows)
            combine(prog, total, branch.output, rows=rows)
            prog.vram.free(branch.output, branch.activation)
        else:
            # Covers no instruction; clears the label of the last pair.
            prog.stage("accumulator_init", "end of the pairs")
        combine(prog, total, residual, rows=rows)
        prog.vram.free(residual)
        return x, total

    def _emit_routed(
        self,
        panels: WeightPanels,
        workspace: SortWorkspace | None,
        x: VramMatrix,
        total: VramMatrix,
    ) -> None:
        prog, plan, spec = self.prog, self.plan, self.spec
        if plan.lowering is Lowering.PAIR:
            emit_routed_pairs(
                prog, spec, self.parameters, panels, self.routing, x=x, accumulator=total
            )
            return
        if plan.known is not None:
            emit_routed_experts(
                prog,
                spec,
                self.parameters,
                panels,
                self.routing,
                plan.known,
                x=x,
                accumulator=total,
                order=plan.order,
            )
            return
        assert workspace is not None
        for first in range(0, plan.tokens, workspace.tokens):
            piece = self.routing.piece(first, min(workspace.tokens, plan.tokens - first))
            emit_routed_on_device(
                prog,
                spec,
                self.parameters,
                panels,
                piece,
                workspace,
                x=x,
                accumulator=total,
                first=first,
                spare_row=plan.tokens,
                order=plan.order,
            )


def _shared_parameters(
    prog: Program, spec: SharedExpertSpec | None, prefix: str
) -> SharedExpertParameters | None:
    if spec is None:
        return None
    hidden, width = spec.hidden, spec.width
    shapes = {"gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
    tensors = {
        name: prog.hbm.tensor(f"{prefix}shared_{name}", *shape, order=Order.TILES)
        for name, shape in shapes.items()
    }
    gate_row = prog.vram.matrix(f"{prefix}gate_row", 1, hidden) if spec.gated else None
    return SharedExpertParameters(
        w_gate=tensors["gate"],
        w_up=tensors["up"],
        w_down=tensors["down"],
        gate_row=gate_row,
    )


def sort_workspace(prog: Program, plan: LayerPlan) -> SortWorkspace | None:
    """What every layer of `plan` sorts in, where the machine sorts: for as many tokens at a time as
    INT_MEM has room for, so it comes after all layers of the program.

    Raises CompileError when there is not enough for one token.
    """
    if plan.lowering is not Lowering.EXPERT or plan.known is not None:
        return None
    tokens = _tokens_at_once(prog, plan.routed, plan.tokens)
    return SortWorkspace.allocate(prog, plan.routed, tokens)


def _tokens_at_once(prog: Program, spec: RoutedSpec, tokens: int) -> int:
    """The most tokens whose pairs can be sorted in what is free of INT_MEM."""
    free = prog.int_mem.left
    fitting = [n for n in range(1, tokens + 1) if workspace_words(spec, n) <= free]
    require(
        bool(fitting),
        f"tokens = {tokens}, experts = {spec.experts}",
        f"sorting one token takes {workspace_words(spec, 1)} words of INT_MEM, {free} are free",
        "give fewer tokens at a time, lower expert-major with a known routing (a trace) or "
        "pair-major, or raise INT_MEM_WORDS",
    )
    return max(fitting)
