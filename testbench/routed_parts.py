"""The parts of a routed expert as workloads of their own, each a small program with its data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.activation import activate, clamp
from compiler.attribution_note import shared_vs_routed_note
from compiler.elementwise import combine, zero_rows
from compiler.program import Program
from compiler.routed_expert import ExpertBuffers, ExpertEmitter, RoutedParameters
from compiler.routed_rows import gather_row, scatter_row, weigh_row
from compiler.routed_spec import RoutedSpec, Routing
from compiler.vram import VramMatrix
from compiler.weight_panels import WeightPanels
from isa.config import PlenaConfig
from isa.stages import Stage
from sim.numerics.bf16 import Bf16Array, add, mul, round_to_bf16
from testbench.policy_workload import policy_workload
from testbench.reference import routed as reference
from testbench.reference.data import random
from testbench.reference.routed_data import Kind, RoutedData, routed_data
from testbench.routed_case import PROJECTION_STAGES, expert_tensors
from testbench.workload import Case, Expected, Values, Workload

#: Values around the clamps and at the ends of the format, in the first lanes of every test row.
EDGES = (7.0, -7.0, 7.03125, -7.03125, np.inf, -np.inf, np.nan, -0.0)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to build a part for: a machine, the routed experts, tokens, and data."""

    config: PlenaConfig
    spec: RoutedSpec
    tokens: int
    kind: Kind = "exact"
    seed: int = 0

    def data(self) -> RoutedData:
        """Operands of the size asked for; CompileError when the machine cannot hold the shape."""
        self.spec.check(self.config, self.tokens)
        spec = self.spec
        return routed_data(
            self.tokens,
            spec.hidden,
            spec.intermediate,
            experts=spec.experts,
            top_k=spec.top_k,
            kind=self.kind,
            seed=self.seed,
            biased=spec.biases,
        )


class _Part:
    """A program under construction, with its data."""

    def __init__(self, request: Request, name: str) -> None:
        self.request, self.name = request, name
        self.prog = Program(request.config, f"routed_part_{name}")
        self.data = request.data()
        self.matrices: list[tuple[VramMatrix, Values]] = []
        self.fp_words: list[tuple[int, Values]] = []
        self.int_words: list[tuple[int, Values]] = []
        self.tensors: list = []

    def given(self, name: str, values: npt.NDArray[Any]) -> VramMatrix:
        """A matrix that the host fills."""
        matrix = self.prog.vram.matrix(name, *values.shape)
        self.matrices.append((matrix, values))
        return matrix

    def routing(self) -> Routing:
        """The routing of the data, placed by the host."""
        routing = Routing.allocate(self.prog, self.request.tokens, self.request.spec.top_k)
        self.fp_words.append((routing.weights.start, self.data.route_weights.reshape(-1)))
        self.int_words.append((routing.indices.start, self.data.experts.reshape(-1)))
        return routing

    def parameters(self) -> RoutedParameters:
        """Weights and biases of all experts."""
        p = RoutedParameters.allocate(self.prog, self.request.spec)
        tables = {"w_gate": p.w_gate, "w_up": p.w_up, "w_down": p.w_down}
        self.tensors += expert_tensors(tables, self.data.weights)
        for name in ("bias_gate", "bias_up", "bias_down"):
            if (matrix := getattr(p, name)) is not None:
                self.matrices.append((matrix, getattr(self.data.weights, name)))
        return p

    def case(self, stages: set[Stage], expected: Sequence[Expected]) -> Case:
        """The finished workload."""
        self.prog.end_region()
        request, spec = self.request, self.request.spec
        projections = tuple(stage for stage in PROJECTION_STAGES if stage in stages)
        return Case(
            config=request.config,
            image=self.prog.build(),
            title=(
                f"routed experts, {self.name}: {spec.activation}, {request.tokens} tokens, hidden "
                f"{spec.hidden}, intermediate {spec.intermediate}; configuration "
                f"{request.config.name}"
            ),
            facts={
                "part": self.name,
                "tokens": request.tokens,
                "hidden": spec.hidden,
                "intermediate": spec.intermediate,
                "activation": spec.activation,
            },
            note=shared_vs_routed_note("pair"),
            stages=frozenset(stages),
            projection_stages=projections,
            tensors=self.tensors,
            matrices=self.matrices,
            fp_words=[(0, self.prog.fp_mem.initial()), *self.fp_words],
            int_words=[(0, self.prog.int_mem.initial()), *self.int_words],
            expected=expected,
        )


def _gate_and_up(request: Request) -> tuple[Bf16Array, Bf16Array]:
    """Values [tokens, I] wide enough for every clamp, with the edges in each row."""
    shape = (request.tokens, request.spec.intermediate)
    gate, up = (random(shape, seed=request.seed + i, scale=6.0) for i in (1, 2))
    edges = round_to_bf16(np.array(EDGES))
    gate[:, : len(edges)] = edges
    up[:, : len(edges)] = edges[::-1]
    return gate, up


def _topk(request: Request) -> Workload:
    spec = request.spec
    return policy_workload(request.config, spec.experts, spec.top_k, seed=request.seed)


def _clamp(request: Request) -> Workload:
    part = _Part(request, "clamp")
    values = _gate_and_up(request)
    gate, up = part.given("gate", values[0]), part.given("up", values[1])
    part.prog.stage("expert_activation", "clamps alone")
    clamp(part.prog, gate=gate, up=up, rows=request.tokens)
    want_gate, want_up = reference.clamp(*values)
    return part.case(
        {Stage.EXPERT_ACTIVATION},
        [
            Expected(name="clamped gate", matrix=gate, values=want_gate),
            Expected(name="clamped up", matrix=up, values=want_up),
        ],
    )


def _activation(request: Request) -> Workload:
    part, spec = _Part(request, "activation"), request.spec
    values = _gate_and_up(request)
    gate, up = part.given("gate", values[0]), part.given("up", values[1])
    scratch = part.prog.vram.matrix("sigmoid", request.tokens, spec.intermediate)
    activate(
        part.prog,
        spec.activation,
        stage="expert_activation",
        gate=gate,
        up=up,
        scratch=scratch,
        rows=request.tokens,
    )
    want = reference.ACTIVATIONS[spec.activation](*values)
    return part.case(
        {Stage.EXPERT_ACTIVATION}, [Expected(name="activation", matrix=up, values=want)]
    )


def _expert(request: Request, *, whole: bool) -> Workload:
    """All tokens through the expert that pair 0 chose: its address comes from INT_MEM."""
    part, spec, rows = (
        _Part(request, "expert" if whole else "gate-up"),
        request.spec,
        request.tokens,
    )
    parameters, routing = part.parameters(), part.routing()
    buffers = ExpertBuffers(part.prog, spec, rows)
    part.matrices.append((buffers.slot, part.data.x))
    word, number = routing.index_word(0), int(part.data.experts[0, 0])
    with part.prog.a("weights") as address:
        panels = WeightPanels(part.prog, address)
        emitter = ExpertEmitter(part.prog, spec, parameters, panels, buffers)
        gate, up, down = emitter.weights(word, "pair=0")
        if whole:
            emitter.emit((gate, up, down), word, "pair=0", rows=rows)
        else:
            emitter.emit_gate_up((gate, up), word, "pair=0", rows=rows)
    seen = part.data.through_mx(x=False)
    stages = {*PROJECTION_STAGES} | ({Stage.EXPERT_BIAS} if spec.biases else set())
    options: dict[str, Any] = {"mlen": request.config.MLEN, "k_chunk_tiles": panels.cap}
    if not whole:
        want = reference.gate_up(seen.x, seen.weights, number, **options)
        matrices = (buffers.gate, buffers.up)
        expected = [
            Expected(name=matrix.name, matrix=matrix, values=values)
            for matrix, values in zip(matrices, want, strict=True)
        ]
        return part.case(stages, expected)
    options["activation"] = spec.activation
    inner, out = reference.expert(seen.x, seen.weights, number, **options)
    return part.case(
        stages | {Stage.EXPERT_ACTIVATION},
        [
            Expected(name="expert activation", matrix=buffers.up, values=inner),
            Expected(name="expert output", matrix=buffers.out, values=out),
        ],
    )


def _gather_scatter(request: Request) -> Workload:
    """Every pair's token goes to a row of its own, times its weight, and is added back."""
    part, spec = _Part(request, "gather-scatter"), request.spec
    prog, data = part.prog, part.data
    routing = part.routing()
    x = part.given("x", data.x)
    slot = prog.vram.matrix("slot", routing.pairs, spec.hidden)
    accumulator = prog.vram.matrix("accumulator", request.tokens, spec.hidden)
    zero_rows(prog, accumulator, stage="accumulator_init", rows=request.tokens)
    for pair in range(routing.pairs):
        prog.stage("gather", f"pair={pair}")
        gather_row(prog, slot, pair, x, routing.token(pair))
        prog.stage("expert_route_weight", f"pair={pair}")
        weigh_row(prog, slot, pair, routing.weight_slot(pair))
        prog.stage("scatter_combine", f"pair={pair}")
        scatter_row(prog, accumulator, routing.token(pair), slot, pair)
    zero = round_to_bf16(0.0)
    tokens = np.arange(routing.pairs) // spec.top_k
    rows = mul(add(data.x[tokens], zero), data.route_weights.reshape(-1, 1))
    total = np.broadcast_to(zero, data.x.shape)
    for rank in range(spec.top_k):
        total = add(total, rows[rank :: spec.top_k])
    return part.case(
        {
            Stage.ACCUMULATOR_INIT,
            Stage.GATHER,
            Stage.EXPERT_ROUTE_WEIGHT,
            Stage.SCATTER_COMBINE,
        },
        [
            Expected(name="gathered rows", matrix=slot, values=rows),
            Expected(name="accumulator", matrix=accumulator, values=total),
        ],
    )


def _combine(request: Request) -> Workload:
    """routed sum + shared output + residual, in this order."""
    part = _Part(request, "combine")
    shape = (request.tokens, request.spec.hidden)
    values = [random(shape, seed=request.seed + i) for i in range(3)]
    names = ("routed sum", "shared output", "residual")
    total, shared, residual = (part.given(n, v) for n, v in zip(names, values, strict=True))
    combine(part.prog, total, shared, rows=request.tokens)
    combine(part.prog, total, residual, rows=request.tokens)
    want = add(add(values[0], values[1]), values[2])
    return part.case(
        {Stage.SCATTER_COMBINE}, [Expected(name="layer output", matrix=total, values=want)]
    )


#: Parts by name: what each is, and its builder.
PARTS: dict[str, tuple[str, Callable[[Request], Workload]]] = {
    "topk": ("V_TOPK: experts and weights from logits, with a tie and garbage", _topk),
    "clamp": ("the clamps of GPT-OSS, with infinities and NaN", _clamp),
    "activation": ("the activation between the projections", _activation),
    "gate-up": (
        "gate and up projection of an expert that INT_MEM names, and biases",
        partial(_expert, whole=False),
    ),
    "expert": ("a whole expert over all tokens", partial(_expert, whole=True)),
    "gather-scatter": ("rows out of the tokens, times route weights, and back", _gather_scatter),
    "combine": ("routed sum, shared output and residual", _combine),
}
