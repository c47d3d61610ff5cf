"""The comparison of engines as a table, as bounds that hold or do not, and as a picture."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from testbench.bench.workloads import WORKLOADS

__all__ = ["Bound", "bounds", "disagreements", "engine_table", "picture"]

_SPEEDS = (*(workload.name for workload in WORKLOADS), "shared_expert")
Figures = Mapping[str, Any]


def engine_table(config_name: str, figures: Sequence[Figures]) -> Table:
    """A column per engine."""
    table = Table(title=f"engines at configuration {config_name}")
    table.add_column("")
    for f in figures:
        table.add_column(f["engine"], justify="right")
    pysim = next((f for f in figures if f["engine"] == "pysim"), None)
    for name, cells in (
        ("elaboration, s", [f"{f['elaborate_seconds']:.1f}" for f in figures]),
        ("build, s", [f"{f['build_seconds']:.1f}" if f["has_cache"] else "-" for f in figures]),
        ("cached start, s", [_optional(f["cached_start_seconds"], ".2f") for f in figures]),
        *(
            (f"{name.replace('_', ' ')}, cycles/s", [_number(_rate(f[name])) for f in figures])
            for name in _SPEEDS
        ),
        (
            "long run, cycles/s",
            [_number(_rate(f["long"])) if "long" in f else "-" for f in figures],
        ),
        ("times pysim", [f"{_speed(f) / _speed(pysim):,.1f}" if pysim else "-" for f in figures]),
        ("host's share", [_optional(f.get("long", {}).get("host_share"), ".0%") for f in figures]),
        ("peak memory, MiB", [f"{f['peak_mebibytes']:,.0f}" for f in figures]),
        ("exact", ["yes" if _exact(f) else "NO" for f in figures]),
    ):
        table.add_row(name, *cells)
    return table


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _rate(run: Figures) -> float:
    return run["cycles_per_second"]


def _speed(figures: Figures) -> float:
    """Cycles per second on a shared expert that is long enough for this engine: what a run costs
    besides its cycles, some ten milliseconds, is most of a short one on a fast engine."""
    return _rate(figures.get("long", figures["shared_expert"]))


def _exact(figures: Figures) -> bool:
    return figures["shared_expert"]["exact"] and figures.get("long", {"exact": True})["exact"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def disagreements(figures: Sequence[Figures]) -> list[str]:
    """Engines that computed something wrong, or took another number of cycles than the first."""
    problems = [f"{f['engine']}: a result is not exact" for f in figures if not _exact(f)]
    for run in ("shared_expert", "long"):
        cycles = {f["engine"]: f[run]["cycles"] for f in figures if run in f}
        if len(set(cycles.values())) > 1:
            problems.append(f"{run}: the engines took different numbers of cycles: {cycles}")
    return problems


@dataclass(frozen=True)
class Bound:
    """A figure and what it must be."""

    text: str
    value: float
    limit: float
    at_least: bool

    @property
    def holds(self) -> bool:
        """Whether it is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def line(self) -> str:
        """For a terminal."""
        sign = "at least" if self.at_least else "at most"
        state = "holds" if self.holds else "MISSED"
        return f"{state}: {self.text} {_short(self.value)} ({sign} {_short(self.limit)})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def bounds(figures: Sequence[Figures]) -> list[Bound]:
    """What engine compiled must keep at the default configuration, as far as it was measured."""
    by_name = {f["engine"]: f for f in figures}
    compiled = by_name.get("compiled")
    if compiled is None:
        return []
    found = [
        Bound("compiled from nothing, s:", compiled["from_nothing_seconds"], 20, False),
        Bound("compiled, cached start, s:", compiled["cached_start_seconds"], 1, False),
        Bound("compiled, shared expert, cycles/s:", _speed(compiled), 100_000, True),
    ]
    if (long := compiled.get("long")) is not None:
        found += [
            Bound("compiled, long run, s:", long["seconds"], 20, False),
            Bound("compiled, host's share of the long run:", long["host_share"], 0.2, False),
        ]
    if (other := by_name.get("verilator")) is not None:
        ratio = compiled["from_nothing_seconds"] / other["from_nothing_seconds"]
        found += [
            Bound("compiled / verilator, from nothing:", ratio, 1 / 3, False),
            Bound(
                "compiled / verilator, shared expert:", _speed(compiled) / _speed(other), 3, True
            ),
        ]
    if (other := by_name.get("pysim")) is not None:
        ratio = _speed(compiled) / _speed(other)
        found.append(Bound("compiled / pysim, shared expert:", ratio, 2000, True))
    return found


def picture(config_name: str, figures: Sequence[Figures]) -> bytes:
    """Speeds and build times as a PNG; needs matplotlib, which is optional."""
    from matplotlib.figure import Figure

    names = [f["engine"] for f in figures]
    drawing = Figure(figsize=(11, 4.2), layout="constrained")
    speeds, times = drawing.subplots(1, 2, width_ratios=(2, 1))
    width = 0.8 / len(names)
    for number, f in enumerate(figures):
        values = [f[name]["cycles_per_second"] for name in _SPEEDS]
        places = [i + (number - (len(names) - 1) / 2) * width for i in range(len(_SPEEDS))]
        bars = speeds.bar(places, values, width, label=f["engine"])
        speeds.bar_label(bars, [_number(v) for v in values], rotation=90, fontsize=7, padding=2)
    speeds.set_yscale("log")
    speeds.margins(y=0.4)
    speeds.set_xticks(range(len(_SPEEDS)), [name.replace("_", " ") for name in _SPEEDS])
    speeds.set_ylabel("simulated cycles per second")
    speeds.set_title(f"configuration {config_name}")
    speeds.legend(fontsize=8)
    elaborate = [f["elaborate_seconds"] for f in figures]
    build = [f["build_seconds"] for f in figures]
    times.barh(names, elaborate, label="elaborate")
    times.barh(names, build, left=elaborate, label="build")
    times.invert_yaxis()
    times.set_xlabel("seconds from nothing")
    times.legend(fontsize=8)
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()
