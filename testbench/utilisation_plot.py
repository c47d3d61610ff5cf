"""Draws what `testbench.utilisation` measured: cycles, memory traffic, use of the hardware."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isa.image import write_atomically
from testbench.running import RequestError

PANELS = (
    ("cycles", "cycles per token", True, lambda row: row["cycles"] / row["tokens"]),
    ("hbm_bytes", "HBM bytes per token", True, lambda row: row["hbm_bytes"] / row["tokens"]),
    (
        "rows_per_fetch",
        "token rows per fetched weight tile",
        True,
        lambda row: row["rows_per_fetch"],
    ),
    (
        "multiplier_busy",
        "multipliers busy in the projections, %",
        False,
        lambda row: 100 * row["multiplier_busy"],
    ),
)


class PlotError(RequestError):
    """A plot that cannot be drawn."""


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Write a figure with a panel per quantity, over the number of tokens; whole or not at all.

    `document` is the JSON document of the command. PlotError when matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import StrMethodFormatter
    except ImportError:
        raise PlotError(
            "--plot needs matplotlib (pip install 'plena-sim[plots]'; the table and the JSON "
            "document do not)"
        ) from None
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2).flat
    rows = document["rows"]
    names = list(dict.fromkeys(row["lowering"] for row in rows))
    for axis, (_, label, logarithmic, value) in zip(axes, PANELS, strict=True):
        for name in names:
            points = [(row["tokens"], value(row)) for row in rows if row["lowering"] == name]
            style = "--" if "seed" in name else "-"
            axis.plot(*zip(*points, strict=True), style, marker="o", label=name)
        axis.set_xscale("log", base=2)
        if logarithmic:
            axis.set_yscale("log", base=2)
        for scaled in (axis.xaxis, axis.yaxis):
            scaled.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
        axis.set_xlabel("tokens")
        axis.set_ylabel(label)
        axis.grid(True, alpha=0.3)
    spec = document["spec"]
    figure.suptitle(
        f"{spec['experts']} experts, top {spec['top_k']}, hidden {spec['hidden']}, intermediate "
        f"{spec['intermediate']}; configuration {document['config']}, measured in RTL"
    )
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=150)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
