"""Shows the model table: sizes, router rule, what V_TOPK alone gives of it, the source of values.

python -m testbench.models
python -m testbench.models --model deepseek-v3
python -m testbench.models --scale tiny
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from compiler import MODELS, MoeModel, find_model
from isa.command import leave_with
from isa.config import PRESETS, load_config
from sim.profile import report_console
from testbench.running import EXIT_PASS, exit_code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.models",
        description="List the mixture-of-experts layers of public models that the compiler knows.",
        epilog="Exit code: 0 shown; 2 there is no such model or configuration.",
    )
    p.add_argument("--model", metavar="NAME", help="this one only, with the source of every value")
    p.add_argument(
        "--scale",
        metavar="CONFIG",
        help=f"at the size that --scale of the testbenches runs: {', '.join(PRESETS)}, or a TOML "
        "file",
    )
    p.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Shows the table or a row of it; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: _show(args))


def _show(args: argparse.Namespace) -> int:
    models = list(MODELS.values()) if args.model is None else [find_model(args.model)]
    if args.scale is not None:
        models = [model.scaled(load_config(args.scale)) for model in models]
    if args.json:
        print(json.dumps({model.name: facts(model) for model in models}, indent=2))
    elif args.model is None:
        report_console().print(_table(models))
    else:
        report_console().print(_sources(models[0]))
    return EXIT_PASS


def facts(model: MoeModel) -> dict[str, Any]:
    """A row as a JSON object; a rule's enumerations are spelled out."""
    rule = dataclasses.asdict(model.rule)
    group = model.rule.group_score
    rule |= {
        "scores": model.rule.scores.value,
        "group_score": None if group is None else group.value,
    }
    return {
        **dataclasses.asdict(model),
        "rule": rule,
        "activation": model.activation.value,
        "sources": dict(model.sources),
        "v_topk_alone": model.rule.topk_gives.value,
    }


def rule_text(model: MoeModel) -> str:
    """The rule in a line."""
    rule = model.rule
    parts = [rule.scores.value]
    parts += ["router bias"] * rule.bias + ["correction bias"] * rule.correction_bias
    if rule.group_score is not None:
        parts.append(f"{rule.kept_groups} of {rule.groups} groups by {rule.group_score.value}")
    parts += ["renormalised"] * rule.renormalised
    if rule.factor != 1.0:
        parts.append(f"times {rule.factor:g}")
    parts += ["on the expert's input"] * rule.on_input
    return ", ".join(parts)


def _shared_text(model: MoeModel) -> str:
    shared = model.shared
    if shared is None:
        return "none"
    return f"{shared.count}, width {shared.width}" + ", gated" * shared.gated


def _table(models: Sequence[MoeModel]) -> Table:
    table = Table(title="Mixture-of-experts layers")
    table.add_column("name", no_wrap=True)
    for column in ("experts", "hidden", "inter-\nmediate"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("router", "V_TOPK alone", "shared experts"):
        table.add_column(column)
    for model in models:
        table.add_row(
            model.name,
            f"{model.top_k} of {model.experts}",
            str(model.hidden),
            str(model.intermediate),
            rule_text(model),
            model.rule.topk_gives.value,
            _shared_text(model),
        )
    return table


def _sources(model: MoeModel) -> Table:
    table = Table(title=f"{model.title}, config.json of {model.checkpoint}")
    for column in ("field", "value", "from"):
        table.add_column(column)
    values = {
        "rule": rule_text(model),
        "activation": model.activation.value,
        "expert_biases": "yes" if model.expert_biases else "no",
        "shared": _shared_text(model),
    }
    for name in (f.name for f in dataclasses.fields(model) if f.name in model.sources):
        value = values.get(name) or str(getattr(model, name))
        table.add_row(name, value, model.sources[name])
    table.add_row("V_TOPK alone", model.rule.topk_gives.value, "the rule")
    return table


if __name__ == "__main__":
    leave_with(main)
