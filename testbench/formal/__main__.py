"""Proves what attribution rests on, for every program of a small machine.

python -m testbench.formal --list
python -m testbench.formal --run proof
python -m testbench.formal --all
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from amaranth.hdl import CombinationalCycle
from rich.table import Table

from isa.command import leave_with
from sim.profile import report_console
from testbench.formal.bmc import Checker, Verdict
from testbench.formal.builder import FormalToolsMissing, UnsupportedDesign, solver_module
from testbench.formal.mutants import MUTANTS, run_mutant
from testbench.formal.replay import replay
from testbench.formal.tags import MEMORIES, TagProof

EXIT_HOLDS, EXIT_BROKEN, EXIT_USAGE = 0, 1, 2
DEPTH = 7
#: Registers whose values are left open in every cycle: nothing that is proven depends on them.
LOOSE = frozenset({"gp", "f", "a"})


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def proof(_depth: int) -> tuple[bool, str]:
    """Every property in the first cycle, and from each cycle to the next: for ever."""
    first = Checker(TagProof(), MEMORIES, LOOSE).bounded(1)
    if first.broken:
        return False, f"after reset already: {', '.join(first.broken)}"
    step = Checker(TagProof(), MEMORIES, LOOSE, anywhere=True).step()
    if step.broken:
        return False, f"one cycle may break (try --run bounded): {', '.join(step.broken)}"
    return True, (
        f"{step.properties} properties hold in every cycle of every run "
        f"(first cycle {first.seconds:.1f} s, induction over one cycle {step.seconds:.1f} s)"
    )


def bounded(depth: int) -> tuple[bool, str]:
    """The properties in the first cycles after reset, with the registers as they are; shows and
    replays a counterexample."""
    harness = TagProof()
    checker = Checker(harness, MEMORIES)
    verdict = checker.bounded(depth, harness.properties, progress=_progress)
    if verdict.cycle is None:
        return True, (
            f"{verdict.properties} properties hold in the first {depth} cycles after reset "
            f"({verdict.seconds:.1f} s)"
        )
    _show(verdict)
    assert verdict.trace is not None
    again = replay(verdict.trace)
    seen = "and in the simulator" if again else "BUT NOT IN THE SIMULATOR"
    return False, (
        f"counterexample in cycle {verdict.cycle} ({verdict.seconds:.1f} s; {seen}): "
        f"{'; '.join(verdict.broken)}"
    )


def reachable(depth: int) -> tuple[bool, str]:
    """That the interesting situations can occur, so that the proof is not about nothing."""
    verdict = Checker(TagProof(), MEMORIES).cover(max(depth, 12), progress=_progress)
    table = Table("situation", "first cycle", title_justify="left")
    for name, cycle in verdict.covered.items():
        table.add_row(name, "never" if cycle is None else str(cycle))
    report_console().print(table)
    missing = [name for name, cycle in verdict.covered.items() if cycle is None]
    if missing:
        return False, f"not reached: {', '.join(missing)}"
    return True, f"{verdict.properties} situations are reached ({verdict.seconds:.1f} s)"


def _show(verdict: Verdict) -> None:
    assert verdict.trace is not None
    shown = verdict.trace.shown
    table = Table("cycle", *shown)
    for cycle in range(len(verdict.trace.inputs)):
        table.add_row(str(cycle), *(f"{values[cycle]:X}" for values in shown.values()))
    report_console().print(table)


CHECKS: dict[str, Callable[[int], tuple[bool, str]]] = {
    "proof": proof,
    "bounded": bounded,
    "reachable": reachable,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Lists or runs; 1 when something is not as it must be."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.formal",
        description="Prove, for every program and every behaviour of the units, that each cycle is "
        "billed to exactly one stage and that no instruction changes its tag in flight; and show "
        "that the proof notices broken machines.",
        epilog="Exit code: 0 all is as it must be; 1 a property can be broken, a situation is not "
        "reached, or a mutant survives; 2 unknown name, a missing package (extra formal), or a "
        "design that cannot be translated.",
    )
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="names of the checks and mutants")
    what.add_argument("--run", metavar="NAME", help="one check, or one mutant")
    what.add_argument("--all", action="store_true", help="every check and every mutant")
    p.add_argument(
        "--depth",
        type=int,
        default=DEPTH,
        metavar="N",
        help=f"cycles after reset, for bounded and the mutants (default: {DEPTH})",
    )
    args = p.parse_args(arguments)
    mutants = {mutant.name: mutant for mutant in MUTANTS}
    if args.list:
        table = Table("name", "what")
        for name, check in CHECKS.items():
            table.add_row(name, " ".join((check.__doc__ or "").split()))
        for mutant in MUTANTS:
            table.add_row(mutant.name, f"mutant: {mutant.summary}")
        report_console().print(table)
        return EXIT_HOLDS
    names = [*CHECKS, *mutants] if args.all else [args.run]
    if unknown := [n for n in names if n not in CHECKS and n not in mutants]:
        print(f"error: {unknown[0]!r}: see --list", file=sys.stderr)
        return EXIT_USAGE
    good = True
    for name in names:
        try:
            solver_module()
            if name in CHECKS:
                held, said = CHECKS[name](args.depth)
            else:
                held, said = run_mutant(mutants[name], args.depth)
                said = f"caught, {said}" if held else f"SURVIVED, {said}"
        except (FormalToolsMissing, UnsupportedDesign, CombinationalCycle) as error:
            print(f"error: {error}", file=sys.stderr)
            return EXIT_USAGE
        print(f"{name}: {said}" if held else f"FAIL: {name}: {said}", flush=True)
        good = good and held
    return EXIT_HOLDS if good else EXIT_BROKEN


if __name__ == "__main__":
    leave_with(main)
