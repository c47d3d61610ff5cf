"""A whole program around the routed experts of one layer: the top entry for the routed branch.

Input, routing and the sum stay in the on-chip memories: the host places x and, in INT_MEM and
FP_MEM, the routing; the sum is left in the accumulator.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.elementwise import zero_rows
from compiler.errors import CompileError
from compiler.expert_sort import SortWorkspace
from compiler.expert_table import ExpertTable
from compiler.hbm import HbmTensor, Order
from compiler.linear import Form
from compiler.program import Program
from compiler.routed_device import emit_routed_on_device
from compiler.routed_expert import RoutedParameters
from compiler.routed_experts import Accumulation, emit_routed_experts
from compiler.routed_pairs import HbmGather, emit_routed_pairs
from compiler.routed_spec import Lowering, RoutedSpec, Routing, check_known_routing
from compiler.vram import VramMatrix
from isa import PlenaConfig, ProgramImage


@dataclass(frozen=True, kw_only=True)
class RoutedProgram:
    """A program and everything that a host needs to run and check it.

    Attributes:
        tables: w_gate, w_up, w_down: the host writes every expert's tensor, MX.
        x_hbm: x [tokens, H] in HBM when it is gathered from there, MX; else None.
        vram: matrices that are valid at the end: x, accumulator, biases [experts, width].
        preloaded: the names in `vram` that the host places before the run, BF16.
        routing: where the host puts experts and weights.
        k_chunk_tiles, order: for the reference.
    """

    config: PlenaConfig
    spec: RoutedSpec
    lowering: Lowering
    order: Accumulation
    image: ProgramImage
    tables: dict[str, ExpertTable]
    x_hbm: HbmTensor | None
    vram: dict[str, VramMatrix]
    preloaded: tuple[str, ...]
    routing: Routing
    fp_mem: npt.NDArray[np.uint16]
    int_mem: npt.NDArray[np.uint32]
    k_chunk_tiles: int


def compile_routed_experts(
    config: PlenaConfig,
    spec: RoutedSpec,
    *,
    tokens: int,
    lowering: Lowering,
    order: Accumulation,
    known: npt.NDArray[np.integer] | None = None,
    gather_from_hbm: bool = False,
    cap: int | None = None,
    weight_order: Order = Order.TILES,
    form: Form = Form.BUFFERED,
) -> RoutedProgram:
    """Compile accumulator = sum of routed experts for `tokens` tokens.

    `known`: experts [tokens, top_k] that the host will place; a program with them is for these
    alone. Without, expert-major sorts on the machine. Pair-major adds in pair order only.

    Raises:
        CompileError: shapes or sizes that do not fit; the message names both numbers.
    """
    spec.check(config, tokens)
    if lowering is Lowering.PAIR and order is not Accumulation.PAIR:
        raise CompileError("order: pair-major adds in pair order (use Accumulation.PAIR)")
    if gather_from_hbm and lowering is not Lowering.PAIR:
        raise CompileError("gather_from_hbm: pair-major only (keep x in vector SRAM)")
    prog = Program(config, f"routed_{lowering.value}_{tokens}x{spec.hidden}x{spec.intermediate}")
    spare = 1 if lowering is Lowering.EXPERT and known is None else 0
    x = prog.vram.matrix("x", tokens, spec.hidden, spare_rows=spare)
    accumulator = prog.vram.matrix("accumulator", tokens, spec.hidden, spare_rows=spare)
    parameters = RoutedParameters.allocate(prog, spec, order=weight_order)
    routing = Routing.allocate(prog, tokens, spec.top_k)
    x_hbm = None
    if gather_from_hbm:
        slack = config.v_prefetch - 1
        x_hbm = prog.hbm.tensor("x", tokens, spec.hidden, slack_rows=slack)
    zero_rows(
        prog,
        accumulator,
        stage="accumulator_init",
        rows=accumulator.physical_rows if spare else tokens,
    )
    with prog.a("weights") as address, prog.a("tokens") as base:
        panels = form.panels(prog, address, cap)
        if lowering is Lowering.PAIR:
            source = x if x_hbm is None else HbmGather.of(prog, x_hbm, base, routing)
            emit_routed_pairs(
                prog, spec, parameters, panels, routing, x=source, accumulator=accumulator
            )
        elif known is not None:
            table = check_known_routing(spec, tokens, known)
            emit_routed_experts(
                prog,
                spec,
                parameters,
                panels,
                routing,
                table,
                x=x,
                accumulator=accumulator,
                order=order,
            )
        else:
            workspace = SortWorkspace.allocate(prog, spec, tokens)
            emit_routed_on_device(
                prog,
                spec,
                parameters,
                panels,
                routing,
                workspace,
                x=x,
                accumulator=accumulator,
                first=0,
                spare_row=tokens,
                order=order,
            )
    prog.end_region()
    biases = {
        name: matrix
        for name in ("bias_gate", "bias_up", "bias_down")
        if (matrix := getattr(parameters, name)) is not None
    }
    return RoutedProgram(
        config=config,
        spec=spec,
        lowering=lowering,
        order=order,
        image=prog.build(),
        tables={name: getattr(parameters, name) for name in ("w_gate", "w_up", "w_down")},
        x_hbm=x_hbm,
        vram={"x": x, "accumulator": accumulator} | biases,
        preloaded=("x", *biases),
        routing=routing,
        fp_mem=prog.fp_mem.initial(),
        int_mem=prog.int_mem.initial(),
        k_chunk_tiles=panels.cap,
    )
