"""The command file for Surfer: the same waves under the same headings."""

from collections.abc import Sequence
from pathlib import Path

from waveforms.view import Section


def write_sucl(vcd: Path, view: Sequence[Section]) -> Path:
    """Writes the command file beside `vcd`: `surfer FILE.vcd --command-file FILE.sucl`.

    Formats and colours are left out: Surfer's commands for them act on the row that has the focus.
    """
    path = vcd.with_suffix(".sucl")
    lines = []
    for section in view:
        lines.append(f"divider_add {section.name}")
        lines += [f"variable_add {item.path}" for item in section.items]
    path.write_text("\n".join([*lines, "zoom_fit", ""]), encoding="utf-8")
    return path
