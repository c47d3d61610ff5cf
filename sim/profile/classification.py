"""What a profile says about the origin and the coverage of its tags, from the program alone.

A label is an instruction of the program, as in version 4: one word of the image, however often it
runs.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from isa.image import ProgramImage
from isa.image_schema import EXPLICIT_MARKERS
from isa.legacy_rules import LEGACY_TERMS
from isa.markers import parse_marker
from isa.stages import BRANCH_OF, Branch, Stage
from sim.profile.amounts import fraction

#: What a pair label can look like (`isa.markers.parse_pair`).
PAIR_TERMS = ("step6_pair", "pair=")

_COMMENT = re.compile(r";|//")  # as the assembler splits a line


def classify(
    image: ProgramImage, instructions: Mapping[str, int], shared_vs_routed_note: str
) -> dict[str, Any]:
    """The classification section of the profile of `image`.

    `instructions` are the completed ones per stage. The decisions:

    - routed_moe_markers_present: an instruction is tagged with a stage of the routed branch
    - unclassified_labels: instructions tagged `other`, which means that nobody said
    - trailing_stage, trailing_labels: the stage of the last marker whose name is known, and the
      instructions after it; in a program without markers, the last instruction's stage and the
      length of its run at the end
    - moe_region_terminated: the last marker is non_moe, so that nothing after the MoE work is
      billed to it; always false without markers, where it says nothing
    - vocabulary_terms_*: terms of the legacy rules in the comments, in any case of letters; where
      the tags are from markers no rule ran
    """
    counts = image.stage_counts()
    comments = "\n".join(comment for _, comment in _comments(image))
    lowered = comments.lower()
    trailing_stage, trailing_labels = trailing(image)
    unclassified = counts.get(Stage.OTHER.label, 0)
    return {
        "routed_moe_markers_present": any(
            counts.get(stage.label, 0) for stage in Stage if BRANCH_OF[stage] is Branch.ROUTED
        ),
        "label_count": len(image),
        "unclassified_labels": unclassified,
        "unclassified_fraction": fraction(unclassified, len(image)),
        "stage_attribution": image.tag_origin,
        "attribution_notes": {"shared_vs_routed": shared_vs_routed_note},
        "moe_region_terminated": image.tag_origin == EXPLICIT_MARKERS
        and trailing_stage is Stage.NON_MOE,
        "trailing_stage": trailing_stage.label,
        "trailing_labels": trailing_labels,
        "unresolved_stage_markers": list(image.unresolved_stage_markers),
        "vocabulary_terms_total": len(LEGACY_TERMS),
        "vocabulary_terms_present": [term for term in LEGACY_TERMS if term in lowered],
        "vocabulary_terms_absent": [term for term in LEGACY_TERMS if term not in lowered],
        "pair_id_terms_present": [term for term in PAIR_TERMS if term in comments],
        "stage_instruction_counts": dict(instructions),
    }


def trailing(image: ProgramImage) -> tuple[Stage, int]:
    """The stage that the program ends in, and how many instructions it has had (see `classify`)."""
    if image.tag_origin != EXPLICIT_MARKERS:
        if not len(image):
            return Stage.OTHER, 0
        last = int(image.stages[-1])
        others = np.flatnonzero(image.stages != last)
        start = int(others[-1]) + 1 if others.size else 0
        return Stage(last), len(image) - start
    stage, line = Stage.OTHER, 0
    for number, comment in _comments(image):
        marker = parse_marker(comment)
        if marker is not None:
            try:
                stage, line = Stage.from_label(marker.name), number
            except ValueError:
                continue  # changed nothing; listed in unresolved_stage_markers
    return stage, int(np.count_nonzero(image.lines > line))


def _comments(image: ProgramImage) -> Iterator[tuple[int, str]]:
    """Line number and text of every comment of the source."""
    for number, line in enumerate(image.source, start=1):
        found = _COMMENT.search(line)
        if found:
            yield number, line[found.end() :]
