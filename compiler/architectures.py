"""Shared experts of public models, as data."""

from dataclasses import dataclass

from compiler.errors import unknown_name


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What distinguishes the shared expert of one model family.

    `source` names the fields of the model's public configuration that say so.
    """

    model: str
    n_shared: int
    gated: bool
    source: str


#: By the name that `--arch` and `SharedExpertSpec` take; lowering.md section 5, "Fused width".
ARCHITECTURES: dict[str, Architecture] = {
    "deepseek": Architecture(
        model="DeepSeek-V2",
        n_shared=2,
        gated=False,
        source="n_shared_experts = 2; width moe_intermediate_size * n_shared_experts",
    ),
    "qwen2": Architecture(
        model="Qwen2-MoE",
        n_shared=1,
        gated=True,
        source="shared_expert_intermediate_size; the block has a shared_expert_gate",
    ),
    "llama4": Architecture(
        model="Llama-4",
        n_shared=1,
        gated=False,
        source="intermediate_size, as a routed expert",
    ),
    "glm4": Architecture(
        model="GLM-4.5",
        n_shared=1,
        gated=False,
        source="n_shared_experts = 1; width moe_intermediate_size * n_shared_experts",
    ),
    "kimi": Architecture(
        model="Kimi K2",
        n_shared=1,
        gated=False,
        source="n_shared_experts = 1; width moe_intermediate_size * n_shared_experts",
    ),
}


def find_architecture(arch: str) -> Architecture:
    """The row called `arch`; CompileError names the nearest and all names when there is none."""
    if arch not in ARCHITECTURES:
        raise unknown_name("arch", arch, ARCHITECTURES)
    return ARCHITECTURES[arch]
