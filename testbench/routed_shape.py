"""The shape of routed experts on a command line."""

import argparse
from typing import Any

from compiler.routed_spec import RoutedSpec
from isa.config import PlenaConfig


def add_shape_options(p: argparse.ArgumentParser) -> None:
    """Number of experts, experts per token, and sizes."""
    p.add_argument("--experts", type=int, default=8, metavar="E", help="default: 8")
    p.add_argument("--top-k", type=int, default=2, metavar="K", help="default: 2")
    p.add_argument("--hidden", type=int, metavar="H", help="default: MLEN")
    p.add_argument("--intermediate", type=int, metavar="I", help="default: MLEN")


def shape_of(args: argparse.Namespace, config: PlenaConfig, **more: Any) -> RoutedSpec:
    """What these options ask for on a machine; `more` are other fields of `RoutedSpec`.

    Raises:
        CompileError: a number that no program can have.
    """
    return RoutedSpec(
        experts=args.experts,
        top_k=args.top_k,
        hidden=config.MLEN if args.hidden is None else args.hidden,
        intermediate=config.MLEN if args.intermediate is None else args.intermediate,
        **more,
    )
