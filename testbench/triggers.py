"""Whether it is time to add an instruction for shared experts: three conditions, measured.

python -m testbench.triggers
python -m testbench.triggers --config tiny --rows 64 128 --run-defects --json

    T1  cost          the sigmoid gate takes 10 % of the MoE cycles, or of the instruction memory
    T2  attribution   a defect that bills cycles to the wrong stage goes unnoticed
    T3  coverage      a variant of shared experts cannot be lowered exactly to today's instructions

The gate is the only part of a shared expert that is not a projection, an activation or an add,
all of which other layers have too; so it is the part that an instruction could be for.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from compiler import CompileError, SharedExpertSpec, compile_shared_expert
from isa.command import leave_with
from isa.config import PRESETS, ConfigError, PlenaConfig, load_config
from isa.stages import BRANCH_OF, Branch, Stage
from sim.engine import Engine
from sim.engines import ENGINES, make_engine
from sim.profile import report_console
from sim.simulation import Simulation
from testbench.defect_table import DEFECTS
from testbench.defects import run_defect
from testbench.reference.data import SaturatedGate
from testbench.shared_case import SharedCase, build_case, spec_of

EXIT_QUIET, EXIT_FIRED, EXIT_USAGE = 0, 1, 2
THRESHOLD = 0.10
ROWS = (64, 128, 256, 512)
GATE = Stage.SHARED_EXPERT_GATE
VRAM_ROWS_LIMIT = 1 << 20
SEEDS = 32

#: Defects of `testbench.defects` by what they break; a test fails when one is in neither.
ATTRIBUTION_DEFECTS = frozenset(
    {
        "markers_not_emitted",
        "shared_marked_as_routed",
        "stage_typo",
        "stage_typo_in_argument",
        "call_site_removed",
        "stage_default",
        "guard_unwired",
        "lint_unwired",
        "legacy_clause_lost",
        "unclassified_stage",
        "tag_dropped_in_dispatcher",
        "tag_off_by_one",
        "counter_counts_issue",
    }
)
OTHER_DEFECTS = frozenset(
    {"completion_lost", "gate_multiply_dropped", "topk_packing_shift", "topk_reads_128"}
)


@dataclass(frozen=True)
class Variant:
    """A form of shared expert; widths in units of MLEN."""

    model: str
    arch: str
    intermediate: int
    n_shared: int
    biases: bool = False


#: lowering.md section 5, "Fused width", and every form with biases.
VARIANTS = (
    Variant("DeepSeek-V2, two fused", "deepseek", 1, 2),
    Variant("DeepSeek-V3, Kimi K2", "kimi", 1, 1),
    Variant("Qwen2-MoE, Qwen3-Next, own width, gate", "qwen2", 3, 1),
    Variant("Llama-4, width of a routed expert", "llama4", 1, 1),
    Variant("GLM-4.5", "glm4", 2, 1),
    Variant("three fused, gate", "qwen2", 1, 3),
    Variant("biases", "llama4", 2, 1, biases=True),
    Variant("two fused, biases", "deepseek", 1, 2, biases=True),
    Variant("gate, biases", "qwen2", 2, 1, biases=True),
)
VARIANT_ROWS = 5


@dataclass
class Trigger:
    """One condition: what was measured, against what, and whether it fires."""

    name: str
    question: str
    measured: float
    threshold: float
    fires: bool
    unit: str
    remark: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)


def gate_words(config: PlenaConfig, spec: SharedExpertSpec, rows: int) -> int:
    """Words of the program that are under shared_expert_gate."""
    image = compile_shared_expert(config, spec, rows=rows).image
    return sum(int(stage) == GATE for stage in image.stages)


def fitting(config: PlenaConfig, spec: SharedExpertSpec, rows: int) -> PlenaConfig:
    """`config`, with as much more vector SRAM as `rows` tokens need; CompileError when no amount
    helps."""
    while True:
        try:
            compile_shared_expert(config, spec, rows=rows)
        except CompileError:
            if config.VRAM_ROWS * 2 > VRAM_ROWS_LIMIT:
                raise
            config = config.replace(VRAM_ROWS=config.VRAM_ROWS * 2)
        else:
            return config


def _case(config: PlenaConfig, spec: SharedExpertSpec, rows: int) -> SharedCase:
    """A case of the first seed for which no gate is saturated."""
    for seed in range(SEEDS - 1):
        try:
            return build_case(config, spec, rows=rows, seed=seed)
        except SaturatedGate:
            continue
    return build_case(config, spec, rows=rows, seed=SEEDS - 1)


def _run(case: SharedCase, engine: Engine) -> tuple[list[int], list[str]]:
    """Wall cycles per stage, and what is not exact."""
    simulation = Simulation(case.config, case.program.image, case.hbm(), engine=engine)
    case.load(simulation)
    result = simulation.run(progress=True)
    if not result.ok:
        return [0] * len(Stage), [result.report(simulation.image)]
    wrong = [str(c) for c in case.check(simulation) if not c.ok]
    return result.counters["wall"], wrong + case.check_stages(result)


def measure_cost(config: PlenaConfig, engine_name: str, rows: Sequence[int]) -> Trigger:
    """T1 for a Qwen2 shared expert with hidden = intermediate = MLEN.

    The MoE cycles are those of all stages but non_moe and other. There are no routed experts in
    them, so the share is an upper bound: a layer's is smaller. RuntimeError when a result is wrong.
    """
    spec = spec_of("qwen2", hidden=config.MLEN, intermediate=config.MLEN)
    config = fitting(config, spec, max(rows))
    engine = make_engine(engine_name, config)
    trigger = Trigger("T1", "share of shared_expert_gate", 0.0, THRESHOLD, False, "share")
    for count in rows:
        wall, wrong = _run(_case(config, spec, count), engine)
        if wrong:
            raise RuntimeError(f"{count} rows: {wrong[0]}")
        moe = sum(wall[stage] for stage in Stage if BRANCH_OF[stage] is not Branch.OUTSIDE)
        words = gate_words(config, spec, count)
        trigger.rows.append(
            {
                "rows": count,
                "gate_cycles": wall[GATE],
                "moe_cycles": moe,
                "cycle_share": wall[GATE] / moe,
                "gate_words": words,
                "imem_words": config.IMEM_WORDS,
                "word_share": words / config.IMEM_WORDS,
            }
        )
    shares = [row[key] for row in trigger.rows for key in ("cycle_share", "word_share")]
    trigger.measured = max(shares)
    trigger.fires = trigger.measured >= THRESHOLD
    trigger.remark = (
        f"configuration {config.name}, MLEN {config.MLEN}, {config.VRAM_ROWS} rows of vector SRAM, "
        f"engine {engine.name}; no routed experts in the MoE cycles, so an upper bound"
    )
    return trigger


def count_misattributions(*, run: bool) -> Trigger:
    """T2: attribution defects that no check notices; without `run`, only what is listed."""
    defects = [d for d in DEFECTS if d.name in ATTRIBUTION_DEFECTS]
    trigger = Trigger("T2", "misattributions that go unnoticed", 0, 1, False, "defects")
    for number, defect in enumerate(defects, 1):
        row: dict[str, Any] = {"defect": defect.name, "caught": None, "by": defect.check}
        if run:
            print(f"[{number}/{len(defects)}] {defect.name} ...", file=sys.stderr, flush=True)
            outcome = run_defect(defect)
            row |= {"caught": outcome.caught, "by": outcome.by}
        trigger.rows.append(row)
    trigger.measured = sum(row["caught"] is False for row in trigger.rows)
    trigger.fires = trigger.measured >= 1
    trigger.remark = (
        f"{sum(row['caught'] is True for row in trigger.rows)} of {len(defects)} caught"
        if run
        else f"{len(defects)} listed, each with its test; not run (--run-defects)"
    )
    return trigger


def lower_variants(engine_name: str) -> Trigger:
    """T3: variants that are not lowered exactly, at the tiny configuration."""
    config = PRESETS["tiny"]
    engine = make_engine(engine_name, config)
    trigger = Trigger("T3", "variants that are not lowered exactly", 0, 1, False, "variants")
    for variant in VARIANTS:
        spec = spec_of(
            variant.arch,
            hidden=2 * config.MLEN,
            intermediate=variant.intermediate * config.MLEN,
            n_shared=variant.n_shared,
            biases=variant.biases,
        )
        try:
            _, wrong = _run(_case(config, spec, VARIANT_ROWS), engine)
        except CompileError as error:
            wrong = [str(error)]
        row = {"variant": variant.model, "width": spec.width, "gate": spec.gated}
        row |= {"count": spec.n_shared, "bias": spec.biases}
        trigger.rows.append({**row, "exact": not wrong, "wrong": wrong[:1]})
    trigger.measured = sum(not row["exact"] for row in trigger.rows)
    trigger.fires = trigger.measured >= 1
    trigger.remark = f"{len(VARIANTS)} variants, {VARIANT_ROWS} rows, engine {engine.name}"
    return trigger


def print_trigger(trigger: Trigger) -> None:
    """The figures of one condition, and its verdict."""
    console = report_console()
    columns = [key for key in trigger.rows[0] if key != "wrong"]
    table = Table(*columns, title=f"{trigger.name}: {trigger.question}", title_justify="left")
    for row in trigger.rows:
        table.add_row(*(_text(row[key]) for key in columns))
    console.print(table)
    measured = f"{trigger.measured:.1%}" if trigger.unit == "share" else f"{trigger.measured:g}"
    limit = f"{trigger.threshold:.0%}" if trigger.unit == "share" else f"{trigger.threshold:g}"
    verdict = "FIRES" if trigger.fires else "does not fire"
    console.print(f"{trigger.name} {verdict}: {measured}, fires from {limit}. {trigger.remark}\n")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2%}"
    if value is None:
        return "not run"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the conditions; 1 when one fires."""
    p = argparse.ArgumentParser(
        prog="python -m testbench.triggers",
        description="Measure the conditions for adding an instruction for shared experts.",
        epilog="Exit code: 0 no condition fires, nothing is to be added; 1 one fires, the decision "
        "is to be made again; 2 the request cannot be run, or a measured run is wrong.",
    )
    # The default configuration takes many minutes without the compiled engine.
    compiled = "compiled" in ENGINES
    preset, engine = ("default", "compiled") if compiled else ("tiny", "auto")
    p.add_argument(
        "--config",
        default=preset,
        metavar="NAME|FILE",
        help=f"of T1: {', '.join(PRESETS)} or a TOML file (default: {preset})",
    )
    p.add_argument("--engine", choices=("auto", *ENGINES), default=engine)
    p.add_argument(
        "--rows", type=int, nargs="+", default=list(ROWS), metavar="T", help="tokens of T1"
    )
    p.add_argument("--run-defects", action="store_true", help="inject T2's defects (minutes)")
    p.add_argument("--json", action="store_true", help="print JSON instead of the tables")
    args = p.parse_args(arguments)
    try:
        triggers = [
            measure_cost(load_config(args.config), args.engine, args.rows),
            count_misattributions(run=args.run_defects),
            lower_variants(args.engine),
        ]
    except (ConfigError, CompileError, SaturatedGate, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    fired = [trigger.name for trigger in triggers if trigger.fires]
    if args.json:
        print(json.dumps({"fired": fired, "triggers": [asdict(t) for t in triggers]}, indent=2))
    else:
        for trigger in triggers:
            print_trigger(trigger)
        print(f"verdict: {', '.join(fired)} fired" if fired else "verdict: no trigger fires")
    return EXIT_FIRED if fired else EXIT_QUIET


if __name__ == "__main__":
    leave_with(main)
