"""All engines in one run, one after the other."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isa.config import PlenaConfig
from isa.image import write_atomically
from sim.engines import CompilerError
from sim.profile import report_console
from testbench.bench.measure import LONG_SHAPE, machine_facts, measure_engine
from testbench.bench.report import bounds, disagreements, engine_table, picture

__all__ = ["compare"]


def compare(
    config: PlenaConfig,
    names: Sequence[str],
    *,
    seconds: float,
    long: bool,
    output: Path | None,
    as_json: bool,
    must_hold: bool,
) -> int:
    """Measures the engines, and prints and writes the comparison after each, so that an interrupted
    run leaves what it has; returns the exit code.

    Args:
        output: folder for engines.json and engines.png.
        must_hold: a bound that is missed makes the exit code 1.
    """
    figures: list[dict[str, Any]] = []
    missing: list[str] = []
    draw = importlib.util.find_spec("matplotlib") is not None
    if output is not None and not draw:
        missing.append("no picture: pip install matplotlib (the extra 'plots')")
    interrupted = False
    try:
        for name in names:
            try:
                figures.append(measure_engine(name, config, seconds, long))
            except CompilerError as error:
                missing.append(f"{name} was left out: {error}")
                continue
            if output is not None:
                _write(config, figures, output, draw)
    except KeyboardInterrupt:
        interrupted = True
    problems = disagreements(figures)
    kept = bounds(figures)
    if as_json:
        print(json.dumps(_document(config, figures), indent=2))
    elif figures:
        console = report_console()
        console.print(engine_table(config.name, figures))
        if long:
            hidden, intermediate, rows = (n * config.MLEN for n in LONG_SHAPE)
            shape = f"hidden {hidden}, intermediate {intermediate}, {rows} rows"
            console.print(f"long run: shared expert, {shape}; host: its share of that time")
        for line in (*(bound.line for bound in kept), *missing, *problems):
            console.print(line, markup=False, highlight=False)
    if interrupted:
        return 130
    if not figures:
        return 2
    return int(bool(problems) or (must_hold and not all(bound.holds for bound in kept)))


def _document(config: PlenaConfig, figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "config": config.name,
        "config_digest": config.digest,
        "machine": machine_facts(),
        "engines": list(figures),
        "bounds": [
            {"text": b.text, "value": b.value, "limit": b.limit, "holds": b.holds}
            for b in bounds(figures)
        ],
        "problems": disagreements(figures),
    }


def _write(
    config: PlenaConfig, figures: Sequence[dict[str, Any]], folder: Path, draw: bool
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_document(config, figures), indent=2) + "\n"
    write_atomically(folder / "engines.json", text.encode())
    if draw:
        write_atomically(folder / "engines.png", picture(config.name, figures))
