"""The published format of a stage profile as JSON Schemas, one per version that is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from isa.config import ISSUE_POLICIES
from isa.image_schema import TAG_ORIGINS
from isa.stages import Stage
from sim.profile.accounting import BUSY, COMPLETED, STALLS
from sim.profile.amounts import PROXIES
from sim.profile.statuses import ACCOUNTING_STATUSES, ATTRIBUTION_POINT, SCHEMA_VERSION

OLDEST_VERSION = 4

Json = dict[str, Any]

_COUNT: Json = {"type": "integer", "minimum": 0}
_COUNT_OR_NULL: Json = {"type": ["integer", "null"], "minimum": 0}
_SECONDS: Json = {"type": "number", "minimum": 0}
_SHARE: Json = {"type": "number", "minimum": 0, "maximum": 1}
_TEXT: Json = {"type": "string", "minLength": 1}
_TEXTS: Json = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
_NULL: Json = {"type": "null"}
_FLAG: Json = {"type": "boolean"}


def _object(properties: Mapping[str, Json], *, exact: bool) -> Json:
    """An object that has all of `properties`; and, when `exact`, nothing else."""
    found: Json = {"type": "object", "required": list(properties), "properties": dict(properties)}
    return {**found, "additionalProperties": False} if exact else found


def _each(names: Sequence[str], value: Json) -> Json:
    return _object(dict.fromkeys(names, value), exact=True)


def _amounts(*, exact: bool) -> dict[str, Json]:
    """The fields of a stage or pair."""
    proxies = _object(dict.fromkeys(PROXIES, _COUNT), exact=exact)
    return {
        "instructions": _COUNT,
        "wall_picos": _COUNT,
        "wall_cycles": _COUNT,
        "seconds": _SECONDS,
        "instruction_fraction": _SHARE,
        "time_fraction": _SHARE,
        "logical_bytes_read": _NULL,
        "logical_bytes_written": _NULL,
        "physical_hbm_bytes_read": _COUNT,
        "physical_hbm_bytes_written": _COUNT,
        "hbm_bytes_read": _COUNT,
        "hbm_bytes_written": _COUNT,
        "resource_proxy_picos": proxies,
        "resource_proxy_cycles": proxies,
    }


def _top(*, exact: bool) -> dict[str, Json]:
    """The fields that both versions have at the top, but for those that differ."""
    proxies = _object(dict.fromkeys(PROXIES, _COUNT), exact=exact)
    return {
        "label_count": _COUNT,
        "total_instructions_executed": _COUNT,
        "total_simulation_picos": _COUNT if exact else _COUNT_OR_NULL,
        "total_simulation_cycles": _COUNT if exact else _COUNT_OR_NULL,
        "total_profiled_picos": _COUNT,
        "total_profiled_cycles": _COUNT,
        "total_unprofiled_picos": _COUNT,
        "total_unprofiled_cycles": _COUNT,
        "cycle_accounting_status": {"enum": list(ACCOUNTING_STATUSES)},
        "period_picos": {"type": "integer", "minimum": 1},
        "total_profiled_seconds": _SECONDS,
        "total_hbm_bytes_read": _COUNT,
        "total_hbm_bytes_written": _COUNT,
        "total_resource_proxy_picos": proxies,
        "total_resource_proxy_cycles": proxies,
        "logical_byte_status": _TEXT,
        "physical_byte_status": _TEXT,
        "resource_cycle_status": _TEXT,
        "time_unit_status": _TEXT,
        "caveat": _TEXT,
    }


_CLASSIFICATION = _object(
    {
        "routed_moe_markers_present": _FLAG,
        "label_count": _COUNT,
        "unclassified_labels": _COUNT,
        "unclassified_fraction": _SHARE,
        "stage_attribution": {"enum": list(TAG_ORIGINS)},
        "attribution_notes": _object({"shared_vs_routed": _TEXT}, exact=True),
        "moe_region_terminated": _FLAG,
        "trailing_stage": {"enum": [stage.label for stage in Stage]},
        "trailing_labels": _COUNT,
        "unresolved_stage_markers": _TEXTS,
        "vocabulary_terms_total": _COUNT,
        "vocabulary_terms_present": _TEXTS,
        "vocabulary_terms_absent": _TEXTS,
        "pair_id_terms_present": _TEXTS,
        "stage_instruction_counts": _each([stage.label for stage in Stage], _COUNT),
    },
    exact=True,
)

_DISPATCH = _object(
    {
        "attribution_point": {"const": ATTRIBUTION_POINT},
        "engine": _TEXT,
        "config": _object(
            {"name": _TEXT, "digest": _TEXT, "fields": {"type": "object"}}, exact=True
        ),
        "issue_policy": {"enum": list(ISSUE_POLICIES)},
        "runs": {"type": "integer", "minimum": 1, "description": "1, or how many were merged"},
        "total_overlap_cycles": {**_COUNT, "description": "cycles with two or more busy units"},
        "stages": _each(
            [stage.label for stage in Stage],
            _object(
                {
                    "dispatched": _COUNT,
                    "completed": _COUNT,
                    "completed_by_port": _each(list(COMPLETED), _COUNT),
                    "busy_cycles": _each(list(BUSY), _COUNT),
                    "multiplier_cycles": _COUNT,
                    "stall_cycles": _each(list(STALLS), _COUNT),
                },
                exact=True,
            ),
        ),
    },
    exact=True,
)

_PAIR_AMOUNTS = _amounts(exact=True)

#: Version 5, exactly: a field more is a new version.
SCHEMA: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "plena.stage_profile.v5",
    **_object(
        {
            "schema_version": {"const": SCHEMA_VERSION},
            **_top(exact=True),
            "classification": _CLASSIFICATION,
            "stages": _each(
                [stage.label for stage in Stage],
                _object(_amounts(exact=True), exact=True),
            ),
            "pairs": {
                "type": "object",
                "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"},
                "additionalProperties": _object(
                    {
                        **_PAIR_AMOUNTS,
                        "stages": {
                            "type": "object",
                            "propertyNames": {"enum": [stage.label for stage in Stage]},
                            "additionalProperties": _object(_PAIR_AMOUNTS, exact=True),
                        },
                    },
                    exact=True,
                ),
            },
            "dispatch": _DISPATCH,
        },
        exact=True,
    ),
}

#: Version 4 as its consumers read it: stages of any vocabulary, and room for fields of its own.
SCHEMA_V4: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "plena.stage_profile.v4",
    **_object(
        {
            "schema_version": {"const": OLDEST_VERSION},
            **_top(exact=False),
            "classification": {"type": "object"},
            "stages": {
                "type": "object",
                "additionalProperties": _object(_amounts(exact=False), exact=False),
            },
            "pairs": {"type": "object"},
        },
        exact=False,
    ),
}
