"""The difference of two profiles."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Profile = Mapping[str, Any]


@dataclass(frozen=True)
class StageDelta:
    """A stage in two profiles.

    `moved` names the counts that differ, with their change: instructions and bytes, then cycles,
    largest first.
    """

    label: str
    before_picos: int
    after_picos: int
    moved: tuple[tuple[str, int], ...]

    @property
    def delta_picos(self) -> int:
        """Positive when the stage takes longer in the second profile."""
        return self.after_picos - self.before_picos

    @property
    def changed(self) -> bool:
        """Whether anything in the stage differs."""
        return bool(self.delta_picos or self.moved)


def diff_profiles(before: Profile, after: Profile) -> list[StageDelta]:
    """The stages of both profiles, in the order of the first.

    A stage that only one of them has counts as 0 in the other. Busy, stall and multiplier cycles
    are compared when both profiles have them (version 5).
    """
    deltas = []
    for label in dict.fromkeys([*before["stages"], *after["stages"]]):
        old, new = (p["stages"].get(label, {}) for p in (before, after))
        moved = _changes(_counts(old), _counts(new))
        if "dispatch" in before and "dispatch" in after:
            old_cycles, new_cycles = (
                _cycles(p["dispatch"]["stages"].get(label)) for p in (before, after)
            )
            moved += sorted(_changes(old_cycles, new_cycles), key=lambda change: -abs(change[1]))
        deltas.append(
            StageDelta(label, old.get("wall_picos", 0), new.get("wall_picos", 0), tuple(moved))
        )
    return deltas


def differences_in_kind(before: Profile, after: Profile) -> list[str]:
    """Why the two are not the same experiment: what differs, with both values."""
    found = []
    for what, path in (
        ("schema version", ("schema_version",)),
        ("clock period in ps", ("period_picos",)),
        ("configuration", ("dispatch", "config", "name")),
        ("configuration digest", ("dispatch", "config", "digest")),
        ("issue policy", ("dispatch", "issue_policy")),
        ("engine", ("dispatch", "engine")),
        ("runs", ("dispatch", "runs")),
        ("origin of tags", ("classification", "stage_attribution")),
    ):
        old, new = _at(before, path), _at(after, path)
        if old != new:
            found.append(f"{what}: {old} and {new}")
    if set(before["stages"]) != set(after["stages"]):
        only = sorted(set(before["stages"]) ^ set(after["stages"]))
        found.append(f"vocabulary: only one of them has {', '.join(only)}")
    return found


def _at(profile: Profile, path: tuple[str, ...]) -> Any:
    value: Any = profile
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _changes(old: Mapping[str, int], new: Mapping[str, int]) -> list[tuple[str, int]]:
    changes = [(name, new.get(name, 0) - old.get(name, 0)) for name in {**old, **new}]
    return [(name, change) for name, change in changes if change]


def _counts(stage: Mapping[str, Any]) -> dict[str, int]:
    return {
        "instructions": stage.get("instructions", 0),
        "HBM bytes read": stage.get("physical_hbm_bytes_read", 0),
        "HBM bytes written": stage.get("physical_hbm_bytes_written", 0),
    }


def _cycles(entry: Mapping[str, Any] | None) -> dict[str, int]:
    if entry is None:
        return {}
    return {
        **{f"busy {unit}": cycles for unit, cycles in entry["busy_cycles"].items()},
        **{f"stall {reason}": cycles for reason, cycles in entry["stall_cycles"].items()},
        "multipliers": entry["multiplier_cycles"],
    }
