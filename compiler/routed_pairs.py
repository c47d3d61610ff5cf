"""The routed branch, pair-major: every (token, expert) pair loads its expert's weights.

    for p: gather, gate, up, [biases], activation, down, [bias], times route weight, scatter-add

lowering.md section 4. Pair p's sum order is the order of p: BF16, token by token in rank order.
"""

from dataclasses import dataclass

import numpy as np

from compiler.arena import Interval
from compiler.elementwise import zero_rows
from compiler.errors import require
from compiler.hbm import HbmTensor
from compiler.linear import Panels
from compiler.program import Program
from compiler.registers import Register
from compiler.routed_expert import ExpertBuffers, ExpertEmitter, RoutedParameters
from compiler.routed_rows import gather_row, gather_row_from_hbm, scatter_row, weigh_row
from compiler.routed_spec import RoutedSpec, Routing
from compiler.vram import VramMatrix


@dataclass(frozen=True, kw_only=True)
class HbmGather:
    """Tokens that are gathered from HBM: the tensor, an address register for it, and the element
    offset of every pair's token in INT_MEM."""

    x: HbmTensor
    base: Register
    offsets: Interval

    @classmethod
    def of(cls, prog: Program, x: HbmTensor, base: Register, routing: Routing) -> "HbmGather":
        """With a table of offsets that the host loads; CompileError without slack behind x."""
        slack = prog.config.v_prefetch - 1
        require(
            x.physical_rows - x.rows + x.slack_rows >= slack,
            f"{x.name}: slack_rows = {x.slack_rows}",
            f"one H_PREFETCH_V of the last token reads {slack} rows behind it",
            f"use slack_rows = {slack}",
        )
        tokens = np.arange(routing.pairs) // routing.top_k
        table = prog.int_mem.table("token offsets", (tokens * x.stride).astype(np.uint32))
        return cls(x=x, base=base, offsets=table)


def emit_routed_pairs(
    prog: Program,
    spec: RoutedSpec,
    parameters: RoutedParameters,
    panels: Panels,
    routing: Routing,
    *,
    x: VramMatrix | HbmGather,
    accumulator: VramMatrix,
) -> None:
    """Emit accumulator row t += sum over t's pairs of weight * expert(x row t), pair by pair.

    `accumulator` has been zeroed. The weights of a pair are prefetched under the products before
    them, the gate weights of the next pair under the down projection of this one.
    """
    buffers = ExpertBuffers(prog, spec, 1)
    experts = ExpertEmitter(prog, spec, parameters, panels, buffers)
    weights = [
        experts.weights(routing.index_word(pair), f"pair={pair}") for pair in range(routing.pairs)
    ]
    experts.fetch_ahead(weights[0][0], "pair=0")
    for pair in range(routing.pairs):
        label, token = f"pair={pair}", routing.token(pair)
        prog.stage("gather", label)
        if isinstance(x, HbmGather):
            gather_row_from_hbm(prog, buffers.slot, x.x, x.base, x.offsets.start + pair)
        else:
            gather_row(prog, buffers.slot, 0, x, token)
        if pair == 0 or isinstance(x, HbmGather):
            pads = buffers.slot.view(1, buffers.slot.physical_rows - 1)
            zero_rows(prog, pads, stage="gather", rows=pads.rows)
        if spec.scale_input:
            prog.stage("expert_route_weight", label)
            weigh_row(prog, buffers.slot, 0, routing.weight_slot(pair))
        then = weights[pair + 1][0] if pair + 1 < routing.pairs else None
        experts.emit(weights[pair], routing.index_word(pair), label, rows=1, then=then)
        if not spec.scale_input:
            prog.stage("expert_route_weight", label)
            weigh_row(prog, buffers.out, 0, routing.weight_slot(pair))
        prog.stage("scatter_combine", label)
        scatter_row(prog, accumulator, token, buffers.out, 0)
    buffers.free(prog)
