"""Runs a shared expert on the RTL, cycle by cycle, and compares every bit with the reference.

python -m testbench.shared_moe                      # DeepSeek form, default configuration
python -m testbench.shared_moe --arch qwen2 --rows 3 --config tiny --vcd waves.vcd
"""

import argparse
from collections.abc import Sequence

from compiler import ARCHITECTURES
from isa.command import leave_with
from isa.config import load_config
from testbench.running import EXIT_CODES, add_run_options, exit_code, run_workload
from testbench.shared_case import build_case, spec_of


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.shared_moe",
        description="Compile a mixture-of-experts shared expert, run it cycle by cycle on the "
        "PLENA datapath, compare "
        "the result bit for bit with the reference, and show where the cycles went.",
        epilog=EXIT_CODES,
    )
    p.add_argument(
        "--arch",
        default="deepseek",
        help=f"model family: {', '.join(ARCHITECTURES)} (default: deepseek); "
        "qwen2 is the form with a sigmoid gate per token",
    )
    p.add_argument(
        "--n-shared",
        type=int,
        metavar="N",
        help="shared experts fused into one (default: the family's)",
    )
    p.add_argument(
        "--hidden", type=int, metavar="H", help="hidden size, a multiple of MLEN (default: MLEN)"
    )
    p.add_argument(
        "--intermediate",
        type=int,
        metavar="I",
        help="width of one shared expert, a multiple of MLEN (default: MLEN)",
    )
    p.add_argument("--rows", type=int, default=8, metavar="T", help="tokens (default: 8)")
    p.add_argument(
        "--with-routed-accumulator",
        action="store_true",
        help="add to a preloaded sum over routed experts, instead of to zeros",
    )
    add_run_options(p, "build/shared_moe")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one workload; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: run(args))


def run(args: argparse.Namespace) -> int:
    """Compile, simulate, compare, report."""
    config = load_config(args.config)
    spec = spec_of(
        args.arch,
        hidden=config.MLEN if args.hidden is None else args.hidden,
        intermediate=config.MLEN if args.intermediate is None else args.intermediate,
        n_shared=args.n_shared,
    )
    case = build_case(
        config,
        spec,
        rows=args.rows,
        kind=args.data,
        seed=args.seed,
        routed_accumulator=args.with_routed_accumulator,
    )
    return run_workload(case, args)


if __name__ == "__main__":
    leave_with(main)
