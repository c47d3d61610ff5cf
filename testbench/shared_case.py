"""One shared-expert workload: its program, its data, what must come out, and the checks of a
finished run."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler import (
    ARCHITECTURES,
    SharedExpertProgram,
    SharedExpertSpec,
    compile_shared_expert,
)
from compiler.attribution_note import SHARED_VS_ROUTED_NOTE
from compiler.linear import Form
from isa.config import PlenaConfig
from isa.image import ProgramImage
from isa.stages import Stage
from sim.hbm import HbmDevice
from sim.mismatch import Comparison, compare
from sim.numerics import bf16
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.reference.data import (
    Kind,
    SharedExpertData,
    assert_not_saturated,
    random,
    shared_expert_data,
)
from testbench.reference.shared_expert import SharedExpertResult, combine, shared_expert
from testbench.workload import (
    Bits,
    ExpectedTensor,
    compare_stored,
    locator,
    read_matrix,
    stage_problems,
    store_tensor,
)


@dataclass(frozen=True, kw_only=True)
class SharedCase:
    """A program with operands and golden results, all in BF16."""

    program: SharedExpertProgram
    data: SharedExpertData
    routed: npt.NDArray[np.generic] | None
    golden: SharedExpertResult
    total: npt.NDArray[np.generic]
    """accumulator + shared output, [rows, hidden]."""

    @property
    def config(self) -> PlenaConfig:
        """The machine."""
        return self.program.config

    @property
    def image(self) -> ProgramImage:
        """The program."""
        return self.program.image

    @property
    def projection_stages(self) -> tuple[Stage, ...]:
        """The projection stage of the shared branch."""
        return (Stage.SHARED_EXPERT_PROJECTION,)

    @property
    def note(self) -> str:
        """The caveat of a program without routed experts."""
        return SHARED_VS_ROUTED_NOTE

    @property
    def title(self) -> str:
        """Model, gate, sizes and machine."""
        spec, config = self.program.spec, self.config
        experts = (
            f"{spec.n_shared} shared experts fused" if spec.n_shared > 1 else "1 shared expert"
        )
        gate = ", sigmoid gate per token" if spec.gated else ""
        return (
            f"{ARCHITECTURES[spec.arch].model}: {experts}{gate}; {self.program.rows} tokens, "
            f"hidden {spec.hidden}, width {spec.width}; configuration {config.name} "
            f"(MLEN {config.MLEN}, BLEN {config.BLEN})"
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The same, for the report."""
        spec = self.program.spec
        return {
            "arch": spec.arch,
            "n_shared": spec.n_shared,
            "hidden": spec.hidden,
            "intermediate": spec.intermediate,
            "rows": self.program.rows,
        }

    def hbm(self) -> HbmDevice:
        """A memory device with the quantised operands in place."""
        device = HbmDevice(self.config)
        for name in ("x", "w_gate", "w_up", "w_down"):
            store_tensor(device, self.program.hbm[name], getattr(self.data, name))
        return device

    def load(self, simulation: Simulation) -> None:
        """Places what the program finds in the on-chip memories."""
        values = {"gate_row": self.data.gate_weight, "accumulator": self.routed}
        if (biases := self.data.biases) is not None:
            rows = {"bias_gate": biases.gate, "bias_up": biases.up, "bias_down": biases.down}
            values |= {name: row.reshape(1, -1) for name, row in rows.items() if row is not None}
        memories = simulation.memories
        for name in self.program.preloaded:
            row, rows = self.program.preload(name, values[name])  # type: ignore[arg-type]
            memories.write_vector(row, rows)
        memories.write_fp(0, self.program.fp_mem)

    def check(self, simulation: Simulation) -> list[Comparison]:
        """Compares, in the order of the data flow, every tensor that is still there when the
        program ends."""
        wanted = {
            "x": self.data.through_mx(("x",), self.config.MX_BLOCK, self.config.mx_dialect).x,
            "activation": self.golden.activation,
            "output": self.golden.output,
            "accumulator": self.total,
        }
        checks = []
        for name, want in wanted.items():
            matrix = self.program.vram[name]
            checks.append(
                compare(
                    name,
                    read_matrix(simulation, matrix),
                    bf16.to_bits(want),
                    locate=locator(matrix),
                    writers=simulation.last_writer,
                    image=simulation.image,
                )
            )
        stored = ExpectedTensor(
            name="stored result (MX bytes)",
            tensor=self.program.hbm["out"],
            matrix=self.program.vram["accumulator"],
            values=self.total,
        )
        return [*checks, compare_stored(simulation, stored)]

    def check_stages(self, result: RunResult) -> list[str]:
        """What is wrong with the stages: time that is not accounted for, empty or foreign
        stages."""
        return stage_problems(result, frozenset(self.program.stages_present))

    def result(self, simulation: Simulation) -> Bits:
        """The accumulator, bit patterns [rows, hidden]."""
        return read_matrix(simulation, self.program.vram["accumulator"])

    @property
    def reference(self) -> Bits:
        """What the accumulator must be."""
        return bf16.to_bits(self.total)  # type: ignore[arg-type]


def build_case(
    config: PlenaConfig,
    spec: SharedExpertSpec,
    *,
    rows: int,
    kind: Kind = "exact",
    seed: int = 0,
    routed_accumulator: bool = False,
    form: Form = Form.BUFFERED,
) -> SharedCase:
    """Compiles the program, makes the data, and computes what must come out.

    Raises CompileError for a shape that cannot be lowered, SaturatedGate when a gate of this data
    is exactly 0 or 1 (a gate that is not applied would go unseen).
    """
    program = compile_shared_expert(
        config, spec, rows=rows, routed_accumulator=routed_accumulator, form=form
    )
    data = shared_expert_data(
        rows,
        spec.hidden,
        spec.width,
        kind=kind,
        seed=seed,
        gated=spec.gated,
        biased=spec.biases,
        block=config.MX_BLOCK,
        dialect=config.mx_dialect,
    )
    seen = data.through_mx(block=config.MX_BLOCK, dialect=config.mx_dialect)
    golden = shared_expert(
        seen.x,
        seen.w_gate,
        seen.w_up,
        seen.w_down,
        mlen=config.MLEN,
        k_chunk_tiles=program.k_chunk_tiles,
        biases=data.biases,
        gate_weight=data.gate_weight,
    )
    if golden.gate_scalars is not None:
        assert_not_saturated(golden.gate_scalars)
    routed = random((rows, spec.hidden), seed=seed + 1) if routed_accumulator else None
    start = np.zeros_like(golden.output) if routed is None else routed
    return SharedCase(
        program=program,
        data=data,
        routed=routed,
        golden=golden,
        total=combine(start, golden.output),
    )


def spec_of(
    arch: str,
    *,
    hidden: int,
    intermediate: int,
    n_shared: int | None = None,
    biases: bool = False,
) -> SharedExpertSpec:
    """The spec of a model family; `n_shared` overrides the family's number of fused experts,
    `biases` gives the projections bias rows."""
    spec = SharedExpertSpec.of(arch, hidden=hidden, intermediate=intermediate, biases=biases)
    return spec if n_shared is None else replace(spec, n_shared=n_shared)
