"""Measures how well each lowering of a layer's experts uses the matrix unit and the memory.

python -m testbench.utilisation                     # the published rows, and the better lowerings
python -m testbench.utilisation --plot build/utilisation.png --json
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from compiler.linear import Form
from compiler.routed_experts import Accumulation
from compiler.routed_spec import Lowering, RoutedSpec
from isa.command import leave_with
from isa.config import PRESETS, PlenaConfig, load_config
from isa.image import write_atomically
from isa.instruction import Instruction
from sim.engine import Engine
from sim.engines import ENGINES, make_engine
from sim.profile import report_console
from sim.simulation import Simulation
from testbench.routed_case import build_routed_case
from testbench.routed_shape import add_shape_options, shape_of
from testbench.running import EXIT_FAIL, EXIT_PASS, RequestError, exit_code
from testbench.shared_case import build_case, spec_of
from testbench.utilisation_plot import draw
from testbench.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement: a lowering at a number of tokens; counts of emitted and executed words.

    Products are M_MM, fetches H_PREFETCH_M (one weight tile each).
    `rows_per_fetch`: token rows that are multiplied with a weight tile, per fetch of it.
    `rows_per_product`: rows of tokens per M_MM, of BLEN.
    """

    lowering: str
    tokens: int
    exact: bool
    emitted_products: int
    executed_products: int
    emitted_fetches: int
    executed_fetches: int
    rows_per_fetch: float
    rows_per_product: float
    multiplier_busy: float
    hbm_bytes: int
    cycles: int


@dataclass(frozen=True)
class Measured:
    """A lowering of the table: its name, its token counts, and how to build it."""

    name: str
    tokens: tuple[int, ...]
    build: Callable[[PlenaConfig, RoutedSpec, int], Workload]


def _routed(lowering: Lowering, *, known: bool = True, form: Form = Form.BUFFERED):
    order = Accumulation.PAIR if lowering is Lowering.PAIR else Accumulation.EXPERT

    def build(config: PlenaConfig, spec: RoutedSpec, tokens: int) -> Workload:
        return build_routed_case(
            config, spec, tokens=tokens, lowering=lowering, order=order, known=known, form=form
        )

    return build


def _shared(form: Form):
    def build(config: PlenaConfig, spec: RoutedSpec, tokens: int) -> Workload:
        one = spec_of("llama4", hidden=spec.hidden, intermediate=spec.intermediate)
        return build_case(config, one, rows=tokens, form=form)

    return build


#: The published rows are those of the seed's form; the others are what the compiler does now.
LOWERINGS = (
    Measured("pair-major, seed's form", (1, 4, 16), _routed(Lowering.PAIR, form=Form.SEED)),
    Measured("shared, seed's form", (1, 8, 64, 128), _shared(Form.SEED)),
    Measured("pair-major", (1, 4, 16, 64), _routed(Lowering.PAIR)),
    Measured("expert-major, known", (1, 4, 16, 64), _routed(Lowering.EXPERT)),
    Measured("expert-major, sorted", (1, 4, 16, 64), _routed(Lowering.EXPERT, known=False)),
    Measured("shared", (1, 8, 64, 128), _shared(Form.BUFFERED)),
)


def measure(engine: Engine, form: Measured, spec: RoutedSpec, tokens: int) -> Row:
    """Build, run and count one row. What was executed is counted by the hardware."""
    config = engine.config
    case = form.build(config, spec, tokens)
    simulation = Simulation(config, case.image, case.hbm(), engine=engine)
    case.load(simulation)
    result = simulation.run()
    exact = result.ok and all(c.ok for c in case.check(simulation))
    emitted = Counter(
        Instruction.decode(word).opcode.mnemonic for word in case.image.words.tolist()
    )
    counters = result.counters
    products = sum(counters["completed_matrix_product"])
    fetches = sum(counters["completed_hbm"][stage] for stage in case.projection_stages)
    top_k = 1 if "shared" in form.name else spec.top_k
    blocks = 3 * (spec.hidden // config.MLEN) * (spec.intermediate // config.MLEN)
    used = tokens * top_k * blocks  # (token row, weight tile) products
    wall = sum(counters["wall"][stage] for stage in case.projection_stages)
    busy = sum(counters["multipliers"][stage] for stage in case.projection_stages)
    return Row(
        lowering=form.name,
        tokens=tokens,
        exact=exact,
        emitted_products=emitted["M_MM"],
        executed_products=products,
        emitted_fetches=emitted["H_PREFETCH_M"],
        executed_fetches=fetches,
        rows_per_fetch=used / max(1, fetches),
        rows_per_product=used * (config.MLEN // config.BLEN) / max(1, products),
        multiplier_busy=busy / max(1, wall),
        hbm_bytes=simulation.hbm.total_read + simulation.hbm.total_written,
        cycles=result.cycles,
    )


def table_of(rows: Sequence[Row], title: str) -> Table:
    """The measurements for a person."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    heads = (
        "M_MM\nemitted",
        "M_MM\nexec.",
        "fetches\nemitted",
        "fetches\nexec.",
        "rows per\nfetch",
        "rows per\nM_MM",
        "multi-\npliers",
        "HBM\nbytes",
        "cycles",
        "exact",
    )
    table.add_column("lowering", no_wrap=True)
    table.add_column("tokens", justify="right")
    for head in heads:
        table.add_column(head, justify="right")
    previous = ""
    for row in rows:
        if previous not in ("", row.lowering):
            table.add_section()
        table.add_row(
            row.lowering if row.lowering != previous else "",
            str(row.tokens),
            str(row.emitted_products),
            str(row.executed_products),
            str(row.emitted_fetches),
            str(row.executed_fetches),
            f"{row.rows_per_fetch:.4g}",
            f"{row.rows_per_product:.3g}",
            f"{row.multiplier_busy:.1%}",
            str(row.hbm_bytes),
            str(row.cycles),
            "yes" if row.exact else "NO",
        )
        previous = row.lowering
    return table


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.utilisation",
        description="Count and measure, cycle by cycle, the lowerings of a layer's experts: "
        "pair-major, expert-major with routing that is known or sorted on the machine, and a "
        "shared expert; the published rows in the seed's form first. Emitted counts are words of "
        "the program, executed ones are counted by the hardware.",
        epilog="Exit code: 0 every result is exact; 1 one is not; 2 the request cannot be run.",
    )
    p.add_argument("--config", default="default", help=f"{', '.join(PRESETS)}, or a TOML file")
    p.add_argument("--engine", choices=("auto", *ENGINES), default="auto")
    add_shape_options(p)
    p.add_argument(
        "--tokens",
        type=int,
        action="append",
        metavar="T",
        help="instead of each lowering's own token counts; may be repeated",
    )
    p.add_argument("--output", type=Path, metavar="FILE", help="write the JSON document here too")
    p.add_argument("--plot", type=Path, metavar="FILE", help="draw it (.png, .svg or .pdf)")
    p.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return p


def run(args: argparse.Namespace) -> int:
    """Measure everything, then show and write it."""
    config = load_config(args.config)
    spec = shape_of(args, config)
    if args.plot is not None and args.plot.suffix not in (".png", ".svg", ".pdf"):
        raise RequestError(f"--plot {args.plot}: the name must end in .png, .svg or .pdf")
    engine = make_engine(args.engine, config)
    rows = []
    for form in LOWERINGS:
        for tokens in args.tokens or form.tokens:
            print(f"measuring {form.name}, {tokens} tokens ...", file=sys.stderr)
            rows.append(measure(engine, form, spec, tokens))
    document: dict[str, Any] = {
        "config": config.name,
        "config_digest": config.digest,
        "engine": engine.name,
        "spec": asdict(spec),
        "rows": [asdict(row) for row in rows],
    }
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(args.output, (json.dumps(document, indent=2) + "\n").encode())
    if args.plot is not None:
        draw(document, args.plot)
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        title = (
            f"{spec.experts} experts, top {spec.top_k}, hidden {spec.hidden}, intermediate "
            f"{spec.intermediate}; configuration {config.name}, engine {engine.name}"
        )
        report_console().print(table_of(rows, title))
    return EXIT_PASS if all(row.exact for row in rows) else EXIT_FAIL


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns the exit code."""
    args = parser().parse_args(arguments)
    return exit_code(lambda: run(args))


if __name__ == "__main__":
    leave_with(main)
