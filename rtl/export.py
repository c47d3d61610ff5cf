"""Exports the machine as Verilog.

python -m rtl.export --config tiny -o plena.v
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from amaranth.back import verilog

from isa.config import PRESETS, ConfigError, PlenaConfig, load_config
from isa.image import write_atomically
from rtl.top import PlenaTop

TOP_NAME = "plena"


def export_verilog(config: PlenaConfig) -> str:
    """The machine of `config` as one Verilog text; its header states every field of the
    configuration.

    Names follow the design's hierarchy and are the same in every run with the same PYTHONHASHSEED.
    """
    fields = "\n".join(
        f"//   {name} = {value}" for name, value in dataclasses.asdict(config).items()
    )
    text = verilog.convert(
        PlenaTop(config), name=TOP_NAME, emit_src=False, strip_internal_attrs=True
    )
    return f"// PLENA, configuration digest {config.digest}:\n{fields}\n{text}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the file; 2 when the configuration or the path is bad."""
    p = argparse.ArgumentParser(
        prog="python -m rtl.export",
        description="Write the machine as Verilog: one file, top module `plena`, clock `clk`, "
        "reset `rst`.",
        epilog="The default configuration takes a few minutes. Exit code: 0 written; 2 it cannot "
        "be.",
    )
    p.add_argument(
        "--config",
        default="default",
        help=f"{', '.join(PRESETS)} or a TOML file (default: default)",
    )
    p.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the Verilog file"
    )
    args = p.parse_args(arguments)
    try:
        config = load_config(args.config)
        print(f"converting configuration {config.name} ...", file=sys.stderr)
        write_atomically(args.output, export_verilog(config).encode())
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {args.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
