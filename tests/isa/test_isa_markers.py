"""Comments that tag: markers, pair labels, and how long they hold."""

import pytest

from isa.markers import PAIR_LIMIT, Marker, TagTracker, legacy_stage, parse_marker, parse_pair
from isa.stages import Stage

#: Typed from attribution.md, "Pair labels".
DROPPING = {
    "residual_setup",
    "router_topk",
    "accumulator_init",
    "shared_expert_projection",
    "shared_expert_activation",
    "shared_expert_gate",
    "non_moe",
}


def tags_after(*comments: str) -> tuple[str, int | None]:
    """Stage and pair of the instruction below these comments in a program with markers."""
    tracker = TagTracker(explicit=True)
    for comment in comments:
        tracker.feed(comment)
    return tracker.stage.label, tracker.pair


@pytest.mark.parametrize(
    ("comment", "marker"),
    [
        (" @stage=gather", Marker("gather", "")),
        ("@stage=gather", Marker("gather", "")),
        ("\t@stage=gather\tpair=3 row 1 ", Marker("gather", "pair=3 row 1")),
        (" @stage=gather, pair=3", Marker("gather,", "pair=3")),
        (" @stage= gather", Marker("", "gather")),
        (" @stage=", Marker("", "")),
        (" see @stage=gather", None),
        (" stage=gather", None),
        (" @Stage=gather", None),
        (" @stage gather", None),
        ("", None),
    ],
)
def test_the_prefix_opens_the_comment_and_the_name_ends_at_white_space(
    comment: str, marker: Marker | None
) -> None:
    assert parse_marker(comment) == marker


@pytest.mark.parametrize(
    ("comment", "pair"),
    [
        ("@stage=gather pair=3", 3),
        ("pair=0", 0),
        ("(pair=12)", 12),
        ("pair=007,", 7),
        ("allocate vram matrix step6_pair12_gather", 12),
        ("step6_pair0", 0),
        ("pair=2 of step6_pair5", 2),
        (f"pair={PAIR_LIMIT}", PAIR_LIMIT),
        ("row=3", None),
        ("pairs=8", None),
        ("pair=", None),
        ("pair= 4", None),
        ("pair=-1", None),
        ("pair=3x", None),
        ("repair=3", None),
        ("my_pair=3", None),
        ("step6_pairs", None),
        ("pair 3", None),
    ],
)
def test_pair_labels(comment: str, pair: int | None) -> None:
    assert parse_pair(comment) == pair


@pytest.mark.parametrize("number", [str(PAIR_LIMIT + 1), "9" * 5000])
def test_a_pair_number_that_the_image_cannot_hold_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match=f"the number must be 0 to {PAIR_LIMIT}"):
        parse_pair(f"pair={number}")


@pytest.mark.parametrize("stage", list(Stage), ids=lambda s: s.label)
def test_which_stages_drop_the_label(stage: Stage) -> None:
    expected = None if stage.label in DROPPING else 5
    assert tags_after("pair=5", f"@stage={stage.label}") == (stage.label, expected)


def test_a_label_holds_over_comments_and_stages_until_the_next() -> None:
    assert tags_after("@stage=gather pair=2", "zero slot") == ("gather", 2)
    assert tags_after("@stage=gather pair=2", "@stage=expert_bias") == ("expert_bias", 2)
    assert tags_after("@stage=gather pair=2", "@stage=expert_bias pair=3") == ("expert_bias", 3)
    assert tags_after("@stage=gather pair=2", "row=7", "pairs=8") == ("gather", 2)


def test_a_comment_with_a_label_sets_it_in_any_stage_and_one_without_drops_it() -> None:
    assert tags_after("@stage=router_topk pair=4") == ("router_topk", 4)
    assert tags_after("@stage=router_topk pair=4", "token 1") == ("router_topk", None)
    assert tags_after("@stage=shared_expert_gate row=4") == ("shared_expert_gate", None)


def test_a_pairless_marker_directly_above_clears_the_label_of_scatter_combine() -> None:
    before = ("@stage=scatter_combine pair=7",)
    assert tags_after(*before, "@stage=scatter_combine") == ("scatter_combine", 7)
    cleared = tags_after(*before, "@stage=accumulator_init", "@stage=scatter_combine")
    assert cleared == ("scatter_combine", None)


def test_an_unknown_stage_keeps_everything_and_is_listed_once() -> None:
    tracker = TagTracker(explicit=True)
    assert tracker.feed("@stage=gather pair=1") is None
    assert [tracker.feed(c) for c in ("@stage=gathr pair=2", "@stage=gathr", "@stage=")] == [
        "gathr",
        "gathr",
        "",
    ]
    assert (tracker.stage, tracker.pair) == (Stage.GATHER, 2)
    assert tracker.unresolved == ["gathr", ""]


def test_without_markers_the_legacy_rules_decide() -> None:
    tracker = TagTracker(explicit=False, stage=Stage.GATHER)
    assert tracker.feed("@stage=expert_bias pair=1") is None
    assert tracker.stage is legacy_stage("@stage=expert_bias pair=1", Stage.GATHER)
    assert tracker.pair == 1
