"""What can be wrong with a profile; every message names the place, both values and the way out."""


class ProfileError(ValueError):
    """A profile that cannot be made, read or combined."""


class ProfileInvariantError(ProfileError):
    """Two counts that must agree do not: the machine or its accounting is wrong, not the program.

    `invariant` is its name, `stage` a stage's label or "all stages", `found` and `expected` the two
    numbers.
    """

    def __init__(
        self, invariant: str, stage: str, found: int, found_is: str, expected: int, expected_is: str
    ) -> None:
        super().__init__(
            f"{invariant}: {stage}: {found} {found_is}, but {expected} {expected_is} "
            f"(difference {found - expected:+d})"
        )
        self.invariant = invariant
        self.stage = stage
        self.found = found
        self.expected = expected


class RemovedFieldError(ProfileError):
    """A field that schema version 3 removed; what to read instead is in the message."""

    def __init__(self, field: str, instead: str) -> None:
        super().__init__(
            f"{field} was removed from the stage profile in schema version 3; {instead}"
        )
        self.field = field


#: Fields that stay removed, and what to read instead.
REMOVED_FIELDS: dict[str, str] = {
    "total_stage_wall_cycles": "read total_profiled_picos (exact) or total_profiled_cycles",
    "cycle_fraction": "read time_fraction of the stage",
    "ramulator_proxy": "read dma of the same object",
}
