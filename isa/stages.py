"""The stage vocabulary: what an instruction is doing for the model, and which branch that belongs
to.

`Stage` is the only declaration of the vocabulary (attribution.md, "Vocabulary"). The compiler
validates names against it, the image carries the names in this order, the hardware carries the
4-bit index.
"""

from amaranth.lib import enum


class Stage(enum.IntEnum, shape=4):
    """What an instruction works on; the value is the hardware tag and the order in every table."""

    RESIDUAL_SETUP = 0
    ROUTER_TOPK = 1
    ACCUMULATOR_INIT = 2
    GATHER = 3
    EXPERT_WEIGHT_ADDRESS = 4
    EXPERT_WEIGHT_PREFETCH = 5
    EXPERT_PROJECTION = 6
    EXPERT_ACTIVATION = 7
    EXPERT_BIAS = 8
    EXPERT_ROUTE_WEIGHT = 9
    SCATTER_COMBINE = 10
    SHARED_EXPERT_PROJECTION = 11
    SHARED_EXPERT_ACTIVATION = 12
    SHARED_EXPERT_GATE = 13
    NON_MOE = 14  # the program says that the MoE region is over
    OTHER = 15  # nobody said

    @property
    def label(self) -> str:
        """The name in markers, profiles and tables: the member's name in lower case."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> "Stage":
        """The stage called `label`; ValueError names the vocabulary when there is none."""
        for stage in cls:
            if stage.label == label:
                return stage
        raise ValueError(
            f"stage {label!r} is not in the vocabulary; use one of: "
            f"{', '.join(s.label for s in cls)}"
        )


class Branch(enum.Enum):
    """The part of an MoE layer that a stage's cycles are reported under."""

    SHARED = "shared"
    ROUTED = "routed"
    PLUMBING = "plumbing"
    OUTSIDE = "outside"


BRANCH_OF: dict[Stage, Branch] = {
    Stage.RESIDUAL_SETUP: Branch.PLUMBING,
    Stage.ROUTER_TOPK: Branch.ROUTED,  # grows with the number of experts; no dense counterpart
    Stage.ACCUMULATOR_INIT: Branch.PLUMBING,
    Stage.GATHER: Branch.PLUMBING,
    Stage.EXPERT_WEIGHT_ADDRESS: Branch.ROUTED,
    Stage.EXPERT_WEIGHT_PREFETCH: Branch.ROUTED,
    Stage.EXPERT_PROJECTION: Branch.ROUTED,
    Stage.EXPERT_ACTIVATION: Branch.ROUTED,
    Stage.EXPERT_BIAS: Branch.ROUTED,
    Stage.EXPERT_ROUTE_WEIGHT: Branch.ROUTED,
    Stage.SCATTER_COMBINE: Branch.PLUMBING,
    Stage.SHARED_EXPERT_PROJECTION: Branch.SHARED,
    Stage.SHARED_EXPERT_ACTIVATION: Branch.SHARED,
    Stage.SHARED_EXPERT_GATE: Branch.SHARED,
    Stage.NON_MOE: Branch.OUTSIDE,
    Stage.OTHER: Branch.OUTSIDE,
}

# A pair label does not survive into these stages (attribution.md, "From source to tag").
PAIRLESS_STAGES = frozenset(
    {
        Stage.RESIDUAL_SETUP,
        Stage.ROUTER_TOPK,
        Stage.ACCUMULATOR_INIT,
        Stage.SHARED_EXPERT_PROJECTION,
        Stage.SHARED_EXPERT_ACTIVATION,
        Stage.SHARED_EXPERT_GATE,
        Stage.NON_MOE,
    }
)
