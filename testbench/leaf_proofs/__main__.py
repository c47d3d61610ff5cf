"""Proves that the arithmetic leaves compute their definition.

python -m testbench.leaf_proofs --list
python -m testbench.leaf_proofs --run bf16-add
python -m testbench.leaf_proofs --run fp32-add --pairs 1000000000 --seed 7
python -m testbench.leaf_proofs --all
"""

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from isa.command import leave_with
from sim.compiled.toolchain import CompilerError
from sim.profile import report_console
from testbench.formal.builder import FormalToolsMissing
from testbench.leaf_proofs.native import Counterexample
from testbench.leaf_proofs.proofs import PROOFS, RANDOM_PAIRS, Options, Proof

EXIT_HOLDS, EXIT_BROKEN, EXIT_USAGE = 0, 1, 2


def build_parser() -> argparse.ArgumentParser:
    """The command line of `python -m testbench.leaf_proofs`."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.leaf_proofs",
        description="Run every input of an arithmetic leaf, compiled from its netlist, against an "
        "independent definition: the host's floating-point unit, float64, or mpmath. What has "
        "more than 2^32 inputs, such as addition in FP32, gets crossed patterns and random pairs.",
        epilog="Exit code: 0 every claim holds; 1 one does not, the operands are shown; 2 unknown "
        "name, no C compiler, or a package is missing (extras dev and formal). All together take a "
        "minute or two.",
    )
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="names, claims, inputs, definitions")
    what.add_argument("--run", metavar="NAME", action="append", help="one proof; may be repeated")
    what.add_argument("--all", action="store_true", help="every proof")
    p.add_argument(
        "--pairs",
        type=int,
        default=RANDOM_PAIRS,
        metavar="N",
        help=f"random pairs of fp32-add and fp32-scale (default: {RANDOM_PAIRS})",
    )
    p.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of what is random (default: 1)"
    )
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Lists or proves; returns the exit code."""
    args = build_parser().parse_args(arguments)
    if args.list:
        table = Table("name", "claim", "inputs", "against")
        for proof in PROOFS.values():
            table.add_row(proof.name, proof.claim, proof.inputs, proof.against)
        report_console().print(table)
        return EXIT_HOLDS
    names = list(PROOFS) if args.all else args.run
    if unknown := [name for name in names if name not in PROOFS]:
        print(f"error: {unknown[0]!r}: no such proof, see --list", file=sys.stderr)
        return EXIT_USAGE
    if args.pairs < 1 or args.seed < 0:
        print("error: --pairs must be at least 1, --seed at least 0", file=sys.stderr)
        return EXIT_USAGE
    good = True
    for name in names:
        try:
            good = _prove(PROOFS[name], args.pairs, args.seed) and good
        except (CompilerError, FormalToolsMissing, ModuleNotFoundError) as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            return EXIT_USAGE
    return EXIT_HOLDS if good else EXIT_BROKEN


def _prove(proof: Proof, pairs: int, seed: int) -> bool:
    started = time.perf_counter()
    console = Console(stderr=True)
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(proof.name, total=1.0)
            options = Options(pairs, seed, lambda share: bar.update(task, completed=share))
            count = proof.run(options)
    except Counterexample as found:
        print(f"FAIL: {proof.name}: {found}", flush=True)
        return False
    seconds = time.perf_counter() - started
    print(f"{proof.name}: {proof.claim}: {count:,} inputs, {seconds:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    leave_with(main)
