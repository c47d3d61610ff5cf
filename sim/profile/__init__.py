"""The stage profile of a run: made, checked, kept, shown, compared.

The format is that of attribution.md, "stage_profile.json".
"""

from sim.profile.branches import BranchSplit, branch_split
from sim.profile.checks import check_profile
from sim.profile.coverage import coverage_warning
from sim.profile.difference import StageDelta, diff_profiles
from sim.profile.errors import ProfileError, ProfileInvariantError, RemovedFieldError
from sim.profile.merge import MixedProfilesError, merge_profiles
from sim.profile.pairs import PairCounts, PairStats, pair_stats
from sim.profile.record import build_profile
from sim.profile.schema import SCHEMA, SCHEMA_V4
from sim.profile.storage import ProfileObject, read_profile, write_profile
from sim.profile.tables import report_console, stage_table, stall_table

__all__ = [
    "SCHEMA",
    "SCHEMA_V4",
    "BranchSplit",
    "MixedProfilesError",
    "PairCounts",
    "PairStats",
    "ProfileError",
    "ProfileInvariantError",
    "ProfileObject",
    "RemovedFieldError",
    "StageDelta",
    "branch_split",
    "build_profile",
    "check_profile",
    "coverage_warning",
    "diff_profiles",
    "merge_profiles",
    "pair_stats",
    "read_profile",
    "report_console",
    "stage_table",
    "stall_table",
    "write_profile",
]
