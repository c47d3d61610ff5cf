"""Runs a whole mixture-of-experts layer of a public model on the RTL, and compares every bit.

python -m testbench.moe_layer --model qwen2-moe-a14b --scale --tokens 4
python -m testbench.moe_layer --model deepseek-v3 --scale --config tiny --lowering expert
python -m testbench.moe_layer --model qwen3-30b-a3b --scale --routing trace FILE
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler import CompileError
from compiler.layer_program import choose_lowering
from compiler.models import MODELS, find_model
from compiler.moe_layer import LayerPlan
from compiler.routed_experts import Accumulation
from compiler.routed_spec import Lowering
from isa.command import leave_with
from isa.config import PlenaConfig, load_config
from sim.profile import branch_split
from testbench.layer_case import build_layer_case
from testbench.route_trace import RouteTrace, read_trace
from testbench.running import EXIT_CODES, RequestError, add_run_options, exit_code, run_workload

DEVICE, TRACE = "device", "trace"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.moe_layer",
        description="Compile a mixture-of-experts layer of a public model, from the hidden state "
        "to the sum with it: residual, RMS norm, router, routed experts, shared expert. Run it "
        "cycle by cycle on the PLENA datapath, compare the result bit for bit with the reference "
        "of the same lowering, and show where the cycles went.",
        epilog=EXIT_CODES,
    )
    p.add_argument(
        "--model",
        default="qwen2-moe-a14b",
        metavar="NAME",
        help=f"{', '.join(MODELS)} (default: qwen2-moe-a14b)",
    )
    p.add_argument(
        "--scale",
        action="store_true",
        help="shrink hidden, intermediate and the number of experts to what the configuration "
        "runs in seconds; rules and ratios stay (with a trace, so does the number of experts)",
    )
    p.add_argument("--tokens", type=int, metavar="T", help="tokens (default: 4, or the trace's)")
    p.add_argument(
        "--layers",
        type=int,
        default=1,
        metavar="N",
        help="layers in one program, each with weights of its own (default: 1)",
    )
    p.add_argument(
        "--lowering",
        choices=("pair", "expert", "auto"),
        default="auto",
        help="pair: every (token, expert) pair loads its expert's weights; expert: a chosen expert "
        "loads them once for all its tokens; auto: expert where that saves loads (default: auto)",
    )
    p.add_argument(
        "--accumulate",
        choices=("pair", "expert"),
        help="order in which a token's experts are added, which shows in the bits (default: that "
        "of the lowering; expert-major can keep pair order)",
    )
    p.add_argument(
        "--routing",
        nargs="+",
        default=[DEVICE],
        metavar=(f"{DEVICE}|{TRACE}", "FILE"),
        help="the router decides on the machine (default), or a recorded trace says: then the "
        "program has no router",
    )
    add_run_options(p, "build/moe_layer")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one workload; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: run(args))


def run(args: argparse.Namespace) -> int:
    """Compile, simulate, compare, report."""
    config = load_config(args.config)
    plan, trace = plan_of(args, config)
    try:
        case = build_layer_case(
            config,
            plan,
            layers=args.layers,
            kind=args.data,
            seed=args.seed,
            route_weights=None if trace is None else trace.weights,
        )
    except CompileError as error:
        if args.scale:
            raise
        raise RequestError(f"{error}; {args.model} is at its public size (add --scale)") from error
    return run_workload(case, args, split_lines)


def plan_of(args: argparse.Namespace, config: PlenaConfig) -> tuple[LayerPlan, RouteTrace | None]:
    """What the options ask for; RequestError or CompileError when they contradict each other."""
    row = find_model(args.model)
    path = _trace_path(args.routing)
    trace = None if path is None else read_trace(path, row)
    model = row.scaled(config) if args.scale else row
    tokens = 4 if args.tokens is None else args.tokens
    if trace is not None:
        model = replace(model, experts=row.experts)
        tokens = len(trace.experts)
        if args.tokens not in (None, tokens):
            raise RequestError(
                f"--tokens {args.tokens}: the trace {trace.name} has {tokens} (leave --tokens out)"
            )
        if args.layers != 1:
            raise RequestError(f"--layers {args.layers}: a trace is of one layer (leave it out)")
    known = None if trace is None else trace.experts
    lowering = (
        choose_lowering(config, model, tokens, known)
        if args.lowering == "auto"
        else Lowering(args.lowering)
    )
    natural = "pair" if lowering is Lowering.PAIR else "expert"
    order = Accumulation[(args.accumulate or natural).upper()]
    return LayerPlan(model=model, tokens=tokens, lowering=lowering, order=order, known=known), trace


def _trace_path(routing: list[str]) -> Path | None:
    if routing == [DEVICE]:
        return None
    if len(routing) == 2 and routing[0] == TRACE:
        return Path(routing[1])
    raise RequestError(f"--routing {' '.join(routing)}: write {DEVICE}, or {TRACE} and a file")


def split_lines(profile: dict[str, Any]) -> list[str]:
    """Time per branch, and the caveat that goes wherever their ratio goes."""
    split = branch_split(profile)
    total = profile["total_profiled_picos"] or 1
    parts = {
        "routed": split.routed_picos,
        "shared": split.shared_picos,
        "plumbing": split.plumbing_picos,
        "outside": split.outside_picos,
    }
    shares = ", ".join(f"{name} {(picos or 0) / total:.1%}" for name, picos in parts.items())
    fraction = split.shared_fraction
    ratio = "" if fraction is None else f"; shared / (shared + routed) {fraction:.1%}"
    return [f"branches: {shares}{ratio}", f"note: {split.note}"]


if __name__ == "__main__":
    leave_with(main)
