"""Exports the machine as Verilog.

python -m rtl.export --config tiny -o plena.v
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from isa.command import error_text, leave_with
from isa.config import PRESETS, ConfigError, load_config
from isa.image import write_atomically
from rtl.export import TOP_NAME, export_machine
from rtl.export.check import CheckError, check
from rtl.export.stats import statistics
from rtl.export.verilog import YosysError
from rtl.top import PlenaTop

_WAIVERS = Path(__file__).parent / "waivers.vlt"


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m rtl.export",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"""\
Write the machine of a configuration as one Verilog-2005 file: top module {TOP_NAME}, clock clk,
synchronous reset rst. Its header has the configuration and the table of ports. Equal modules are
written once. The same sources and configuration give the same bytes.""",
        epilog=f"""\
examples:
  python -m rtl.export --config tiny -o plena.v
  python -m rtl.export -o plena.v --ports ports.md --stats stats.json
  python -m rtl.export --config tiny -o plena.v --check

The file is free of warnings in Verilator with the waivers of this project, each with its reason:
  verilator --lint-only -Wall --top-module {TOP_NAME} {_WAIVERS} plena.v

Exit code: 0 written (and every check holds); 1 a check failed; 2 it cannot be done.""",
    )
    p.add_argument(
        "--config",
        default="default",
        help=f"{', '.join(PRESETS)} or a TOML file (default: default)",
    )
    p.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the Verilog file"
    )
    p.add_argument(
        "--ports",
        nargs="?",
        const="-",
        metavar="FILE",
        help="the table of ports: to the terminal, or to FILE as .md or .json",
    )
    p.add_argument(
        "--stats",
        nargs="?",
        const="-",
        metavar="FILE",
        help="cells, register bits and memory bits per unit, counted by Yosys: a table, and JSON "
        "with more detail to FILE",
    )
    p.add_argument(
        "--check",
        action="store_true",
        help="prove that every leaf of the file, and every module that stands for others, equals "
        "what Amaranth converts by itself (needs pip install pyosys)",
    )
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files; see the exit codes in --help."""
    args = _parser().parse_args(arguments)
    # What goes into a file is not cut to the width of a terminal.
    console = Console(width=None if sys.stdout.isatty() else 120)
    progress = Console(stderr=True)
    try:
        if args.ports not in (None, "-") and Path(args.ports).suffix not in (".md", ".json"):
            raise ValueError(f"--ports {args.ports}: must end in .md or .json")
        config = load_config(args.config)
        with progress.status(f"converting configuration {config.name} ..."):
            text, design, ports = export_machine(PlenaTop(config))
        write_atomically(args.output, text.encode())
        lines = text.count("\n")
        progress.print(f"wrote {args.output}: {len(design.modules)} modules, {lines} lines")
        if args.ports == "-":
            console.print("\n".join(ports.lines()), markup=False, highlight=False)
        elif args.ports is not None:
            table = ports.json() if Path(args.ports).suffix == ".json" else ports.markdown()
            write_atomically(args.ports, table.encode())
        if args.stats is not None:
            with progress.status("counting cells ..."):
                found = statistics(design)
            console.print(found.table())
            if args.stats != "-":
                write_atomically(args.stats, found.json().encode())
        if args.check:
            outcome = check(design, report=progress.print)
            progress.print(outcome.text)
            return 0 if outcome.ok else 1
    except (ConfigError, CheckError, YosysError, OSError, ValueError) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    leave_with(main)
