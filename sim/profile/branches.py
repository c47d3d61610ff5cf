"""The shared-versus-routed split of a profile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isa.stages import BRANCH_OF, Branch, Stage


@dataclass(frozen=True, kw_only=True)
class BranchSplit:
    """Picoseconds per branch; None when the profile cannot say. 0 is an answer and not None.

    `shared_fraction` is shared / (shared + routed), None also when both are 0. Plumbing serves both
    branches, so the two add up neither to the layer nor to the run; all four add up to the stages.
    `note` is the caveat that goes wherever the fraction goes.
    """

    shared_picos: int | None
    routed_picos: int | None
    shared_fraction: float | None
    plumbing_picos: int | None
    outside_picos: int | None
    note: str | None


def branch_split(profile: Mapping[str, Any]) -> BranchSplit:
    """The split of any profile; a stage that it does not have counts as 0.

    A profile cannot say when it has no stages, or knows none of the stages of the shared branch:
    shared work is then in other stages.
    """
    classification = profile.get("classification") or {}
    note = (classification.get("attribution_notes") or {}).get("shared_vs_routed")
    stages = profile.get("stages")
    shared_labels = [stage.label for stage in Stage if BRANCH_OF[stage] is Branch.SHARED]
    if not isinstance(stages, Mapping) or not any(label in stages for label in shared_labels):
        return BranchSplit(
            shared_picos=None,
            routed_picos=None,
            shared_fraction=None,
            plumbing_picos=None,
            outside_picos=None,
            note=note,
        )
    picos = dict.fromkeys(Branch, 0)
    for stage in Stage:
        if stage.label in stages:
            picos[BRANCH_OF[stage]] += stages[stage.label]["wall_picos"]
    both = picos[Branch.SHARED] + picos[Branch.ROUTED]
    return BranchSplit(
        shared_picos=picos[Branch.SHARED],
        routed_picos=picos[Branch.ROUTED],
        shared_fraction=picos[Branch.SHARED] / both if both else None,
        plumbing_picos=picos[Branch.PLUMBING],
        outside_picos=picos[Branch.OUTSIDE],
        note=note,
    )
