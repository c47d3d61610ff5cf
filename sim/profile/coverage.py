"""Whether enough of a program has a stage for its profile to say something."""

from collections.abc import Mapping
from typing import Any

#: More unclassified instructions than this, of a program that routes, is a warning.
UNCLASSIFIED_LIMIT = 0.5


def coverage_warning(profile: Mapping[str, Any]) -> str | None:
    """A warning when more than `UNCLASSIFIED_LIMIT` of a routed program's instructions have no
    stage; None otherwise.

    A program is routed when an instruction has a stage of the routed branch, or a comment a pair
    label. A dense program has no reason to have stages.
    """
    classification = profile["classification"]
    part = classification.get("unclassified_fraction") or 0.0
    routed = classification.get("routed_moe_markers_present")
    if part <= UNCLASSIFIED_LIMIT or not (routed or classification.get("pair_id_terms_present")):
        return None
    way_out = (
        "mark every region with ; @stage=NAME"
        if classification.get("stage_attribution") == "explicit_stage_markers"
        else "the legacy rules read few of its comments; emit ; @stage=NAME markers"
    )
    return (
        f"warning: {part:.1%} of this routed program's instructions have no stage, so that the "
        f"stages say little; {way_out}"
    )
