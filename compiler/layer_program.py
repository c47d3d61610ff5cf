"""A program of mixture-of-experts layers, one behind the other: the top entry for whole layers."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from compiler.errors import require
from compiler.expert_sort import workspace_words
from compiler.hbm import HbmTensor
from compiler.moe_layer import LayerPlan, MoeLayer, sort_workspace
from compiler.moe_model import MoeModel
from compiler.program import Program
from compiler.routed_experts import Accumulation
from compiler.routed_spec import Lowering
from compiler.transfer import store_matrix
from compiler.vram import VramMatrix, transfer_rows
from compiler.weight_panels import WeightPanels
from isa import PlenaConfig, ProgramImage, Stage

#: Expert-major is taken when it loads at most this part of what pair-major loads.
WORTHWHILE = 0.75


@dataclass(frozen=True, kw_only=True)
class LayerProgram:
    """A program and everything that a host needs to run and check it.

    Attributes:
        hidden: [tokens, H]; the host places the hidden state, BF16.
        layers: their operands, in program order, all different.
        x, total: normalised input and result of the last layer, valid at the end.
        out: the result in HBM, MX.
        fp_mem, int_mem: to be loaded before the operands.
        k_chunk_tiles: the K-split bound, for the reference.
    """

    config: PlenaConfig
    plan: LayerPlan
    image: ProgramImage
    hidden: VramMatrix
    layers: tuple[MoeLayer, ...] = field(repr=False)
    x: VramMatrix
    total: VramMatrix
    out: HbmTensor
    fp_mem: npt.NDArray[np.uint16]
    int_mem: npt.NDArray[np.uint32]
    k_chunk_tiles: int

    @property
    def stages_present(self) -> frozenset[Stage]:
        """The stages that must have instructions; every other stage must have none."""
        shared = self.plan.shared
        present = {
            Stage.ROUTER_TOPK: self.plan.known is None,
            Stage.EXPERT_BIAS: self.plan.routed.biases,
            Stage.SHARED_EXPERT_PROJECTION: shared is not None,
            Stage.SHARED_EXPERT_ACTIVATION: shared is not None,
            Stage.SHARED_EXPERT_GATE: shared is not None and shared.gated,
            Stage.OTHER: False,
        }
        return frozenset(stage for stage in Stage if present.get(stage, True))


def compile_layers(
    config: PlenaConfig, plan: LayerPlan, *, layers: int = 1, cap: int | None = None
) -> LayerProgram:
    """Compile `layers` layers of one plan, each with weights of its own, on one hidden state.

    The result of a layer is the hidden state of the next; the last one is stored to HBM.

    Raises:
        CompileError: a shape or size that does not fit; the message names both numbers.
    """
    require(layers >= 1, f"layers = {layers}", "must be at least 1", "compile one layer")
    model, tokens = plan.model, plan.tokens
    prog = Program(config, f"moe_layer_{model.name}_{plan.lowering.value}_{tokens}")
    hidden = prog.vram.matrix("hidden", tokens, model.hidden)
    parts: list[MoeLayer] = []
    for number in range(layers):
        prefix = f"layer {number} " if layers > 1 else ""
        parts.append(MoeLayer(prog, plan, prefix=prefix))
    workspace = sort_workspace(prog, plan)
    out = prog.hbm.tensor("out", tokens, model.hidden, physical_rows=transfer_rows(config, tokens))
    state, x = hidden, hidden
    with prog.a("weights") as address:
        panels = WeightPanels(prog, address, cap)
        for number, layer in enumerate(parts):
            x, total = layer.emit(state, panels, workspace)
            if number:
                prog.vram.free(state)
            if number + 1 < layers:
                prog.vram.free(x)
            state = total
    prog.end_region()
    store_matrix(prog, state, out)
    return LayerProgram(
        config=config,
        plan=plan,
        image=prog.build(),
        hidden=hidden,
        layers=tuple(parts),
        x=x,
        total=state,
        out=out,
        fp_mem=prog.fp_mem.initial(),
        int_mem=prog.int_mem.initial(),
        k_chunk_tiles=panels.cap,
    )


def choose_lowering(
    config: PlenaConfig,
    model: MoeModel,
    tokens: int,
    known: npt.NDArray[np.integer] | None = None,
) -> Lowering:
    """Expert-major where tokens share enough experts, and the machine can sort them.

    Weight loads decide: tokens * top_k pair-major, one per chosen expert expert-major. Without
    `known` routing, the number of chosen experts is the one expected when all are equally likely.
    """
    pairs = tokens * model.top_k
    if known is not None:
        chosen: float = len(np.unique(known))
    else:
        chosen = model.experts * (1 - (1 - model.top_k / model.experts) ** tokens)
        spec = LayerPlan(
            model=model, tokens=tokens, lowering=Lowering.PAIR, order=Accumulation.PAIR
        ).routed
        if pairs + workspace_words(spec, 1) > config.INT_MEM_WORDS:
            return Lowering.PAIR
    return Lowering.EXPERT if chosen <= WORTHWHILE * pairs else Lowering.PAIR
