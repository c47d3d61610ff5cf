"""What a router does with its logits: the rule of a model, and what V_TOPK alone gives of it.

lowering.md section 9; V_TOPK ranks raw logits and returns the softmax over the selected ones.
"""

from dataclasses import dataclass
from enum import Enum

from compiler.errors import require


class Scores(Enum):
    """How a logit becomes a score."""

    SELECTED_SOFTMAX = "softmax over the selected logits"
    SOFTMAX = "softmax over all logits"
    SIGMOID = "sigmoid of each logit"


class GroupScore(Enum):
    """How a group of experts is ranked against the others."""

    MAXIMUM = "the best score in the group"
    TOP_TWO_SUM = "the sum of the two best scores in the group"


class TopkGives(Enum):
    """How much of a rule V_TOPK computes by itself."""

    EXACT = "exact"
    EXACT_IN_REAL_ARITHMETIC = "exact in real arithmetic"
    INDICES = "indices only"
    NOTHING = "no"


@dataclass(frozen=True, kw_only=True)
class RouterRule:
    """From logits to the experts of a token and their route weights.

    The choice is by the logits; with `correction_bias`, by score + bias. With `groups`, only
    experts of the best `kept_groups` groups can be chosen; groups are equal runs of neighbouring
    experts, ranked by `group_score`. The weight is the score, never with the correction bias,
    divided by the sum over the chosen if `renormalised`, times `factor`. `bias` is added to the
    logits. `on_input`: the weight scales the expert's input, not its output.

    Raises CompileError for a combination that no lowering exists for.
    """

    scores: Scores
    renormalised: bool = False
    factor: float = 1.0
    bias: bool = False
    correction_bias: bool = False
    groups: int = 1
    kept_groups: int = 1
    group_score: GroupScore | None = None
    on_input: bool = False

    def __post_init__(self) -> None:
        require(self.factor > 0, f"factor = {self.factor}", "must be positive", "use 1.0")
        require(
            1 <= self.kept_groups <= self.groups,
            f"kept_groups = {self.kept_groups}",
            f"must be 1 to groups = {self.groups}",
            "use 1 of 1 for a router without groups",
        )
        require(
            (self.group_score is None) == (self.groups == 1),
            f"group_score = {self.group_score and self.group_score.name}, groups = {self.groups}",
            "several groups need a group score, one group has none",
            "give both or neither",
        )
        if self.topk_weights:
            require(
                self.factor == 1.0,
                f"factor = {self.factor}",
                "must be 1 where the weights are those of V_TOPK, which are not scaled",
                "use 1.0",
            )
        else:
            require(
                not self.bias,
                f"bias with {self.scores.value}",
                "a biased logit is not in FP_MEM, where the exact weights are computed from",
                "use the bias with V_TOPK's own weights only",
            )
        sigmoid = self.scores is Scores.SIGMOID
        require(
            sigmoid or not self.correction_bias,
            f"correction_bias with {self.scores.value}",
            "is lowered for sigmoid scores only",
            "leave it out",
        )
        require(
            self.correction_bias or self.group_score is not GroupScore.TOP_TWO_SUM,
            "group_score = TOP_TWO_SUM without correction_bias",
            "is lowered on corrected sigmoid scores only",
            "use MAXIMUM, or a correction bias of zeros",
        )

    @property
    def topk_weights(self) -> bool:
        """Whether the softmax that V_TOPK returns is the route weight.

        Softmax over all, renormalised over the selected: the common denominator cancels.
        """
        return self.scores is Scores.SELECTED_SOFTMAX or (
            self.scores is Scores.SOFTMAX and self.renormalised
        )

    @property
    def topk_gives(self) -> TopkGives:
        """How much of the rule one V_TOPK on the logits computes."""
        if self.correction_bias or self.groups > 1:
            return TopkGives.NOTHING
        if self.scores is Scores.SELECTED_SOFTMAX:
            return TopkGives.EXACT
        return TopkGives.EXACT_IN_REAL_ARITHMETIC if self.topk_weights else TopkGives.INDICES


@dataclass(frozen=True, kw_only=True)
class RouterSpec:
    """The router of one layer: logits = x [T, hidden] . weight [experts, hidden], then `rule`.

    Raises CompileError for a shape that breaks the rule, naming field, value and rule.
    """

    experts: int
    top_k: int
    hidden: int
    rule: RouterRule

    def __post_init__(self) -> None:
        rule = self.rule
        for name in ("experts", "top_k", "hidden"):
            value = getattr(self, name)
            require(value >= 1, f"{name} = {value}", "must be at least 1", "check the model's row")
        require(
            self.top_k <= self.experts,
            f"top_k = {self.top_k}",
            f"must be at most experts = {self.experts}",
            "select fewer experts",
        )
        require(
            self.experts % rule.groups == 0,
            f"groups = {rule.groups}",
            f"must divide experts = {self.experts}",
            "groups are of equal size",
        )
        require(
            self.top_k <= rule.kept_groups * self.group_size,
            f"top_k = {self.top_k}",
            f"{rule.kept_groups} kept of {rule.groups} groups of {self.experts} experts hold "
            f"{rule.kept_groups * self.group_size} to choose from",
            "keep more groups, or select fewer experts",
        )
        require(
            self.group_size >= 2 or rule.group_score is not GroupScore.TOP_TWO_SUM,
            f"groups = {rule.groups}",
            f"leave 1 of {self.experts} experts per group, and its score is the sum of two",
            "use fewer groups",
        )

    @property
    def group_size(self) -> int:
        """Experts of one group."""
        return self.experts // self.rule.groups

    def blocks(self, mlen: int) -> int:
        """Rows of `mlen` lanes that the logits of one token take."""
        return -(-self.experts // mlen)
