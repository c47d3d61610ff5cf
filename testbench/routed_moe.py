"""Runs one part of a routed expert on the RTL, and compares every bit with the reference.

python -m testbench.routed_moe expert
python -m testbench.routed_moe clamp --config tiny --tokens 3 --vcd waves.vcd
"""

import argparse
from collections.abc import Sequence

from compiler.activation import ACTIVATIONS
from isa.command import leave_with
from isa.config import load_config
from testbench.routed_parts import PARTS, Request
from testbench.routed_shape import add_shape_options, shape_of
from testbench.running import EXIT_CODES, add_run_options, exit_code, run_workload


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parts = "\n".join(f"  {name:<15} {text}" for name, (text, _) in PARTS.items())
    p = argparse.ArgumentParser(
        prog="python -m testbench.routed_moe",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compile one part of a routed expert, run it cycle by cycle on the PLENA\n"
        f"datapath, and compare the result bit for bit with the reference.\n\nparts:\n{parts}",
        epilog=EXIT_CODES,
    )
    p.add_argument("part", metavar="PART", choices=tuple(PARTS), help=", ".join(PARTS))
    p.add_argument("--tokens", type=int, default=5, metavar="T", help="default: 5")
    add_shape_options(p)
    p.add_argument(
        "--activation",
        choices=ACTIVATIONS,
        default="gpt_oss_clamp_gated",
        help="default: gpt_oss_clamp_gated",
    )
    p.add_argument("--biases", action="store_true", help="every projection has a bias row")
    add_run_options(p, "build/routed_moe")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one part; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    config = load_config(args.config)
    spec = shape_of(args, config, activation=args.activation, biases=args.biases)
    request = Request(config=config, spec=spec, tokens=args.tokens, kind=args.data, seed=args.seed)
    _, build = PARTS[args.part]
    return run_workload(build(request), args)


if __name__ == "__main__":
    leave_with(main)
