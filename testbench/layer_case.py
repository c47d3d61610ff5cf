"""Whole mixture-of-experts layers: program, data, and what must come out, layer after layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.arena import Interval
from compiler.attribution_note import shared_vs_routed_note
from compiler.layer_program import LayerProgram, compile_layers
from compiler.moe_layer import EPSILON, LayerPlan, MoeLayer
from isa.config import PlenaConfig
from isa.stages import Stage
from sim.numerics import bf16, mx
from sim.numerics.bf16 import Bf16Array
from testbench.reference.data import assert_not_saturated, random, shared_expert_data
from testbench.reference.moe_layer import LayerResult, SharedWeights, moe_layer, rms_norm
from testbench.reference.routed import ExpertWeights
from testbench.reference.routed_data import Kind, expert_weights
from testbench.reference.router import route, router_logits
from testbench.routed_case import PROJECTION_STAGES, expert_tensors, reference_order
from testbench.router_case import router_data
from testbench.workload import Case, Expected, ExpectedTensor, ExpectedWords, Values

#: Norm weights are near 1: 1 plus normal values of this deviation.
NORM_DEVIATION = 0.125


@dataclass(frozen=True, kw_only=True)
class LayerData:
    """Operands of one layer, BF16, and its routing on this data.

    `router` has the operands of the router by name, none with known routing.
    """

    norm_weight: Bf16Array
    router: dict[str, Bf16Array]
    weights: ExpertWeights
    shared: SharedWeights | None
    experts: np.ndarray
    route_weights: Bf16Array
    result: LayerResult


def layer_data(
    program: LayerProgram,
    hidden: Bf16Array,
    *,
    kind: Kind,
    seed: int,
    route_weights: Bf16Array | None,
) -> LayerData:
    """Make operands for one layer on `hidden` [T, H], route, and compute the result.

    Weights are made for the experts that are chosen. Raises SaturatedGate when a gate of the shared
    expert is exactly 0 or 1.
    """
    plan, mlen = program.plan, program.config.MLEN
    model, spec = plan.model, plan.routed
    ones = random((1, model.hidden), seed=seed, scale=NORM_DEVIATION)
    norm_weight = bf16.add(ones, bf16.round_to_bf16(1.0))
    x = rms_norm(hidden, norm_weight, epsilon=EPSILON, mlen=mlen)
    operands: dict[str, Bf16Array] = {}
    if plan.known is None:
        made = router_data(model.router, plan.tokens, seed=seed + 1)
        given = {"weight": made.weight, "bias": made.bias, "correction": made.correction}
        operands = {name: value for name, value in given.items() if value is not None}
        logits = router_logits(x, made.weight, mlen)
        if made.bias is not None:
            logits = bf16.add(logits, made.bias)
        routing = route(model.router, logits, mlen=mlen, correction=made.correction)
        experts, route_weights = routing.indices, routing.weights
    else:
        assert route_weights is not None
        experts = np.asarray(plan.known, np.int64)
    weights = expert_weights(
        spec.experts,
        spec.hidden,
        spec.intermediate,
        used=experts.reshape(-1).tolist(),
        kind=kind,
        seed=seed + 2,
        biased=spec.biases,
    )
    shared = _shared_weights(plan, kind, seed + 3)
    result = moe_layer(
        hidden,
        x,
        _through_mx(weights, program.config),
        experts,
        route_weights,
        _shared_through_mx(shared, program.config),
        mlen=mlen,
        activation=spec.activation,
        scale_input=spec.scale_input,
        order=reference_order(plan.order),
        k_chunk_tiles=program.k_chunk_tiles,
    )
    if result.gates is not None:
        assert_not_saturated(result.gates)
    return LayerData(
        norm_weight=norm_weight,
        router=operands,
        weights=weights,
        shared=shared,
        experts=experts,
        route_weights=route_weights,
        result=result,
    )


def _shared_weights(plan: LayerPlan, kind: Kind, seed: int) -> SharedWeights | None:
    spec = plan.shared
    if spec is None:
        return None
    data = shared_expert_data(
        plan.tokens, spec.hidden, spec.width, kind=kind, seed=seed, gated=spec.gated
    )
    return SharedWeights(
        gate=data.w_gate, up=data.w_up, down=data.w_down, gate_row=data.gate_weight
    )


def _read_back(tensor: Bf16Array, config: PlenaConfig) -> Bf16Array:
    return mx.round_trip(tensor, config.MX_BLOCK, config.mx_dialect)


def _through_mx(weights: ExpertWeights, config: PlenaConfig) -> ExpertWeights:
    def seen(tensors: Any) -> dict[int, Bf16Array]:
        return {number: _read_back(tensor, config) for number, tensor in tensors.items()}

    return ExpertWeights(
        gate=seen(weights.gate),
        up=seen(weights.up),
        down=seen(weights.down),
        bias_gate=weights.bias_gate,
        bias_up=weights.bias_up,
        bias_down=weights.bias_down,
    )


def _shared_through_mx(shared: SharedWeights | None, config: PlenaConfig) -> SharedWeights | None:
    if shared is None:
        return None
    return SharedWeights(
        gate=_read_back(shared.gate, config),
        up=_read_back(shared.up, config),
        down=_read_back(shared.down, config),
        gate_row=shared.gate_row,
    )


class _Operands:
    """What the host writes for one layer, in the lists of a `Case`."""

    def __init__(self, layer: MoeLayer, data: LayerData) -> None:
        p = layer.parameters
        tables = {"w_gate": p.w_gate, "w_up": p.w_up, "w_down": p.w_down}
        self.tensors = expert_tensors(tables, data.weights)
        self.matrices: list = [(layer.norm_weight, data.norm_weight)]
        for name in ("bias_gate", "bias_up", "bias_down"):
            if (matrix := getattr(p, name)) is not None:
                self.matrices.append((matrix, getattr(data.weights, name)))
        self._add_shared(layer, data)
        self.vector_rows: list[tuple[int, Values]] = []
        self.fp_words: list[tuple[int, Values]] = []
        self.int_words: list[tuple[int, Values]] = []
        if layer.router is None:
            routing = layer.routing
            self.fp_words.append((routing.weights.start, data.route_weights.reshape(-1)))
            self.int_words.append((routing.indices.start, data.experts.reshape(-1)))
            return
        for name, values in data.router.items():
            in_fp, start, placed = layer.router.place(name, values)
            (self.fp_words if in_fp else self.vector_rows).append((start, placed))

    def _add_shared(self, layer: MoeLayer, data: LayerData) -> None:
        places, values = layer.shared, data.shared
        if places is None or values is None:
            return
        self.tensors += [
            (places.w_gate, values.gate),
            (places.w_up, values.up),
            (places.w_down, values.down),
        ]
        if places.gate_row is not None:
            self.matrices.append((places.gate_row, values.gate_row))


def _words(name: str, window: Interval, values: Values) -> ExpectedWords:
    return ExpectedWords(name=name, start=window.start, values=values.reshape(-1))


def _expected_words(layer: MoeLayer, data: LayerData) -> Iterator[ExpectedWords]:
    """The routing of a layer that routes on the machine."""
    if layer.router is not None:
        yield _words("route indices", layer.routing.indices, data.experts)
        yield _words("route weights", layer.routing.weights, data.route_weights)


def layer_case(
    program: LayerProgram,
    *,
    kind: Kind = "exact",
    seed: int = 0,
    route_weights: Bf16Array | None = None,
) -> Case:
    """The workload of `program`: every layer's operands, the last one's routing and values.

    `route_weights` [T, k] go with the known routing of the plan.
    """
    plan, config = program.plan, program.config
    model = plan.model
    hidden = random((plan.tokens, model.hidden), seed=seed)
    state, operands, data = hidden, [], None
    for number, layer in enumerate(program.layers):
        data = layer_data(
            program, state, kind=kind, seed=seed + 10 * number + 1, route_weights=route_weights
        )
        operands.append(_Operands(layer, data))
        state = data.result.output
    assert data is not None
    projections = PROJECTION_STAGES
    if plan.shared is not None:
        projections = (*projections, Stage.SHARED_EXPERT_PROJECTION)
    result = Expected(name="layer output", matrix=program.total, values=state)
    return Case(
        config=config,
        image=program.image,
        title=_title(program),
        facts={
            "model": model.name,
            "experts": model.experts,
            "top_k": model.top_k,
            "hidden": model.hidden,
            "intermediate": model.intermediate,
            "tokens": plan.tokens,
            "layers": len(program.layers),
            "lowering": plan.lowering.value,
            "accumulation": plan.order.name.lower(),
            "routing": "device" if plan.known is None else "trace",
        },
        note=shared_vs_routed_note(plan.lowering.value),
        stages=program.stages_present,
        projection_stages=projections,
        tensors=[t for o in operands for t in o.tensors],
        matrices=[(program.hidden, hidden), *(m for o in operands for m in o.matrices)],
        vector_rows=[r for o in operands for r in o.vector_rows],
        fp_words=[(0, program.fp_mem), *(w for o in operands for w in o.fp_words)],
        int_words=[(0, program.int_mem), *(w for o in operands for w in o.int_words)],
        expected_words=list(_expected_words(program.layers[-1], data)),
        expected=[
            Expected(name="normalised input", matrix=program.x, values=data.result.x),
            result,
        ],
        expected_tensors=[
            ExpectedTensor(
                name="stored result (MX bytes)",
                tensor=program.out,
                matrix=program.total,
                values=state,
            )
        ],
    )


def _title(program: LayerProgram) -> str:
    plan, config = program.plan, program.config
    model, shared = plan.model, plan.shared
    branch = ""
    if shared is not None:
        gate = ", sigmoid gate per token" if shared.gated else ""
        branch = f"; {shared.n_shared} shared expert, width {shared.width}{gate}"
    layers = f"{len(program.layers)} layers of " if len(program.layers) > 1 else ""
    routing = "routed on the machine" if plan.known is None else "routing from a trace"
    return (
        f"{layers}{model.title}: {model.experts} experts, top {model.top_k}, {routing}, "
        f"{plan.lowering.value}-major{branch}; {plan.tokens} tokens, hidden {model.hidden}, "
        f"intermediate {model.intermediate}; configuration {config.name} (MLEN {config.MLEN}, "
        f"BLEN {config.BLEN})"
    )


def build_layer_case(
    config: PlenaConfig,
    plan: LayerPlan,
    *,
    layers: int = 1,
    kind: Kind = "exact",
    seed: int = 0,
    route_weights: Bf16Array | None = None,
) -> Case:
    """Compile, make data, compute what must come out."""
    program = compile_layers(config, plan, layers=layers)
    return layer_case(program, kind=kind, seed=seed, route_weights=route_weights)
