"""Profiles as tables for a person."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from sim.profile.accounting import BUSY, STALLS
from sim.profile.amounts import fraction
from sim.profile.difference import StageDelta

Profile = Mapping[str, Any]

#: Columns that every table is made for, and the width of output that is no terminal.
WIDTH = 120

_SUFFIXES = ("", "k", "M", "G", "T", "P", "E")
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def report_console(file: TextIO | None = None) -> Console:
    """A console for tables: plain text of `WIDTH` columns when `file` (stdout) is no terminal."""
    target = sys.stdout if file is None else file
    width = None if target.isatty() else WIDTH
    return Console(file=target, width=width, highlight=False, markup=False, emoji=False)


def stage_table(profile: Profile) -> Table:
    """Per stage: cycles, share, instructions, HBM bytes, busy cycles per unit; then the totals.

    Cycles and totals are exact. A profile of version 4 has no busy cycles.
    """
    units = list(BUSY) if "dispatch" in profile else []
    title = f"{profile['total_simulation_cycles']} cycles"
    if units:
        dispatch = profile["dispatch"]
        title += (
            f", configuration {dispatch['config']['name']}, engine {dispatch['engine']}, "
            f"issue {dispatch['issue_policy']}, two or more units busy in "
            f"{dispatch['total_overlap_cycles']}"
        )
    heads = ["cycles", "share", "instr", "HBM\nread", "HBM\nwritten"]
    table = _table(title, heads + [f"busy\n{unit}" for unit in units])
    for label, stage in profile["stages"].items():
        busy = [profile["dispatch"]["stages"][label]["busy_cycles"][unit] for unit in units]
        table.add_row(
            label,
            str(stage["wall_cycles"]),
            share(stage["time_fraction"]),
            short_count(stage["instructions"]),
            short_bytes(stage["physical_hbm_bytes_read"]),
            short_bytes(stage["physical_hbm_bytes_written"]),
            *map(short_count, busy),
        )
    table.add_section()
    total_busy = _column_sums(profile, "busy_cycles", units)
    table.add_row(
        "total",
        str(profile["total_profiled_cycles"]),
        share(1.0 if profile["total_profiled_picos"] else 0.0),
        short_count(profile["total_instructions_executed"]),
        short_bytes(profile["total_hbm_bytes_read"]),
        short_bytes(profile["total_hbm_bytes_written"]),
        *map(short_count, total_busy),
    )
    return table


def stall_table(profile: Profile) -> Table:
    """Per stage: dispatches, stalls by reason, and busy cycles of the multipliers; version 5.

    A stall belongs to the stage of the instruction that waits, so rows do not add up to a stage's
    cycles; all dispatches and stalls together are the cycles of the run.
    """
    reasons = list(STALLS)
    names = [reason.replace("_", " ") for reason in reasons]
    heads = ["dispatched", "completed", *(f"stall\n{name}" for name in names), "multi-\npliers"]
    table = _table("dispatches and stalls", heads)
    entries = profile["dispatch"]["stages"]
    for label, entry in entries.items():
        stalls = [entry["stall_cycles"][reason] for reason in reasons]
        numbers = [entry["dispatched"], entry["completed"], *stalls, entry["multiplier_cycles"]]
        table.add_row(label, *map(short_count, numbers))
    table.add_section()
    sums = [sum(entry[name] for entry in entries.values()) for name in ("dispatched", "completed")]
    sums += _column_sums(profile, "stall_cycles", reasons)
    sums.append(sum(entry["multiplier_cycles"] for entry in entries.values()))
    table.add_row("total", *map(short_count, sums))
    return table


def pair_table(profile: Profile, most: int) -> Table:
    """The routed pairs that cost the most cycles, at most `most` of them, with their dearest stage.

    Cycles that a pair's work hides behind older instructions are billed to those.
    """
    pairs = profile["pairs"]
    order = sorted(pairs, key=lambda pair: (-pairs[pair]["wall_picos"], int(pair)))
    title = f"routed pairs: {len(pairs)}"
    if len(pairs) > most:
        title += f", the {most} that cost the most cycles"
    table = _table(title, ["cycles", "share", "instr", "HBM\nread", "HBM\nwritten", "most in"])
    table.columns[0].header, table.columns[-1].justify = "pair", "left"
    for pair in order[:most]:
        entry = pairs[pair]
        stages = entry["stages"]
        dearest = max(stages, key=lambda label: stages[label]["wall_picos"])
        table.add_row(
            pair,
            str(entry["wall_cycles"]),
            share(entry["time_fraction"]),
            short_count(entry["instructions"]),
            short_bytes(entry["physical_hbm_bytes_read"]),
            short_bytes(entry["physical_hbm_bytes_written"]),
            f"{dearest} {share(fraction(stages[dearest]['wall_picos'], entry['wall_picos']))}",
        )
    return table


def diff_table(deltas: Sequence[StageDelta]) -> Table:
    """Per stage: picoseconds before and after, the change, and what moved with it."""
    table = _table("picoseconds per stage", ["before", "after", "change", "", "what moved"])
    table.columns[-1].justify = "left"
    table.columns[-1].no_wrap = False
    for delta in deltas:
        moved = ", ".join(f"{name} {change:+d}" for name, change in delta.moved)
        table.add_row(delta.label, *_change(delta.before_picos, delta.after_picos), moved)
    table.add_section()
    before = sum(delta.before_picos for delta in deltas)
    after = sum(delta.after_picos for delta in deltas)
    table.add_row("total", *_change(before, after), "")
    return table


def _change(before: int, after: int) -> list[str]:
    ratio = f"{fraction(after - before, before):+.1%}" if before else ("new" if after else "")
    return [str(before), str(after), f"{after - before:+d}", ratio if before != after else ""]


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("stage", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", overflow="fold")
    return table


def _column_sums(profile: Profile, group: str, names: Sequence[str]) -> list[int]:
    if not names:
        return []
    entries = profile["dispatch"]["stages"].values()
    return [sum(entry[group][name] for entry in entries) for name in names]


def share(part: float) -> str:
    """A fraction as a percentage; what is not quite 0 or 1 does not look like it."""
    if 0 < part < 0.0005:
        return "<0.1%"
    if 0.9995 <= part < 1:
        return ">99.9%"
    return f"{part:.1%}"


def short_count(number: int) -> str:
    """A count in 6 characters: exact below a million, then four digits and a suffix."""
    return str(number) if number < 10**6 else _scaled(number, 1000, _SUFFIXES, "")


def short_bytes(number: int) -> str:
    """A number of bytes in 8 characters, in powers of 1024."""
    return _scaled(number, 1024, _BYTE_UNITS, " ")


def _scaled(number: int, base: int, suffixes: Sequence[str], gap: str) -> str:
    power = 0
    while power < len(suffixes) - 1 and number >= base ** (power + 1):
        power += 1
    value = number / base**power
    digits = 0 if power == 0 else max(3 - len(str(int(value))), 0)
    return f"{value:.{digits}f}{gap}{suffixes[power]}"
