"""Whether a document is a valid profile: its version, its schema, and what a schema cannot say."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from isa.stages import Stage
from sim.profile.accounting import ALL_STAGES
from sim.profile.amounts import cycles_of
from sim.profile.errors import (
    REMOVED_FIELDS,
    ProfileError,
    ProfileInvariantError,
    RemovedFieldError,
)
from sim.profile.schema import OLDEST_VERSION, SCHEMA, SCHEMA_V4
from sim.profile.statuses import SCHEMA_VERSION, accounting_status


@cache
def _validator(version: int) -> Draft202012Validator:
    return Draft202012Validator(SCHEMA if version == SCHEMA_VERSION else SCHEMA_V4)


def check_profile(profile: Mapping[str, Any]) -> None:
    """Check a profile of version 4 or 5: removed fields, schema, and for version 5 its sums.

    Raises:
        RemovedFieldError: a field that version 3 removed is there.
        ProfileInvariantError: figures that must agree do not; both are named.
        ProfileError: another version, or what the schema refuses, with the path to it.
    """
    for name in _names(profile):
        if name in REMOVED_FIELDS:
            raise RemovedFieldError(name, REMOVED_FIELDS[name])
    version = profile.get("schema_version")
    if type(version) is not int or version not in (OLDEST_VERSION, SCHEMA_VERSION):
        raise ProfileError(
            f"schema_version {version!r}: only {OLDEST_VERSION} and {SCHEMA_VERSION} can be read; "
            "run the program again for a profile of this version"
        )
    error = best_match(_validator(version).iter_errors(profile))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path) or "the profile"
        raise ProfileError(f"{where}: {error.message} (schema version {version})")
    if version == SCHEMA_VERSION:
        _check_order(profile)
        _check_sums(profile)


def _names(value: Any) -> Iterator[str]:
    """The names of all members of all objects."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield name
            yield from _names(member)


def _check_order(profile: Mapping[str, Any]) -> None:
    vocabulary = [stage.label for stage in Stage]
    for where, stages in (
        ("stages", profile["stages"]),
        ("dispatch", profile["dispatch"]["stages"]),
    ):
        if list(stages) != vocabulary:
            raise ProfileError(f"{where}: stages must be in the order {', '.join(vocabulary)}")
    pairs = [int(pair) for pair in profile["pairs"]]
    if pairs != sorted(pairs):
        raise ProfileError("pairs: must be in numeric order")


def _check_sums(profile: Mapping[str, Any]) -> None:
    stages, dispatch = profile["stages"], profile["dispatch"]
    for field, total in (
        ("wall_picos", "total_profiled_picos"),
        ("instructions", "total_instructions_executed"),
        ("physical_hbm_bytes_read", "total_hbm_bytes_read"),
        ("physical_hbm_bytes_written", "total_hbm_bytes_written"),
    ):
        found = sum(stage[field] for stage in stages.values())
        _equal(f"{field}_add_up", ALL_STAGES, found, field, profile[total], total)
    period = profile["period_picos"]
    for label, stage in stages.items():
        picos, cycles = stage["wall_picos"], stage["wall_cycles"]
        _equal(
            "cycles_view_picos", label, cycles, "wall_cycles", cycles_of(picos, period), "by picos"
        )
        done = dispatch["stages"][label]["completed"]
        _equal(
            "instructions_completed",
            label,
            stage["instructions"],
            "instructions",
            done,
            "completed",
        )
        counted = profile["classification"]["stage_instruction_counts"][label]
        _equal(
            "instructions_counted", label, stage["instructions"], "instructions", counted, "counted"
        )
    status = accounting_status(profile["total_profiled_picos"], profile["total_simulation_picos"])
    if profile["cycle_accounting_status"] != status:
        raise ProfileError(
            f"cycle_accounting_status {profile['cycle_accounting_status']!r}: "
            f"the totals say {status!r}"
        )
    cycles = profile["total_simulation_cycles"]
    slots = sum(
        entry["dispatched"] + sum(entry["stall_cycles"].values())
        for entry in dispatch["stages"].values()
    )
    _equal(
        "dispatch_slots_equal_total", ALL_STAGES, slots, "dispatches and stalls", cycles, "cycles"
    )


def _equal(
    invariant: str, stage: str, found: int, found_is: str, expected: int, expected_is: str
) -> None:
    if found != expected:
        raise ProfileInvariantError(invariant, stage, found, found_is, expected, expected_is)
