"""The selection of waves: everything that a file shows but the memories, as groups of declared waves.

Which part of the machine, and in which order; nothing here knows about files. Every name is written
here once; `OVERVIEW` repeats those that a viewer shows first.
"""

from collections.abc import Collection
from typing import Any

from isa.image import ProgramImage
from isa.instruction import word_text
from isa.opcodes import Unit
from isa.stages import Stage
from rtl.dispatch.dispatcher import RunState, Stall
from rtl.top import PlenaTop
from waveforms.flight import Flight
from waveforms.wave import (
    NOTHING,
    Banked,
    Computed,
    Group,
    Kind,
    Wave,
    bit,
    member,
    number,
    opcode,
    stage,
    word,
)

#: Units by which a selection can be limited; their names are also the scopes of their waves.
UNITS = ("control", "scalar", "vector", "matrix", "hbm")

#: What a viewer shows open and at the top, by full name.
OVERVIEW = (
    "run.clk",
    "run.cycle",
    "run.state",
    "run.bill_stage",
    "dispatch.valid",
    "dispatch.stage",
    "dispatch.instruction",
    "dispatch.line",
    "run.stall",
    "scoreboard.occupancy",
    "scalar.op",
    "vector.op",
    "matrix.op",
    "matrix.mac_busy",
    "hbm.op",
    "hbm.request_valid",
    "hbm.response_valid",
)


def select(
    top: PlenaTop, image: ProgramImage, flight: Flight, units: Collection[str] | None = None
) -> list[Group]:
    """The groups of a machine that runs `image`, in the order in which viewers show them.

    Args:
        flight: the unfinished instructions as they were before the sampled cycle's events.
        units: limits the selection to these units or groups; `run` and `dispatch` are always there.

    Raises:
        ValueError: a name in `units` that is neither a unit nor a group.
    """
    groups = [
        _run(top),
        _dispatch(top, image),
        _scoreboard(top, flight),
        _matrix(top, flight),
        _vector(top, flight),
        _scalar(top, flight),
        _hbm(top, flight),
        _registers(top),
        _loops(top),
        _profile(top),
    ]
    return limit(groups, units)


def limit(groups: list[Group], units: Collection[str] | None) -> list[Group]:
    """Those of `groups` that are in a selection by `units` (see `select`)."""
    if units is None:
        return groups
    return [g for g in groups if g.unit is None or g.unit in units or g.name in units]


def check_units(units: Collection[str] | None, groups: Collection[str]) -> None:
    """Raises ValueError for a name in `units` that is neither a unit nor one of `groups`."""
    unknown = sorted(set(units or ()) - {*UNITS, *groups})
    if unknown:
        raise ValueError(
            f"units {', '.join(map(repr, unknown))}: choose from the units {', '.join(UNITS)}, "
            f"or the groups {', '.join(groups)}"
        )


def _run(top: PlenaTop) -> Group:
    return Group(
        "run",
        None,
        0.04,
        (
            member("state", top.state, RunState),
            bit("counting", top.counting),
            bit("serial", top.serial),
            number("pc", top.pc),
            stage("bill_stage", top.bill_stage),
            member("stall", top.stall, Stall),
        ),
    )


def _dispatch(top: PlenaTop, image: ProgramImage) -> Group:
    d = top.dispatch
    lines = image.lines

    def text(pc: int) -> str:
        return word_text(int(image.words[pc])) if pc < len(image) else NOTHING

    def line() -> int:
        pc = flight_pc[0]
        return int(lines[pc]) if pc < len(image) else 0

    flight_pc = [0]
    del line
    return Group(
        "dispatch",
        None,
        0.2,
        (
            bit("valid", d.valid),
            number("pc", d.pc),
            word("word", d.word),
            opcode("opcode", d.op),
            Wave("instruction", Kind.TEXT, d.pc, text),
            stage("stage", d.stage),
            member("unit", d.unit, Unit),
            *_completion("immediate_done", top.immediate_done),
        ),
    )
