"""Command line: `python -m sim.profile`, with show, diff, merge, counters and schema."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from isa.command import error_text, leave_with
from rtl.profile import COUNTERS
from sim.profile.branches import BranchSplit, branch_split
from sim.profile.coverage import coverage_warning
from sim.profile.difference import diff_profiles, differences_in_kind
from sim.profile.merge import MixedProfilesError, merge_profiles
from sim.profile.schema import SCHEMA
from sim.profile.storage import ProfileObject, read_profile, write_profile
from sim.profile.tables import diff_table, pair_table, report_console, stage_table, stall_table


def build_parser() -> argparse.ArgumentParser:
    """The command line of `python -m sim.profile`."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m sim.profile",
        formatter_class=raw,
        description="Look at the stage profiles that runs leave behind (stage_profile.json).",
        epilog="""\
how to read one:
  a cycle belongs to the stage of the oldest unfinished instruction, so the stages add up to the run
  busy cycles are per unit and overlap: their sum may be more than the run
  a stall belongs to the stage of the instruction that waits

examples:
  python -m sim.profile show build/run/stage_profile.json
  python -m sim.profile diff before.json after.json
  python -m sim.profile merge layer0.json layer1.json -o layers.json

exit code: 0 done; 1 the profiles differ (diff) or must not be added (merge);
2 a file cannot be read or is no valid profile, or the command line is wrong""",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser(
        "show",
        formatter_class=raw,
        help="one profile: cycles, instructions, bytes, busy units and stalls",
        description="Print one profile: where the cycles went, which units worked, what dispatch\n"
        "waited for.",
    )
    show.add_argument("file", metavar="FILE", type=Path, help="a profile of version 4 or 5")
    show.add_argument(
        "--pairs",
        metavar="N",
        type=_count,
        default=10,
        help="the N routed pairs that cost the most, 0 for none (default: 10)",
    )
    show.set_defaults(run=_show)
    diff = commands.add_parser(
        "diff",
        formatter_class=raw,
        help="two profiles: picoseconds per stage, and what moved",
        description="Compare two profiles stage by stage, in picoseconds, which are exact.\n"
        "Exit code 0 when nothing differs, 1 when something does.",
    )
    diff.add_argument("before", metavar="A", type=Path, help="the profile to compare with")
    diff.add_argument("after", metavar="B", type=Path, help="the profile that is compared")
    diff.set_defaults(run=_diff)
    merge = commands.add_parser(
        "merge",
        formatter_class=raw,
        help="the sum of profiles of one machine",
        description="Add profiles of runs on the same configuration under the same issue policy,\n"
        "with the same vocabulary. Others are refused: their sum would mean nothing.",
    )
    merge.add_argument("files", metavar="FILE", type=Path, nargs="+", help="profiles of version 5")
    merge.add_argument(
        "-o", "--output", metavar="OUT", type=Path, required=True, help="the profile to write"
    )
    merge.set_defaults(run=_merge)
    counters = commands.add_parser(
        "counters",
        help="what every hardware counter counts",
        description="List the counters of the machine, each kept per stage.",
    )
    counters.set_defaults(run=_counters)
    schema = commands.add_parser(
        "schema",
        help="the JSON Schema of a profile, for other tools",
        description="Print the JSON Schema (draft 2020-12) that every profile is checked against.",
    )
    schema.set_defaults(run=_schema)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value}: must be at least 0")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except OSError as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
    except MixedProfilesError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
    return 2


def _show(options: argparse.Namespace) -> int:
    profile = read_profile(options.file)
    console = report_console()
    console.print(stage_table(profile))
    if "dispatch" in profile:
        console.print(stall_table(profile))
    if profile["pairs"] and options.pairs:
        console.print(pair_table(profile, options.pairs))
    for line in _notes(profile):
        console.print(line)
    return 0


def _counters(_: argparse.Namespace) -> int:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("counter", no_wrap=True)
    table.add_column("counts")
    for name, what in COUNTERS.items():
        table.add_row(name, what)
    report_console().print(table)
    return 0


def _schema(_: argparse.Namespace) -> int:
    print(json.dumps(SCHEMA, indent=2))
    return 0


def _notes(profile: ProfileObject) -> list[str]:
    """What a reader must know next to the tables."""
    notes = [f"accounting: {profile['cycle_accounting_status']}", *_split(branch_split(profile))]
    classification = profile["classification"]
    unclassified = classification.get("unclassified_labels")
    if unclassified:
        notes.append(
            f"{unclassified} of {classification['label_count']} instructions of the program "
            "have no stage"
        )
    warning = coverage_warning(profile)
    if warning is not None:
        notes.append(warning)
    unresolved = classification.get("unresolved_stage_markers")
    if unresolved:
        notes.append(f"stage names not in the vocabulary: {', '.join(unresolved)}")
    if (
        classification.get("routed_moe_markers_present")
        and classification.get("moe_region_terminated") is False
    ):
        notes.append(
            f"no non_moe marker ends the MoE region: the last {classification['trailing_labels']} "
            f"instructions of the program count as {classification['trailing_stage']}"
        )
    return notes


def _split(split: BranchSplit) -> list[str]:
    if split.shared_picos is None:
        return ["branches: unknown, this profile has no stages of the shared branch"]
    part = "unknown" if split.shared_fraction is None else f"{split.shared_fraction:.4f}"
    lines = [
        f"branches in ps: shared {split.shared_picos}, routed {split.routed_picos}, plumbing "
        f"{split.plumbing_picos}, outside {split.outside_picos}; shared / (shared + routed): {part}"
    ]
    return lines if split.note is None else [*lines, f"  note: {split.note}"]


def _diff(options: argparse.Namespace) -> int:
    before, after = read_profile(options.before), read_profile(options.after)
    console = report_console()
    for difference in differences_in_kind(before, after):
        console.print(f"not the same experiment: {difference}")
    deltas = diff_profiles(before, after)
    console.print(diff_table(deltas))
    changed = [delta for delta in deltas if delta.changed]
    if not changed:
        console.print("no stage differs")
        return 0
    largest = max(changed, key=lambda delta: abs(delta.delta_picos))
    console.print(
        f"stages that differ: {len(changed)}; most: {largest.label} by {largest.delta_picos:+d} ps"
    )
    return 1


def _merge(options: argparse.Namespace) -> int:
    profiles = [read_profile(path) for path in options.files]
    merged = merge_profiles(profiles, [str(path) for path in options.files])
    write_profile(merged, options.output)
    print(
        f"{options.output}: {merged['dispatch']['runs']} runs, "
        f"{merged['total_simulation_picos']} ps, "
        f"{merged['total_instructions_executed']} instructions"
    )
    return 0


if __name__ == "__main__":
    leave_with(main)
