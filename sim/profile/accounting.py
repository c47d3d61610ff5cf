"""The accounting identities of a run, checked on its counters whenever a profile is built."""

from collections.abc import Mapping, Sequence

from isa.opcodes import Unit
from isa.stages import Stage
from rtl.profile import COUNTERS
from sim.hbm import BEAT_BYTES
from sim.profile.errors import ProfileError, ProfileInvariantError

ALL_STAGES = "all stages"

#: Counter names by what they count; short names are those of the profile.
COMPLETED: dict[str, str] = {
    name.removeprefix("completed_"): name for name in COUNTERS if name.startswith("completed_")
}
STALLS: dict[str, str] = {
    name.removeprefix("stall_"): name for name in COUNTERS if name.startswith("stall_")
}
BUSY: dict[str, str] = {unit.name.lower(): f"busy_{unit.name.lower()}" for unit in Unit}

Counters = Mapping[str, Sequence[int]]


def check_shape(counters: Counters, hbm_read: Sequence[int], hbm_written: Sequence[int]) -> None:
    """Refuse counters that are not those of `rtl.profile.COUNTERS`, one number per stage.

    Raises:
        ProfileError: a counter is missing or unknown, has another length, or holds no count.
    """
    missing, unknown = COUNTERS.keys() - counters.keys(), counters.keys() - COUNTERS.keys()
    if missing or unknown:
        raise ProfileError(
            f"counters: missing {sorted(missing)}, unknown {sorted(unknown)}; "
            "pass exactly those of rtl.profile.COUNTERS"
        )
    columns = {**counters, "hbm_bytes_read": hbm_read, "hbm_bytes_written": hbm_written}
    for name, values in columns.items():
        if len(values) != len(Stage):
            raise ProfileError(
                f"{name}: {len(values)} values for {len(Stage)} stages; pass one each"
            )
        for stage, value in zip(Stage, values, strict=True):
            if type(value) is not int or value < 0:
                raise ProfileError(
                    f"{name}[{stage.label}] = {value!r}: must be an integer from 0 on"
                )


def completed(counters: Counters) -> list[int]:
    """Instructions that completed, on whatever port, per stage."""
    return [sum(values) for values in zip(*(counters[n] for n in COMPLETED.values()), strict=True)]


def check_run(
    counters: Counters,
    *,
    cycles: int,
    overlap_cycles: int,
    hbm_read: Sequence[int],
    hbm_written: Sequence[int],
    done: bool,
) -> None:
    """Check every identity between the counters, the run's length and the HBM device.

    - wall_cycles_equal_total: the wall cycles of all stages add up to `cycles`
    - dispatched_equal_completed: per stage, when the run is `done`
    - completed_within_dispatched: per stage, in any run
    - dispatch_slots_equal_total: a cycle dispatches or stalls, for one reason
    - busy_within_total: no unit, nor the multipliers, is busy longer than the run
    - overlap_within_total: cycles with two or more busy units, likewise
    - hbm_bytes_equal_device: per stage, beats counted in hardware are the bytes the device counted

    Raises:
        ProfileInvariantError: the first one that does not hold.
    """
    _equal("wall_cycles_equal_total", ALL_STAGES, sum(counters["wall"]), "wall cycles", cycles)
    finished = completed(counters)
    for stage, went, came in zip(Stage, counters["dispatched"], finished, strict=True):
        if done and went != came:
            raise ProfileInvariantError(
                "dispatched_equal_completed", stage.label, went, "dispatched", came, "completed"
            )
        if came > went:
            raise ProfileInvariantError(
                "completed_within_dispatched", stage.label, came, "completed", went, "dispatched"
            )
    slots = sum(counters["dispatched"]) + sum(sum(counters[name]) for name in STALLS.values())
    _equal("dispatch_slots_equal_total", ALL_STAGES, slots, "dispatches and stalls", cycles)
    for name in (*BUSY.values(), "multipliers"):
        _within("busy_within_total", sum(counters[name]), f"cycles of {name}", cycles)
    _within("overlap_within_total", overlap_cycles, "overlap cycles", cycles)
    for name, device in (("hbm_reads", hbm_read), ("hbm_writes", hbm_written)):
        for stage, beats, counted in zip(Stage, counters[name], device, strict=True):
            if beats * BEAT_BYTES != counted:
                raise ProfileInvariantError(
                    "hbm_bytes_equal_device",
                    stage.label,
                    beats * BEAT_BYTES,
                    f"bytes by the hardware counter {name}",
                    counted,
                    "bytes by the device",
                )


def _equal(invariant: str, stage: str, found: int, found_is: str, cycles: int) -> None:
    if found != cycles:
        raise ProfileInvariantError(invariant, stage, found, found_is, cycles, "cycles of the run")


def _within(invariant: str, found: int, found_is: str, cycles: int) -> None:
    if found > cycles:
        raise ProfileInvariantError(
            invariant, ALL_STAGES, found, found_is, cycles, "cycles of the run"
        )
