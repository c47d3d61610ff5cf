"""Command line of `waveforms.query`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from isa.command import error_text, leave_with
from isa.stages import Stage
from waveforms.query import QueryError, first_dispatch, signal, signal_names, stage_spans


def build_parser() -> argparse.ArgumentParser:
    """The command line of `python -m waveforms.query`."""
    parser = argparse.ArgumentParser(
        prog="python -m waveforms.query",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Ask a waveform file (VCD) of a run. Times are cycles.",
        epilog=f"""\
names: GROUP.NAME, element i of an array GROUP.NAME_i, for example
  dispatch.valid       registers.gp_3       matrix.m_acc_1_2       vram.row_12
an enumeration is two signals: dispatch.stage (its name), dispatch.stage_index (its number)

examples:
  python -m waveforms.query waves.vcd --first-stage shared_expert_projection
  python -m waveforms.query waves.vcd --spans
  python -m waveforms.query waves.vcd --signals | grep vector
  python -m waveforms.query waves.vcd --get registers.gp_3 --from 100 --to 200

stages: {", ".join(s.label for s in Stage)}

exit code: 0 found; 1 the stage was never dispatched, or nothing to show in these cycles;
2 the file cannot be read, or has no such signal""",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the VCD file")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--first-stage", metavar="NAME", help="first cycle in which this stage is dispatched"
    )
    what.add_argument("--spans", action="store_true", help="the stages that the cycles belong to")
    what.add_argument("--signals", action="store_true", help="the name of every signal")
    what.add_argument("--get", metavar="NAME", help="the changes of a signal: cycle and value")
    parser.add_argument(
        "--from", dest="first", metavar="CYCLE", type=int, default=0, help="with --get: begin here"
    )
    parser.add_argument(
        "--to", dest="last", metavar="CYCLE", type=int, help="with --get: the last cycle"
    )
    parser.add_argument("--hex", action="store_true", help="with --get: values in hexadecimal")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    answer: Callable[[argparse.Namespace], list[str]] = _get
    if options.first_stage is not None:
        answer = _first_stage
    elif options.spans:
        answer = _spans
    elif options.signals:
        answer = _signals
    try:
        lines = answer(options)
    except QueryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return 2
    if lines:
        print("\n".join(lines))
        return 0
    print("nothing found", file=sys.stderr)
    return 1


def _first_stage(options: argparse.Namespace) -> list[str]:
    cycle = first_dispatch(options.file, options.first_stage)
    return [] if cycle is None else [str(cycle)]


def _spans(options: argparse.Namespace) -> list[str]:
    spans = stage_spans(options.file)
    return [f"{start:>9} {stop - start:>9}  {label}" for label, start, stop in spans]


def _signals(options: argparse.Namespace) -> list[str]:
    return signal_names(options.file)


def _get(options: argparse.Namespace) -> list[str]:
    """The value at the beginning of the asked part, then the changes in it."""
    changes = signal(options.file, options.get)
    before = [c for c in changes if c[0] <= options.first]
    shown = [(options.first, before[-1][1])] if before else []
    shown += [c for c in changes if c[0] > options.first]
    if options.last is not None:
        shown = [c for c in shown if c[0] <= options.last]
    form = "{:>9}  0x{:X}" if options.hex else "{:>9}  {}"
    return [
        form.format(cycle, value) if isinstance(value, int) else f"{cycle:>9}  {value}"
        for cycle, value in shown
    ]


if __name__ == "__main__":
    leave_with(main)
