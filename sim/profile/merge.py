"""The sum of profiles."""

from collections.abc import Mapping, Sequence
from typing import Any

from isa.legacy_rules import LEGACY_TERMS
from sim.profile.amounts import Amounts, fraction
from sim.profile.checks import check_profile
from sim.profile.errors import ProfileError
from sim.profile.record import assemble
from sim.profile.statuses import SCHEMA_VERSION

Profile = Mapping[str, Any]


class MixedProfilesError(ProfileError):
    """Profiles whose sum would mean nothing; the message names two of them and how they differ."""


def merge_profiles(profiles: Sequence[Profile], names: Sequence[str]) -> dict[str, Any]:
    """The sum of runs on the same machine under the same issue policy.

    Vocabulary and origin of the tags must be the same too. Pairs are added by their numbers. Of the
    classification, labels add up and terms are united; the region counts as terminated when it is
    in every program, and the trailing stage is that of the last program. Different engines are
    joined, since they agree on every count; so are different notes.

    Args:
        profiles: of version 5, checked.
        names: one per profile, for messages.

    Raises:
        MixedProfilesError: two profiles differ in what the sum must not mix.
        ProfileError: no profile, or one without the fields of version 5.
    """
    if not profiles:
        raise ProfileError("nothing to merge: name at least one profile")
    for name, profile in zip(names, profiles, strict=True):
        if profile["schema_version"] != SCHEMA_VERSION:
            raise ProfileError(
                f"{name}: schema version {profile['schema_version']} does not say on which "
                f"machine it was made; only version {SCHEMA_VERSION} can be merged"
            )
        _same_kind(names[0], profiles[0], name, profile)
    labels = list(profiles[0]["stages"])
    pairs = sorted({int(pair) for profile in profiles for pair in profile["pairs"]})
    merged = assemble(
        stages={
            label: Amounts.total(Amounts.of_fields(p["stages"][label]) for p in profiles)
            for label in labels
        },
        pairs={pair: _pair([p["pairs"].get(str(pair)) for p in profiles]) for pair in pairs},
        period_picos=profiles[0]["period_picos"],
        simulation_picos=sum(profile["total_simulation_picos"] for profile in profiles),
        classification=_classification([profile["classification"] for profile in profiles]),
        dispatch=_dispatch([profile["dispatch"] for profile in profiles]),
    )
    check_profile(merged)
    return merged


def _same_kind(first_name: str, first: Profile, name: str, profile: Profile) -> None:
    for what, of in (
        ("vocabulary", lambda p: list(p["stages"])),
        ("configuration digest", lambda p: p["dispatch"]["config"]["digest"]),
        ("issue policy", lambda p: p["dispatch"]["issue_policy"]),
        ("origin of tags", lambda p: p["classification"]["stage_attribution"]),
    ):
        if of(first) != of(profile):
            config = [p["dispatch"]["config"]["name"] for p in (first, profile)]
            raise MixedProfilesError(
                f"cannot merge {first_name} and {name}: {what} {of(first)} (configuration "
                f"{config[0]!r}) and {of(profile)} (configuration {config[1]!r})"
            )


def _pair(entries: Sequence[Profile | None]) -> dict[str, Amounts]:
    found = [entry["stages"] for entry in entries if entry is not None]
    labels = dict.fromkeys(label for stages in found for label in stages)
    return {
        label: Amounts.total(
            Amounts.of_fields(stages[label]) for stages in found if label in stages
        )
        for label in labels
    }


def _united(lists: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(item for items in lists for item in items))


def _classification(parts: Sequence[Profile]) -> dict[str, Any]:
    labels = sum(part["label_count"] for part in parts)
    unclassified = sum(part["unclassified_labels"] for part in parts)
    present = {term for part in parts for term in part["vocabulary_terms_present"]}
    known = [p[f"vocabulary_terms_{kind}"] for p in parts for kind in ("present", "absent")]
    terms = _united([LEGACY_TERMS, *known])
    notes = _united([[part["attribution_notes"]["shared_vs_routed"]] for part in parts])
    return {
        **parts[-1],  # trailing stage and labels
        "routed_moe_markers_present": any(part["routed_moe_markers_present"] for part in parts),
        "label_count": labels,
        "unclassified_labels": unclassified,
        "unclassified_fraction": fraction(unclassified, labels),
        "attribution_notes": {"shared_vs_routed": " / ".join(notes)},
        "moe_region_terminated": all(part["moe_region_terminated"] for part in parts),
        "unresolved_stage_markers": _united([p["unresolved_stage_markers"] for p in parts]),
        "vocabulary_terms_total": len(terms),
        "vocabulary_terms_present": [term for term in terms if term in present],
        "vocabulary_terms_absent": [term for term in terms if term not in present],
        "pair_id_terms_present": _united([part["pair_id_terms_present"] for part in parts]),
        "stage_instruction_counts": _sum([part["stage_instruction_counts"] for part in parts]),
    }


def _dispatch(parts: Sequence[Profile]) -> dict[str, Any]:
    return {
        **parts[0],
        "engine": ", ".join(_united([part["engine"].split(", ") for part in parts])),
        "runs": sum(part["runs"] for part in parts),
        "total_overlap_cycles": sum(part["total_overlap_cycles"] for part in parts),
        "stages": _sum([part["stages"] for part in parts]),
    }


def _sum(parts: Sequence[Any]) -> Any:
    """Numbers added, member by member of objects with the same members."""
    if isinstance(parts[0], Mapping):
        return {name: _sum([part[name] for part in parts]) for name in parts[0]}
    return sum(parts)
