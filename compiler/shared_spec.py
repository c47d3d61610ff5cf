"""What a shared expert is: shape, fusion, gate, biases; and the fusion of its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.architectures import find_architecture
from compiler.errors import CompileError, require, require_multiple
from compiler.models import MODELS
from compiler.moe_model import MoeModel
from isa import PlenaConfig, Stage

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class SharedExpertSpec:
    """The shared expert of one layer.

    `intermediate` is the width of one of `n_shared` experts, which are fused into one of `width`.
    `gated`: a sigmoid gate per token scales the output. `biases`: the projections have bias rows.
    Raises CompileError for values below 1 or an unknown `arch`.
    """

    arch: str
    hidden: int
    intermediate: int
    n_shared: int
    gated: bool
    biases: bool = False

    def __post_init__(self) -> None:
        if self.arch not in MODELS:
            find_architecture(self.arch)
        for name in ("hidden", "intermediate", "n_shared"):
            value = getattr(self, name)
            require(
                value >= 1, f"{name} = {value}", "must be at least 1", "leave the shared expert out"
            )

    @classmethod
    def of(
        cls, arch: str, *, hidden: int, intermediate: int, biases: bool = False
    ) -> "SharedExpertSpec":
        """The spec of a model family, with fusion and gate from `ARCHITECTURES`."""
        row = find_architecture(arch)
        return cls(
            arch=arch,
            hidden=hidden,
            intermediate=intermediate,
            n_shared=row.n_shared,
            gated=row.gated,
            biases=biases,
        )

    @classmethod
    def of_model(cls, model: MoeModel) -> "SharedExpertSpec | None":
        """The shared branch of a row of the model table, or None when it has none."""
        if model.shared is None:
            return None
        return cls(
            arch=model.name,
            hidden=model.hidden,
            intermediate=model.shared.width // model.shared.count,
            n_shared=model.shared.count,
            gated=model.shared.gated,
        )

    @property
    def width(self) -> int:
        """Width of the fused expert."""
        return self.intermediate * self.n_shared

    def check(self, config: PlenaConfig, rows: int) -> None:
        """CompileError unless the shape can be lowered for `config` and `rows` tokens."""
        require(
            rows >= 1,
            f"rows = {rows}",
            "must be at least 1",
            "leave the layer out of an empty batch",
        )
        require_multiple("hidden", self.hidden, config.MLEN, "MLEN")
        field = (
            "intermediate" if self.n_shared == 1 else f"intermediate * n_shared ({self.n_shared})"
        )
        require_multiple(field, self.width, config.MLEN, "MLEN")

    def stages(self, *, routed_accumulator: bool) -> tuple[Stage, ...]:
        """The stages that the compiled program has instructions in, in vocabulary order."""
        present = {
            Stage.RESIDUAL_SETUP: True,
            Stage.ACCUMULATOR_INIT: not routed_accumulator,
            Stage.SCATTER_COMBINE: True,
            Stage.SHARED_EXPERT_PROJECTION: True,
            Stage.SHARED_EXPERT_ACTIVATION: True,
            Stage.SHARED_EXPERT_GATE: self.gated,
            Stage.NON_MOE: True,
        }
        return tuple(stage for stage in Stage.__members__.values() if present.get(stage, False))


def fuse_weights(
    gates: Sequence[Array], ups: Sequence[Array], downs: Sequence[Array]
) -> tuple[Array, Array, Array]:
    """n experts as one: gate and up [H, I] joined by columns, down [I, H] by rows.

    Equal in real arithmetic to the sum of the experts, not bit for bit (lowering.md, "Fused
    width"). CompileError when the shapes do not fit.
    """
    shapes = {g.shape for g in gates} | {u.shape for u in ups} | {d.shape[::-1] for d in downs}
    if not len(gates) == len(ups) == len(downs) or len(shapes) != 1:
        raise CompileError(
            f"fuse_weights: gates {[g.shape for g in gates]}, ups {[u.shape for u in ups]}, downs "
            f"{[d.shape for d in downs]} must be n times [H, I], [H, I], [I, H] "
            "(one of each per expert)"
        )
    return np.concatenate(gates, axis=1), np.concatenate(ups, axis=1), np.concatenate(downs, axis=0)
