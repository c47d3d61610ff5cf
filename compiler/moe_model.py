"""What the compiler needs to know of a mixture-of-experts layer of a public model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from compiler.errors import require
from compiler.router_rule import RouterRule, RouterSpec
from isa import PlenaConfig


class Activation(Enum):
    """What stands between the projections of an expert; lowering.md section 4, "Activations"."""

    STANDARD_SWIGLU = "standard_swiglu"
    GPT_OSS_CLAMP_GATED = "gpt_oss_clamp_gated"


@dataclass(frozen=True, kw_only=True)
class SharedBranch:
    """The shared experts of a layer: `count`, fused into one of `width`; `gated` by a sigmoid."""

    count: int
    width: int
    gated: bool

    def __post_init__(self) -> None:
        require(
            self.count >= 1 and self.width % max(1, self.count) == 0,
            f"shared width = {self.width}",
            f"must be a positive multiple of count = {self.count}",
            "width is that of all shared experts together",
        )


@dataclass(frozen=True, kw_only=True)
class MoeModel:
    """One mixture-of-experts layer of a model.

    Attributes:
        name: what `--model` takes. title: what people call it.
        checkpoint: the public repository whose config.json the values are from.
        experts, top_k, hidden, intermediate: routed experts, how many a token gets, and their
            shape.
        rule: from router logits to route weights.
        activation: of routed and shared experts.
        expert_biases: the three projections of a routed expert have biases.
        shared: the shared experts, None without.
        sources: for every value above, the key of config.json that it is from, or the class of the
            public modeling code when the configuration does not say it.

    Raises CompileError for a shape that cannot be, naming model, field, value and rule.
    """

    name: str
    title: str
    checkpoint: str
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    rule: RouterRule
    activation: Activation = Activation.STANDARD_SWIGLU
    expert_biases: bool = False
    shared: SharedBranch | None = None
    sources: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        require(
            self.intermediate >= 1,
            f"{self.name}: intermediate = {self.intermediate}",
            "must be at least 1",
            "check the model's row",
        )
        _ = self.router

    @property
    def router(self) -> RouterSpec:
        """The router alone."""
        return RouterSpec(
            experts=self.experts, top_k=self.top_k, hidden=self.hidden, rule=self.rule
        )

    def scaled(self, config: PlenaConfig) -> "MoeModel":
        """The same layer at a size that `config` simulates in seconds.

        The smaller of hidden and intermediate becomes MLEN, the larger keeps its ratio to it,
        rounded to whole MLEN. The width of the shared experts keeps its ratio to intermediate.
        Experts shrink to two rows of logits, more if the groups then held too little choice (twice
        top_k in the kept groups), and never below the model's own number of groups; top_k stays.
        """
        ratio = self.hidden / self.intermediate
        hidden = config.MLEN * max(1, round(ratio))
        intermediate = config.MLEN * max(1, round(1 / ratio))
        groups, kept = self.rule.groups, self.rule.kept_groups
        choice = -(-2 * self.top_k // kept)  # experts of one kept group
        size = max(choice, -(-2 * config.MLEN // groups))
        shared = self.shared
        if shared is not None:
            multiple = max(shared.count, round(shared.width / self.intermediate))
            shared = replace(shared, width=multiple * intermediate)
        return replace(
            self,
            experts=min(self.experts, groups * size),
            hidden=hidden,
            intermediate=intermediate,
            shared=shared,
        )
