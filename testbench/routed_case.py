"""Routed experts with given routing: program, data, and what must come out."""

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from compiler.attribution_note import shared_vs_routed_note
from compiler.expert_table import ExpertTable
from compiler.hbm import HbmTensor, Order
from compiler.linear import Form
from compiler.routed_experts import Accumulation
from compiler.routed_program import RoutedProgram, compile_routed_experts
from compiler.routed_spec import Lowering, RoutedSpec
from isa.config import PlenaConfig
from isa.stages import Stage
from sim.numerics.bf16 import Bf16Array
from testbench.reference.routed import ExpertWeights, RoutedResult, routed_experts
from testbench.reference.routed import Order as SumOrder
from testbench.reference.routed_data import Kind, RoutedData, routed_data
from testbench.workload import Case, Expected, Values

#: Stages of a routed branch whose cycles the multipliers should fill: products, and the loads that
#: they wait for.
PROJECTION_STAGES = (
    Stage.EXPERT_WEIGHT_ADDRESS,
    Stage.EXPERT_WEIGHT_PREFETCH,
    Stage.EXPERT_PROJECTION,
)


def reference_order(order: Accumulation) -> SumOrder:
    """The reference's name of an order of accumulation."""
    return "pair" if order is Accumulation.PAIR else "expert"


def routed_stages(spec: RoutedSpec) -> frozenset[Stage]:
    """Stages that the routed branch has instructions in."""
    stages = {
        Stage.ACCUMULATOR_INIT,
        Stage.GATHER,
        *PROJECTION_STAGES,
        Stage.EXPERT_ACTIVATION,
        Stage.EXPERT_ROUTE_WEIGHT,
        Stage.SCATTER_COMBINE,
    }
    return frozenset(stages | ({Stage.EXPERT_BIAS} if spec.biases else set()))


def expert_tensors(
    tables: Mapping[str, ExpertTable], weights: ExpertWeights
) -> list[tuple[HbmTensor, Values]]:
    """The tensors of the used experts with their values, for the host to write."""
    return [
        (table.of(number), values)
        for name, table in tables.items()
        for number, values in getattr(weights, name.removeprefix("w_")).items()
    ]


def expected_result(program: RoutedProgram, data: RoutedData) -> RoutedResult:
    """The reference on what the program sees of `data`."""
    spec = program.spec
    config = program.config
    seen = data.through_mx(
        x=program.x_hbm is not None, block=config.MX_BLOCK, dialect=config.mx_dialect
    )
    return routed_experts(
        seen.x,
        seen.weights,
        seen.experts,
        seen.route_weights,
        mlen=program.config.MLEN,
        activation=spec.activation,
        scale_input=spec.scale_input,
        order=reference_order(program.order),
        k_chunk_tiles=program.k_chunk_tiles,
    )


def routed_case(program: RoutedProgram, data: RoutedData) -> Case:
    """The workload of `program` on `data`."""
    spec, config = program.spec, program.config
    values: dict[str, Bf16Array | None] = {
        "x": data.x,
        "bias_gate": data.weights.bias_gate,
        "bias_up": data.weights.bias_up,
        "bias_down": data.weights.bias_down,
    }
    matrices: list[tuple] = [(program.vram[name], values[name]) for name in program.preloaded]
    tensors = expert_tensors(program.tables, data.weights)
    if program.x_hbm is not None:
        tensors.append((program.x_hbm, data.x))
    routing = program.routing
    experts: Values = data.experts.reshape(-1)
    return Case(
        config=config,
        image=program.image,
        title=(
            f"routed experts, {program.lowering.value}-major: {spec.experts} experts, top "
            f"{spec.top_k}; {routing.tokens} tokens, hidden {spec.hidden}, intermediate "
            f"{spec.intermediate}; configuration {config.name}"
        ),
        facts=asdict(spec)
        | {
            "tokens": routing.tokens,
            "lowering": program.lowering.value,
            "accumulation": program.order.name.lower(),
        },
        note=shared_vs_routed_note(program.lowering.value),
        stages=routed_stages(spec),
        projection_stages=PROJECTION_STAGES,
        tensors=tensors,
        matrices=matrices,
        fp_words=[
            (0, program.fp_mem),
            (routing.weights.start, data.route_weights.reshape(-1)),
        ],
        int_words=[(0, program.int_mem), (routing.indices.start, experts)],
        expected=[
            Expected(
                name="accumulator",
                matrix=program.vram["accumulator"],
                values=expected_result(program, data).total,
            )
        ],
    )


def build_routed_case(
    config: PlenaConfig,
    spec: RoutedSpec,
    *,
    tokens: int,
    lowering: Lowering,
    order: Accumulation,
    known: bool = True,
    kind: Kind = "exact",
    seed: int = 0,
    choice: str = "random",
    gather_from_hbm: bool = False,
    cap: int | None = None,
    weight_order: Order = Order.TILES,
    form: Form = Form.BUFFERED,
) -> Case:
    """Compile, make data, compute what must come out; `known`: the compiler sees the routing."""
    data = routed_data(
        tokens,
        spec.hidden,
        spec.intermediate,
        experts=spec.experts,
        top_k=spec.top_k,
        kind=kind,
        seed=seed,
        biased=spec.biases,
        choice=choice,
    )
    program = compile_routed_experts(
        config,
        spec,
        tokens=tokens,
        lowering=lowering,
        order=order,
        known=np.asarray(data.experts) if known else None,
        gather_from_hbm=gather_from_hbm,
        cap=cap,
        weight_order=weight_order,
        form=form,
    )
    return routed_case(program, data)
