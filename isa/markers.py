"""Stage markers and pair labels in comments (attribution.md, "From source to tag")."""

import re
from dataclasses import dataclass, field

from isa.legacy_rules import LEGACY_RULES
from isa.stages import PAIRLESS_STAGES, Stage

#: The prefix opens the comment; the name ends at white space and may be missing.
_MARKER = re.compile(r"\s*@stage=(\S*)(.*)", re.DOTALL)

#: `pair=N` as a word of its own, or `step6_pairN` as the start of a name. `pairs=8` and `row=3` are
#: neither.
_PAIR = re.compile(r"(?<![A-Za-z0-9_])pair=([0-9]+)(?![A-Za-z0-9_])|step6_pair([0-9]+)")

#: The largest pair number that the image's int32 column holds.
PAIR_LIMIT = (1 << 31) - 1


@dataclass(frozen=True)
class Marker:
    """`@stage=NAME detail`, not checked against the vocabulary."""

    name: str
    detail: str


def parse_marker(comment: str) -> Marker | None:
    """The marker that opens `comment` (the text after `;` or `//`), or None."""
    found = _MARKER.match(comment)
    return Marker(found.group(1), found.group(2).strip()) if found else None


def parse_pair(comment: str) -> int | None:
    """The routed pair that the first label in `comment` names, or None.

    Raises:
        ValueError: the number does not fit the image's int32 column.
    """
    found = _PAIR.search(comment)
    if found is None:
        return None
    digits = (found.group(1) or found.group(2)).lstrip("0") or "0"
    if len(digits) > len(str(PAIR_LIMIT)) or int(digits) > PAIR_LIMIT:
        raise ValueError(f"pair label {found.group()!r}: the number must be 0 to {PAIR_LIMIT}")
    return int(digits)


def legacy_stage(comment: str, current: Stage) -> Stage:
    """The stage after `comment` in a program without markers: that of the first legacy rule that
    hits, in any case of letters, else the current one."""
    lowered = comment.lower()
    for rule in LEGACY_RULES:
        if any(clause.holds(lowered, current) for clause in rule.clauses):
            return rule.stage
    return current


@dataclass
class TagTracker:
    """The tag that the next instruction gets, as the comments above it set it.

    Feed every comment of the program in order, trailing ones after the instruction of their line.
    A stage holds until the next marker, a label until the next label; a comment without a label
    drops it while the stage is one of `PAIRLESS_STAGES`. `explicit` says that the program has
    markers; the tracker then reads nothing else.
    """

    explicit: bool
    stage: Stage = Stage.OTHER
    pair: int | None = None
    unresolved: list[str] = field(default_factory=list)

    def feed(self, comment: str) -> str | None:
        """Take one comment; returns a stage name that is not in the vocabulary, which changes no
        stage.

        Raises:
            ValueError: a pair number that does not fit.
        """
        marker = parse_marker(comment)
        unknown = None
        if not self.explicit:
            self.stage = legacy_stage(comment, self.stage)
        elif marker is not None:
            try:
                self.stage = Stage.from_label(marker.name)
            except ValueError:
                unknown = marker.name
                if unknown not in self.unresolved:
                    self.unresolved.append(unknown)
        pair = parse_pair(comment)
        if pair is not None:
            self.pair = pair
        elif self.stage in PAIRLESS_STAGES:
            self.pair = None
        return unknown
