"""What a viewer shows of a file, for every viewer's own kind of command file."""

from collections.abc import Sequence
from dataclasses import dataclass

from waveforms.contents import Contents
from waveforms.sampler import Channel
from waveforms.selection import OVERVIEW
from waveforms.wave import Group, Kind

#: Rows of a memory that a viewer shows; the others are in its tree of signals.
ROWS_SHOWN = 32


@dataclass(frozen=True)
class Item:
    """A variable to show: its full name, a short one, how, and its width (0 for a string)."""

    path: str
    label: str
    kind: Kind
    width: int


@dataclass(frozen=True)
class Section:
    """Items under a heading; only the first section of a view is shown open."""

    name: str
    unit: str | None
    items: tuple[Item, ...]


def view_of(
    groups: Sequence[Group], channels: Sequence[Channel], contents: Sequence[Contents]
) -> list[Section]:
    """An overview, then a section per group and memory, without the numbers beside strings."""
    shown = [c for c in channels if not c.beside]
    # No dots in a label: GTKWave shows only what is behind the last one.
    by_path = {c.path: Item(c.path, f"{c.scope} {c.name}", c.kind, c.width) for c in shown}
    by_path["run.clk"] = Item("run.clk", "run clk", Kind.BIT, 1)
    overview = tuple(by_path[path] for path in OVERVIEW if path in by_path)
    sections = [Section("overview", None, overview)]
    for group in groups:
        items = [Item(c.path, c.name, c.kind, c.width) for c in shown if c.scope == group.name]
        sections.append(Section(group.name, group.unit, tuple(items)))
    for memory in contents:
        kind = Kind.HEX
        rows = list(memory.of_row)[:ROWS_SHOWN]
        items = [
            Item(f"{memory.name}.{cell.name}", cell.name, kind, cell.width)
            for row in rows
            for cell in memory.of_row[row]
        ]
        sections.append(Section(memory.name, memory.unit, tuple(items)))
    return sections
