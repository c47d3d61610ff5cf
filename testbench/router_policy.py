"""Runs V_TOPK on the RTL for a router's shape: indices, weights, and the encoding it was given.

python -m testbench.router_policy --all
python -m testbench.router_policy --policy deepseek_v3 --lockstep
python -m testbench.router_policy --experts 60 --top-k 4 --config small
"""

import argparse
from collections.abc import Sequence
from functools import partial

from compiler.errors import unknown_name
from isa.command import leave_with
from isa.config import load_config
from testbench.policy_case import POLICIES
from testbench.policy_workload import PolicyWorkload, policy_workload
from testbench.running import (
    EXIT_CODES,
    Finished,
    RequestError,
    add_run_options,
    exit_code,
    run_workload,
)
from testbench.sweep import sweep

COLUMNS = ("experts", "top-k", "rows", "encoding", "cycles", "winners")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    shapes = ", ".join(f"{name} {s.experts}/{s.top_k}" for name, s in POLICIES.items())
    p = argparse.ArgumentParser(
        prog="python -m testbench.router_policy",
        description="Select the experts of three tokens with V_TOPK on the PLENA datapath, from "
        "logits that are -100 except for k + 2 winners, one exact tie among them, with garbage "
        "behind the last expert. Indices and weights must come out bit for bit, and the program "
        "must be, word for word, the one with the right encoding: a fixed one for 32/4 and 128/8, "
        "else the policy register.",
        epilog=EXIT_CODES,
    )
    p.add_argument("--policy", metavar="NAME", help=f"a shape by name: {shapes}")
    p.add_argument("--experts", type=int, metavar="N", help="any shape, with --top-k")
    p.add_argument("--top-k", type=int, metavar="K", help="experts per token, with --experts")
    p.add_argument("--all", action="store_true", help="every named shape; a table")
    add_run_options(p, "build/router_policy", kinds_of_data=False)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one shape or all; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    config = load_config(args.config)
    shape = args.experts is not None or args.top_k is not None
    if (args.policy is not None) + args.all + shape != 1:
        raise RequestError("give one of --policy NAME, --all, or --experts N with --top-k K")
    if args.all:
        cases = {
            name: partial(policy_workload, config, s.experts, s.top_k, name=name, seed=args.seed)
            for name, s in POLICIES.items()
        }
        title = f"V_TOPK by shape, configuration {config.name} (MLEN {config.MLEN})"
        return sweep(cases, config, args, title=title, columns=COLUMNS, row=_row)
    return run_workload(_one(args), args)


def _one(args: argparse.Namespace) -> PolicyWorkload:
    config = load_config(args.config)
    if args.policy is None:
        if args.experts is None or args.top_k is None:
            raise RequestError("a shape is --experts N and --top-k K: give both")
        return policy_workload(config, args.experts, args.top_k, seed=args.seed)
    if args.policy not in POLICIES:
        raise unknown_name("policy", args.policy, POLICIES)
    shape = POLICIES[args.policy]
    return policy_workload(config, shape.experts, shape.top_k, name=args.policy, seed=args.seed)


def _row(finished: Finished) -> list[str]:
    report = finished.report
    return [
        str(report["experts"]),
        str(report["top_k"]),
        str(report["rows_per_token"]),
        report["encoding"],
        f"{report['cycles']:,}",
        " ".join(str(expert) for expert in report["indices"][0]),
    ]


if __name__ == "__main__":
    leave_with(main)
