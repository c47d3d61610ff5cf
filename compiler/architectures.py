"""Families of shared experts, by the short names of `--arch`: each is a row of the model table."""

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.errors import unknown_name
from compiler.models import MODELS
from compiler.moe_model import MoeModel

#: The model that stands for a family; lowering.md section 5, "Fused width".
_REPRESENTATIVES = {
    "deepseek": "deepseek-v2",
    "qwen2": "qwen2-moe-a14b",
    "llama4": "llama4-scout",
    "glm4": "glm-4.5",
    "kimi": "kimi-k2",
}


@dataclass(frozen=True)
class Architecture:
    """The shared expert of one model family: how many are fused, and whether it is gated."""

    model: str
    n_shared: int
    gated: bool

    @classmethod
    def of(cls, model: MoeModel) -> "Architecture":
        """The shared expert of a row of the model table; ValueError when it has none."""
        if model.shared is None:
            raise ValueError(f"{model.name} has no shared expert")
        return cls(model.title, model.shared.count, model.shared.gated)


#: By the name that `--arch` and `SharedExpertSpec` take.
ARCHITECTURES: Mapping[str, Architecture] = {
    arch: Architecture.of(MODELS[name]) for arch, name in _REPRESENTATIVES.items()
}


def find_architecture(arch: str) -> Architecture:
    """The row called `arch`; CompileError names the nearest and all names when there is none."""
    if arch not in ARCHITECTURES:
        raise unknown_name("arch", arch, ARCHITECTURES)
    return ARCHITECTURES[arch]
