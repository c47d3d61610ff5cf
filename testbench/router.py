"""Runs a model's router on the RTL, compares every bit with the reference, and the decisions with
the model's public definition in float32.

python -m testbench.router --model deepseek-v3 --scale
python -m testbench.router --all --config tiny --lockstep
"""

import argparse
from collections.abc import Sequence
from functools import partial

from compiler import CompileError
from compiler.models import MODELS, find_model
from compiler.moe_model import MoeModel
from isa.command import leave_with
from isa.config import PlenaConfig, load_config
from testbench.router_agreement import Agreement
from testbench.router_workload import RouterWorkload, router_workload
from testbench.running import EXIT_CODES, Finished, add_run_options, exit_code, run_workload
from testbench.sweep import sweep

COLUMNS = ("experts", "V_TOPK alone", "cycles", "same experts", "weight ulp", "own ulp")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.router",
        description="Compile the router of a public model (logits, selection, exact route "
        "weights), run it cycle by cycle on the PLENA datapath, and compare every bit with the "
        "reference. The chosen experts and their weights are also compared with the model's "
        "public definition in float32: every difference is shown, and is a failure unless the "
        "rounding to BF16 explains it.",
        epilog=EXIT_CODES,
    )
    which = p.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", metavar="NAME", help=f"one of {', '.join(MODELS)}")
    which.add_argument("--all", action="store_true", help="every model, scaled; a table")
    p.add_argument(
        "--scale",
        action="store_true",
        help="shrink hidden and experts to what the configuration runs in seconds, keeping rule, "
        "top_k and ratios (default: the model's own size, whose router weight must fit the "
        "vector SRAM)",
    )
    p.add_argument("--tokens", type=int, default=8, metavar="T", help="default: 8")
    add_run_options(p, "build/router", kinds_of_data=False)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one router or all; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    config = load_config(args.config)
    if args.all:
        cases = {
            name: partial(_workload, config, model.scaled(config), args)
            for name, model in MODELS.items()
        }
        title = f"Routers of {args.tokens} tokens, configuration {config.name}, scaled"
        return sweep(cases, config, args, title=title, columns=COLUMNS, row=_row)
    model = find_model(args.model)
    if args.scale:
        workload = _workload(config, model.scaled(config), args)
    else:
        try:
            workload = _workload(config, model, args)
        except CompileError as error:
            raise CompileError(f"{error}; --scale runs {model.name} at a size that fits") from error
    return run_workload(workload, args, lambda _: agreement_lines(workload.agreement))


def _workload(config: PlenaConfig, model: MoeModel, args: argparse.Namespace) -> RouterWorkload:
    return router_workload(config, model, tokens=args.tokens, seed=args.seed)


def agreement_lines(agreement: Agreement) -> list[str]:
    """The comparison with the definition, for a person."""
    return [
        f"definition in float32: {agreement.equal_sets} of {agreement.tokens} tokens get the same "
        f"experts; their weights are within {agreement.weight_ulps:.2f} ulp, "
        f"{agreement.formula_ulps:.2f} ulp of it from the weights' own steps (rounding allows "
        f"{agreement.weight_bound:.2f} and {agreement.formula_bound:.2f})",
        *(str(swap) for swap in agreement.swaps),
    ]


def _row(finished: Finished) -> list[str]:
    report = finished.report
    definition = report["definition"]
    return [
        f"{report['top_k']} of {report['experts']}",
        report["v_topk_alone"],
        f"{report['cycles']:,}",
        f"{definition['equal_index_sets']} of {definition['tokens']}",
        f"{definition['weight_error_ulps']:.2f}",
        f"{definition['formula_error_ulps']:.2f}",
    ]


if __name__ == "__main__":
    leave_with(main)
