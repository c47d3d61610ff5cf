"""Routed pairs in the profile: what the instructions under each pair label cost, per stage."""

from collections.abc import Mapping
from typing import TypedDict

import numpy as np

from isa.image import ProgramImage
from isa.opcodes import Unit
from isa.stages import Stage
from sim.hbm import BEAT_BYTES
from sim.pc_accounts import PcAccounts
from sim.profile.accounting import BUSY, Counters, completed
from sim.profile.amounts import Amounts, proxies_of
from sim.profile.errors import ProfileError, ProfileInvariantError


class PairCounts(TypedDict):
    """What one routed pair cost in one stage; `busy_cycles` by the name of each unit."""

    instructions: int
    wall_cycles: int
    hbm_bytes_read: int
    hbm_bytes_written: int
    busy_cycles: Mapping[str, int]


PairStats = Mapping[int, Mapping[str, PairCounts]]


def pair_stats(image: ProgramImage, accounts: PcAccounts, counters: Counters) -> PairStats:
    """The counts of every pair that the program labels and that ran, from the accounts by pc.

    Raises:
        ProfileInvariantError: the accounts of a stage are not what the hardware counted for it
            (accounts_equal_counters).
    """
    _check(image, accounts, counters)
    labelled = np.flatnonzero(image.pairs >= 0)
    keys = image.pairs[labelled].astype(np.int64) * len(Stage) + image.stages[labelled]
    found, group = np.unique(keys, return_inverse=True)
    groups = np.full(len(image), len(found), np.int64)
    groups[labelled] = group
    sums = {name: s.tolist() for name, s in accounts.by(groups, len(found) + 1).items()}
    stats: dict[int, dict[str, PairCounts]] = {}
    for i, key in enumerate(found.tolist()):
        if not any(column[i] for column in sums.values()):
            continue
        pair, stage = divmod(key, len(Stage))
        stats.setdefault(pair, {})[Stage(stage).label] = PairCounts(
            instructions=sums["completed"][i],
            wall_cycles=sums["wall"][i],
            hbm_bytes_read=sums["read"][i],
            hbm_bytes_written=sums["written"][i],
            busy_cycles={unit: sums[name][i] for unit, name in BUSY.items()},
        )
    return stats


def _check(image: ProgramImage, accounts: PcAccounts, counters: Counters) -> None:
    sums = accounts.by(image.stages, len(Stage))
    hardware = {
        "wall": counters["wall"],
        "completed": completed(counters),
        "read": [beats * BEAT_BYTES for beats in counters["hbm_reads"]],
        "written": [beats * BEAT_BYTES for beats in counters["hbm_writes"]],
        **{name: counters[name] for name in BUSY.values()},
    }
    for name, counted in hardware.items():
        for stage in Stage:
            found = int(sums[name][stage])
            if found != counted[stage]:
                raise ProfileInvariantError(
                    "accounts_equal_counters",
                    stage.label,
                    found,
                    f"{name} by events",
                    counted[stage],
                    "by hardware counter",
                )


def pair_amounts(
    stats: PairStats, stages: Mapping[str, Amounts], period: int
) -> dict[int, dict[str, Amounts]]:
    """The amounts of `stats`; `stages` are those of whole stages, which bound their pairs.

    Raises:
        ProfileError: a pair is not an integer from 0 on, or a stage is unknown.
        ProfileInvariantError: the pairs of a stage have more of something than the stage
            (pairs_within_stage).
    """
    pairs: dict[int, dict[str, Amounts]] = {}
    for pair, parts in stats.items():
        if type(pair) is not int or pair < 0:
            raise ProfileError(f"pair_stats: pair {pair!r}: must be an integer from 0 on")
        for label, counts in parts.items():
            if label not in stages:
                raise ProfileError(
                    f"pair_stats[{pair}]: {label!r} is not a stage of the vocabulary"
                )
            busy = {unit: counts["busy_cycles"][unit.name.lower()] * period for unit in Unit}
            pairs.setdefault(pair, {})[label] = Amounts(
                instructions=counts["instructions"],
                wall_picos=counts["wall_cycles"] * period,
                hbm_read=counts["hbm_bytes_read"],
                hbm_written=counts["hbm_bytes_written"],
                proxies=proxies_of(busy),
            )
    for label, whole in stages.items():
        inside = Amounts.total(parts[label] for parts in pairs.values() if label in parts)
        for name, found, limit in _measures(inside, whole):
            if found > limit:
                raise ProfileInvariantError(
                    "pairs_within_stage",
                    label,
                    found,
                    f"{name} of all pairs",
                    limit,
                    "of the stage",
                )
    return pairs


def _measures(inside: Amounts, whole: Amounts) -> list[tuple[str, int, int]]:
    names = ("instructions", "wall_picos", "hbm_read", "hbm_written")
    measures = [(name, getattr(inside, name), getattr(whole, name)) for name in names]
    for name, found in inside.proxies.items():
        measures.append((f"{name} picoseconds", found, whole.proxies[name]))
    return measures
