"""The save file for GTKWave: which waves, in which groups, formats and colours."""

from collections.abc import Sequence
from math import log2
from pathlib import Path

from vcd.gtkw import GTKWColor, GTKWSave

from waveforms.view import Item, Section
from waveforms.wave import Kind

_FORMATS = {
    Kind.BIT: "bin",
    Kind.DECIMAL: "dec",
    Kind.HEX: "hex",
    Kind.ENUM: "ascii",
    Kind.TEXT: "ascii",
}
_COLOURS = {
    None: GTKWColor.normal,
    "control": GTKWColor.normal,
    "scalar": GTKWColor.yellow,
    "vector": GTKWColor.indigo,
    "matrix": GTKWColor.red,
    "topk": GTKWColor.violet,
    "hbm": GTKWColor.orange,
}
#: Width of a cycle on the screen, at the beginning.
CYCLE_PIXELS = 64
#: GTKWave's zoom z shows 2**-z units of time in this many pixels.
ZOOM_PIXELS = 200


def write_gtkw(vcd: Path, view: Sequence[Section], period: int, first: int) -> Path:
    """Writes the save file beside `vcd`; `gtkwave FILE.gtkw` shows the waves from `first` on."""
    path = vcd.with_suffix(".gtkw")
    with path.open("w", encoding="utf-8") as file:
        save = GTKWSave(file)
        save.dumpfile(str(vcd))
        save.size(1600, 1000)
        save.zoom_markers(-log2(period * ZOOM_PIXELS / CYCLE_PIXELS))
        save.timestart(first * period)
        save.signals_width(320)
        save.sst_expanded(False)
        for number, section in enumerate(view):
            with save.group(section.name, closed=number > 0):
                for item in section.items:
                    save.trace(
                        _name(item),
                        alias=item.label,
                        datafmt=_FORMATS[item.kind],
                        color=_COLOURS[_unit(section, item)],
                    )
    return path


def _name(item: Item) -> str:
    """As GTKWave calls it: vectors with their range."""
    return f"{item.path}[{item.width - 1}:0]" if item.width > 1 else item.path


def _unit(section: Section, item: Item) -> str | None:
    """The overview takes the colours of the units."""
    scope = item.path.partition(".")[0]
    return section.unit if section.unit or scope not in _COLOURS else scope
