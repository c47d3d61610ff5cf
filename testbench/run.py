"""Runs a user's own program on the machine, cycle by cycle.

python -m testbench.run PROGRAM --config tiny --load vram:0=x.npy --dump vram:8:4=y.npy
python -m testbench.run PROGRAM --break loop --step 3
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from compiler.attribution_note import SHARED_VS_ROUTED_NOTE
from isa.command import error_text, leave_with
from isa.config import PRESETS
from isa.image import write_atomically
from isa.traps import Trap
from sim.engines import ENGINES, CompilerError
from sim.lockstep import Lockstep, LockstepError
from sim.observers import Observer, TagError
from sim.profile import (
    ProfileInvariantError,
    coverage_warning,
    report_console,
    write_profile,
)
from sim.result import RunResult
from sim.simulation import DEFAULT_MAX_CYCLES, Simulation
from testbench.session.costs import cost_table
from testbench.session.outcome import outcome, registers, routed_note
from testbench.session.program import FORMS, Program, read_program
from testbench.session.request import RequestError, check_outputs
from testbench.session.stops import Breakpoint, Stops
from testbench.session.stores import STORES
from testbench.session.trace import InFlight, TraceFile, Tracer
from testbench.session.transfer import Dump, Load

EXIT_OK, EXIT_FAIL, EXIT_USAGE, EXIT_DEADLOCK, EXIT_INTERRUPT = 0, 1, 2, 3, 130
TERMINAL = "-"

EPILOG = f"""\
PROGRAM is assembly (.asm), a program image (.json, of isa.assembler or of a build directory), or
machine code without source: a hexadecimal word a line (.hex), or 32-bit little-endian words (.bin).

MEMORY is {", ".join(STORES)}. FIRST and COUNT are in rows (vram), tiles (mram), words (fp,
int), bytes (hbm) or registers (gp, f, a; dump only), decimal or 0x hexadecimal.
  --load   FILE is .npy (bfloat16, or bit patterns as uint16; integers for int; any array's bytes
           for hbm), an HBM image (.npz, hbm only), or text with hexadecimal numbers. HBM images
           and dumps of hbm name their MX dialect, and only a machine of that dialect takes them
  --dump   FILE is .npy or .hex; without =FILE it is printed; without FIRST it is everything. It
           shows the state when the run stopped, whatever stopped it

The run ends with the program, at a C_BREAK, at a trap, after --max-cycles, after --max-idle cycles
in which nothing happens (a report then says who waits for whom), or when --break or --step stops
it: then all instructions before the shown pc were dispatched, those that have not completed
are listed, and the shown one and everything behind it has not begun.

examples:
  python -m testbench.run add.asm --config tiny --load vram:0=x.npy --dump vram:8:1
  python -m testbench.run build/shared_moe/image.json --load hbm=build/shared_moe/hbm.npz
  python -m testbench.run add.asm --config tiny --break loop --skip 2 --step 4 --dump gp
  python -m testbench.run words.hex --config tiny --trace
  python -m testbench.run build/shared_moe/image.json --load hbm=build/shared_moe/hbm.npz --costs

exit code: 0 the program ended, met a C_BREAK, or was stopped as asked; 1 a trap, the cycle limit or
a difference in lock step; 2 the request cannot be run (nothing is written then); 3 a deadlock:
nothing happened for --max-idle cycles"""


def build_parser() -> argparse.ArgumentParser:
    """The command line of `python -m testbench.run`."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run a program of your own on the PLENA datapath, cycle by cycle.",
        epilog=EPILOG,
    )
    p.add_argument("program", metavar="PROGRAM", type=Path, help="the program; give it first")
    p.add_argument(
        "--form",
        choices=("auto", *FORMS),
        default="auto",
        help="what PROGRAM is (default: by its name, else by its content)",
    )
    p.add_argument(
        "--config",
        metavar="NAME|FILE",
        help=f"{', '.join(PRESETS)}, or a TOML file (default: the one an image was made for, else "
        "default)",
    )
    p.add_argument(
        "--no-strict",
        dest="strict",
        action="store_false",
        help="let unknown stage names keep the stage before them",
    )
    p.add_argument("--strict", dest="strict", action="store_true", help=argparse.SUPPRESS)
    p.set_defaults(strict=True)
    p.add_argument(
        "--load", action="append", default=[], metavar="MEMORY:FIRST=FILE", help="before the run"
    )
    p.add_argument(
        "--dump",
        action="append",
        default=[],
        metavar="MEMORY:FIRST:COUNT=FILE",
        help="after the run",
    )
    p.add_argument(
        "--break",
        dest="breaks",
        action="append",
        default=[],
        metavar="PC|LABEL|stage=NAME",
        help="stop before this instruction, or the entry into this stage",
    )
    p.add_argument(
        "--skip", type=_count(0), default=0, metavar="N", help="pass the first N breakpoints met"
    )
    p.add_argument(
        "--step",
        type=_count(1),
        metavar="N",
        help="dispatch N instructions, from the breakpoint or the start, then show the registers",
    )
    p.add_argument(
        "--trace",
        nargs="?",
        const=TERMINAL,
        metavar="FILE",
        help="a line per dispatched instruction and per completion",
    )
    p.add_argument(
        "--listing", action="store_true", help="print addresses, words, stages and source first"
    )
    p.add_argument("--engine", choices=("auto", *ENGINES), default="auto", help="default: auto")
    p.add_argument(
        "--issue", choices=("overlap", "serial"), help="default: the configuration's, overlap"
    )
    p.add_argument(
        "--max-cycles",
        type=_count(1),
        default=DEFAULT_MAX_CYCLES,
        metavar="N",
        help=f"watchdog (default: {DEFAULT_MAX_CYCLES})",
    )
    p.add_argument(
        "--max-idle",
        type=_count(1),
        metavar="N",
        help="give up when for N cycles nothing is dispatched, completed or written and no memory "
        "beat moves (default: four times the longest that an instruction can take)",
    )
    p.add_argument(
        "--lockstep",
        action="store_true",
        help="compare every instruction's effects with the architectural machine as they happen",
    )
    p.add_argument("--vcd", type=Path, metavar="FILE", help="waveforms, viewers' files beside them")
    p.add_argument(
        "--costs",
        nargs="?",
        type=_count(1),
        const=20,
        metavar="N",
        help="the N instructions that own the most cycles (default: 20), after the run",
    )
    p.add_argument("--profile", type=Path, metavar="FILE", help="the stage profile (JSON)")
    return p


def _count(least: int):
    def number(text: str) -> int:
        value = int(text, 0)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value}: must be at least {least}")
        return value

    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one program; returns the exit code."""
    args = build_parser().parse_args(arguments)
    try:
        return run(args)
    except (TagError, ProfileInvariantError, LockstepError) as error:
        print(f"FAIL: {error}", file=sys.stderr)
        return EXIT_FAIL
    except (CompilerError, OSError, ValueError) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; a trace or waveform so far is complete", file=sys.stderr)
        return EXIT_INTERRUPT
    return EXIT_USAGE


def run(args: argparse.Namespace) -> int:
    """Check the whole request, run, report, and only then write."""
    program = read_program(args.program, config=args.config, strict=args.strict, form=args.form)
    loads = [Load.parse(text, program.config) for text in args.load]
    dumps = [Dump.parse(text, program.config) for text in args.dump]
    stops = _stops(args, program)
    _check_files(args, loads, dumps)

    simulation = Simulation(program.config, program.image, engine=args.engine, issue=args.issue)
    for load in loads:
        load.apply(simulation)
    if args.listing:
        print(program.image.listing())
    in_flight = InFlight()
    observers = [in_flight, *_observers(args, simulation, stops)]
    if args.lockstep:
        observers.append(Lockstep())
    result = simulation.run(
        max_cycles=args.max_cycles,
        max_idle=args.max_idle,
        observers=observers,
        progress=args.trace != TERMINAL and args.step is None,
        until=stops,
    )
    for line in outcome(program, simulation.engine, result, stops, in_flight):
        print(line)
    if args.step is not None:
        print("\n".join(registers(simulation)))
    if stops is not None and result.cause is not Trap.NONE:
        missed = [text for text in args.breaks if text not in stops.reached]
        print("".join(f"--break {text} was not met\n" for text in missed), end="")
    if args.costs is not None:
        report_console().print(cost_table(program.image, simulation.accounts, args.costs))
    _write(args, program, simulation, result, dumps)
    if result.deadlock:
        return EXIT_DEADLOCK
    return EXIT_FAIL if result.cause.is_error else EXIT_OK


def _stops(args: argparse.Namespace, program: Program) -> Stops | None:
    points = [Breakpoint.parse(text, program.image) for text in args.breaks]
    if args.skip and not points:
        raise RequestError("--skip counts breakpoints; give a --break too")
    if not points and args.step is None:
        return None
    return Stops(program.image, points, skip=args.skip, steps=args.step)


def _check_files(args: argparse.Namespace, loads: list[Load], dumps: list[Dump]) -> None:
    outputs = [(dump.option, dump.path) for dump in dumps if dump.path is not None]
    if args.trace not in (None, TERMINAL):
        outputs.append(("--trace", Path(args.trace)))
    outputs += [(f"--{n}", p) for n, p in (("vcd", args.vcd), ("profile", args.profile)) if p]
    inputs = {load.path.resolve(): f"read by {load.option}" for load in loads}
    check_outputs(outputs, {**inputs, args.program.resolve(): "the program"})


def _observers(
    args: argparse.Namespace, simulation: Simulation, stops: Stops | None
) -> list[Observer]:
    observers: list[Observer] = []
    if args.vcd is not None:
        from waveforms.vcd import VcdWriter

        observers.append(VcdWriter(args.vcd, simulation))
    if args.trace == TERMINAL:
        observers.append(Tracer(simulation.image, sys.stdout))
    elif args.step is not None and stops is not None:
        observers.append(Tracer(simulation.image, sys.stdout, lambda: stops.stepping))
    if args.trace not in (None, TERMINAL):
        observers.append(TraceFile(simulation.image, Path(args.trace)))
    return observers if stops is None else [*observers, stops]


def _write(
    args: argparse.Namespace,
    program: Program,
    simulation: Simulation,
    result: RunResult,
    dumps: list[Dump],
) -> None:
    """Everything is made first and written then, each file complete or not at all."""
    made = [(dump, dump.render(simulation)) for dump in dumps]
    for dump, data in made:
        if dump.path is None:
            print(data.decode(), end="")
        else:
            write_atomically(dump.path, data)
    if args.profile is None:
        return
    profile = simulation.profile(
        result, shared_vs_routed_note=routed_note(program, SHARED_VS_ROUTED_NOTE)
    )
    write_profile(profile, args.profile)
    warning = coverage_warning(profile)
    if warning is not None:
        print(warning)


if __name__ == "__main__":
    leave_with(main)
