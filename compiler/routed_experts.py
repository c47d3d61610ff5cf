"""The routed branch, expert-major, with routing that is known when the program is compiled.

    for each chosen expert, ascending: gather its tokens, gate, up, activation, down over all of
    them, then per row: times route weight, scatter-add

lowering.md section 10. An expert's weights are loaded once. The route weights, and the expert
numbers behind the addresses, are still those that the machine finds in its memories.
"""

from collections import defaultdict
from enum import Enum

import numpy as np
import numpy.typing as npt

from compiler.elementwise import zero_rows
from compiler.linear import Panels
from compiler.program import Program
from compiler.registers import F0
from compiler.routed_expert import ExpertBuffers, ExpertEmitter, RoutedParameters
from compiler.routed_rows import gather_row, on_row, scatter_row, weigh_row
from compiler.routed_spec import RoutedSpec, Routing
from compiler.vram import VramMatrix


class Accumulation(Enum):
    """The order in which a token's experts are added up, which shows in the result."""

    EXPERT = "ascending expert number"
    PAIR = "rank order, as pair-major does"


def group_by_expert(experts: npt.NDArray[np.integer]) -> dict[int, list[int]]:
    """Pairs of every chosen expert, from the experts [tokens, top_k]: both ascending."""
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for pair, expert in enumerate(np.asarray(experts).reshape(-1).tolist()):
        groups[expert].append(pair)
    return dict(sorted(groups.items()))


def emit_routed_experts(
    prog: Program,
    spec: RoutedSpec,
    parameters: RoutedParameters,
    panels: Panels,
    routing: Routing,
    known: npt.NDArray[np.integer],
    *,
    x: VramMatrix,
    accumulator: VramMatrix,
    order: Accumulation,
) -> None:
    """Emit accumulator row t += sum over t's pairs of weight * expert(x row t), expert by expert.

    `known` [tokens, top_k] are the experts that INT_MEM will hold. With order PAIR the weighted
    outputs are kept, [tokens * top_k, H], and added in rank order at the end.
    """
    groups = list(group_by_expert(known).values())
    kept = prog.vram.matrix("pairs", routing.pairs, spec.hidden)
    if order is Accumulation.EXPERT:
        prog.vram.free(kept)
    buffers = ExpertBuffers(prog, spec, max(len(pairs) for pairs in groups))
    experts = ExpertEmitter(prog, spec, parameters, panels, buffers)
    labels = [f"pair={pairs[0]} first of {len(pairs)} of one expert" for pairs in groups]
    weights = [
        experts.weights(routing.index_word(pairs[0]), label)
        for pairs, label in zip(groups, labels, strict=True)
    ]
    experts.fetch_ahead(weights[0][0], labels[0])
    prog.stage("gather", labels[0])
    zero_rows(prog, buffers.slot, stage="gather", rows=buffers.slot.physical_rows)
    for number, (pairs, label) in enumerate(zip(groups, labels, strict=True)):
        for row, pair in enumerate(pairs):
            prog.stage("gather", f"pair={pair}")
            gather_row(prog, buffers.slot, row, x, routing.token(pair))
        if spec.scale_input:
            for row, pair in enumerate(pairs):
                prog.stage("expert_route_weight", f"pair={pair}")
                weigh_row(prog, buffers.slot, row, routing.weight_slot(pair))
        then = weights[number + 1][0] if number + 1 < len(groups) else None
        word = routing.index_word(pairs[0])
        experts.emit(weights[number], word, label, rows=len(pairs), then=then)
        if not spec.scale_input:
            for row, pair in enumerate(pairs):
                prog.stage("expert_route_weight", f"pair={pair}")
                weigh_row(prog, buffers.out, row, routing.weight_slot(pair))
        for row, pair in enumerate(pairs):
            prog.stage("scatter_combine", f"pair={pair}")
            if order is Accumulation.EXPERT:
                scatter_row(prog, accumulator, routing.token(pair), buffers.out, row)
            else:
                on_row(prog, "V_ADD_VF", [(buffers.out, row), F0], (kept, pair))
    buffers.free(prog)
    if order is Accumulation.PAIR:
        for pair in range(routing.pairs):
            prog.stage("scatter_combine", f"pair={pair}")
            scatter_row(prog, accumulator, routing.token(pair), kept, pair)
        prog.vram.free(kept)
