"""A whole program around one shared expert: the top entry of the compiler for the shared branch."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.arena import Interval
from compiler.counts import IssueCounts, count_issued
from compiler.elementwise import combine, zero_rows
from compiler.hbm import HbmTensor, Order
from compiler.linear import Form
from compiler.program import Program
from compiler.shared_expert import SharedExpertParameters, emit_shared_expert
from compiler.shared_spec import SharedExpertSpec
from compiler.transfer import load_matrix, store_matrix
from compiler.vram import VramMatrix, transfer_rows
from isa import PlenaConfig, ProgramImage, Stage


@dataclass(frozen=True, kw_only=True)
class SharedExpertProgram:
    """A program and everything that a host needs to run and check it.

    Attributes:
        hbm: x [rows, H], w_gate, w_up [H, width] and w_down [width, H] (fused), which the host
            loads, and out [rows, H], which the program stores. All are MX.
        vram: matrices that are valid when the program ends: x, accumulator, activation, output and,
            where the spec has them, gate_row, bias_gate, bias_up, bias_down.
        preloaded: the names in `vram` that the host must place before the run, in BF16.
        fp_mem: initial FP_MEM, BF16 patterns.
        gate_scalars: the FP_MEM slots with one gate per row at the end, None without a gate.
        k_chunk_tiles: the K-split bound, for the reference (lowering.md section 8, "projection").
    """

    config: PlenaConfig
    spec: SharedExpertSpec
    rows: int
    routed_accumulator: bool
    image: ProgramImage
    hbm: dict[str, HbmTensor]
    vram: dict[str, VramMatrix]
    preloaded: tuple[str, ...]
    fp_mem: npt.NDArray[np.uint16]
    gate_scalars: Interval | None
    k_chunk_tiles: int
    issued: IssueCounts = field(repr=False)

    @property
    def stages_present(self) -> tuple[Stage, ...]:
        """The stages that must have instructions; every other stage must have none."""
        return self.spec.stages(routed_accumulator=self.routed_accumulator)

    def preload(self, name: str, values: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
        """(first memory row, rows [n, MLEN]) to write to vector SRAM for a preloaded matrix."""
        matrix = self.vram[name]
        return matrix.first_row, matrix.place(values)


def compile_shared_expert(
    config: PlenaConfig,
    spec: SharedExpertSpec,
    *,
    rows: int,
    routed_accumulator: bool = False,
    cap: int | None = None,
    weight_order: Order = Order.TILES,
    form: Form = Form.BUFFERED,
) -> SharedExpertProgram:
    """Compile accumulator += shared_expert(x) for `rows` tokens, x and the result in HBM.

    The accumulator starts as true zeros, or, with `routed_accumulator`, with what the host
    preloads: the sum over the routed experts, in BF16. `cap` bounds the K tiles of one FP32
    accumulation; the default is half of the matrix SRAM in the buffered `form`. `weight_order` is
    the order of the weights in HBM.

    Raises:
        CompileError: hidden or width no multiple of MLEN, rows < 1, or rows for which vector SRAM,
            FP_MEM or the instruction memory is too small; the message names both numbers.
    """
    spec.check(config, rows)
    prog = Program(config, f"shared_expert_{spec.arch}_{rows}x{spec.hidden}x{spec.width}")
    io_rows = transfer_rows(config, rows)
    shapes = {"w_gate": (spec.hidden, spec.width), "w_up": (spec.hidden, spec.width)}
    shapes["w_down"] = (spec.width, spec.hidden)
    x_hbm = prog.hbm.tensor("x", rows, spec.hidden, physical_rows=io_rows)
    weights = {
        name: prog.hbm.tensor(name, *shape, order=weight_order) for name, shape in shapes.items()
    }
    out_hbm = prog.hbm.tensor("out", rows, spec.hidden, physical_rows=io_rows)

    vram = {name: prog.vram.matrix(name, rows, spec.hidden) for name in ("x", "accumulator")}
    rows_of_one = {"gate_row": spec.hidden} if spec.gated else {}
    if spec.biases:
        rows_of_one |= {"bias_gate": spec.width, "bias_up": spec.width, "bias_down": spec.hidden}
    constant_rows = {
        name: prog.vram.matrix(name, 1, cols, preloaded=True) for name, cols in rows_of_one.items()
    }
    vram |= constant_rows

    prog.stage("residual_setup", "load x")
    load_matrix(prog, x_hbm, vram["x"])
    if not routed_accumulator:
        # Padded rows too: a store of fewer rows than one H_STORE_V writes them.
        accumulator = vram["accumulator"]
        zero_rows(prog, accumulator, stage="accumulator_init", rows=accumulator.physical_rows)
    with prog.a("weights") as address:
        panels = form.panels(prog, address, cap)
        parameters = SharedExpertParameters(
            w_gate=weights["w_gate"],
            w_up=weights["w_up"],
            w_down=weights["w_down"],
            **constant_rows,
        )
        result = emit_shared_expert(prog, spec, parameters, panels, x=vram["x"], rows=rows)
    combine(prog, vram["accumulator"], result.output, rows=rows)
    prog.end_region()
    store_matrix(prog, vram["accumulator"], out_hbm)

    vram |= {"activation": result.activation, "output": result.output}
    image = prog.build()
    return SharedExpertProgram(
        config=config,
        spec=spec,
        rows=rows,
        routed_accumulator=routed_accumulator,
        image=image,
        hbm=dict(prog.hbm.tensors),
        vram=vram,
        preloaded=(*(["accumulator"] if routed_accumulator else []), *constant_rows),
        fp_mem=prog.fp_mem.initial(),
        gate_scalars=result.gate_scalars,
        k_chunk_tiles=panels.cap,
        issued=count_issued(image),
    )
