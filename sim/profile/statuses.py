"""What the profile says about itself: its version, and how to read each kind of number."""

SCHEMA_VERSION = 5
ATTRIBUTION_POINT = "hardware_dispatch_tag"

MATCHES = "profiled_time_matches_total"
DIFFERS = "profiled_time_does_not_match_total"
UNSET = "total_simulation_time_unset"
ACCOUNTING_STATUSES = (MATCHES, DIFFERS, UNSET)

LOGICAL_BYTE_STATUS = (
    "not measured: the machine sees beats; derive logical bytes from shapes and routing"
)
PHYSICAL_BYTE_STATUS = (
    "measured: 64 bytes for each beat that the HBM device accepted, in the stage of the "
    "instruction that asked for it; equal to the device's own counters"
)
RESOURCE_CYCLE_STATUS = (
    "measured: busy time of the unit (an instruction is unfinished in it), in the stage of the "
    "unit's oldest instruction; vector includes the top-k unit, dma is the HBM port, other is "
    "control. Units overlap, so the buckets of a stage need not add up to its wall time"
)
TIME_UNIT_STATUS = (
    "picoseconds are exact and add up; cycles are picoseconds over period_picos, each rounded up "
    "for itself: sum picoseconds, never cycles"
)
CAVEAT = (
    "An instruction belongs to the stage of its tag, which travels with its word from the program "
    "image through the hardware. A cycle belongs to the stage of the oldest unfinished "
    "instruction, or of the one at dispatch when none is unfinished, so the stages add up to the "
    "run; work that overlaps an older instruction costs its stage nothing. Instructions are "
    "completed ones. Bytes are whole beats of 64. Pair numbers are slots of the program, not "
    "experts: join them with the routing. The statuses say how each kind of number was obtained; "
    "attribution_notes belong to every comparison of branches."
)


def accounting_status(profiled_picos: int, simulation_picos: int | None) -> str:
    """Whether the stages' time is the run's time; a total of None is one that nobody set."""
    if simulation_picos is None:
        return UNSET
    return MATCHES if profiled_picos == simulation_picos else DIFFERS
