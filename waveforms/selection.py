"""The selection of waves: all that a file shows of the machine but the memories, as groups.

Nothing here knows about files. `OVERVIEW` repeats the names that a viewer shows first.
"""

from collections.abc import Collection, Iterator
from typing import Any

from amaranth.hdl import Const

from isa.image import ProgramImage
from isa.instruction import word_text
from isa.opcodes import Unit
from isa.stages import Stage
from rtl.top import PlenaTop
from waveforms.flight import Flight
from waveforms.units import completion, hbm, heads, matrix, scalar, topk, vector
from waveforms.wave import (
    NOTHING,
    Computed,
    Group,
    Kind,
    Mapped,
    Wave,
    bit,
    member,
    number,
    opcode,
    stage,
    word,
)

#: Units by which a selection can be limited.
UNITS = ("control", "scalar", "vector", "matrix", "topk", "hbm")

#: What a viewer shows first, by full name.
OVERVIEW = (
    "run.clk",
    "run.cycle",
    "run.state",
    "run.bill_stage",
    "run.stall",
    "dispatch.valid",
    "dispatch.stage",
    "dispatch.opcode",
    "dispatch.instruction",
    "dispatch.line",
    "scoreboard.occupancy",
    "scalar.op",
    "vector.op",
    "matrix.op",
    "matrix.mac_busy",
    "topk.op",
    "hbm.op",
    "hbm.request_valid",
    "hbm.response_valid",
)


def select(top: PlenaTop, image: ProgramImage, flight: Flight) -> list[Group]:
    """Every group of a machine that runs `image`, in the order in which viewers show them.

    `flight` holds the unfinished instructions as they were before the events of the sampled cycle.
    """
    return [
        _run(top),
        _dispatch(top, image),
        _scoreboard(top, flight),
        matrix(top, flight),
        heads(top),
        vector(top, flight),
        scalar(top, flight),
        topk(top, flight),
        hbm(top, flight),
        _registers(top),
        _loops(top),
        _profile(top),
    ]


def limit(groups: list[Group], units: Collection[str] | None) -> list[Group]:
    """The groups of the `units` (or groups) named, and those that belong to no unit; all for None.

    Raises ValueError for a name that is neither a unit nor one of `groups`.
    """
    if units is None:
        return groups
    unknown = sorted(set(units) - {*UNITS, *(g.name for g in groups)})
    if unknown:
        raise ValueError(
            f"no unit or group is called {', '.join(unknown)}; units: {', '.join(UNITS)}; "
            f"groups: {', '.join(g.name for g in groups)}"
        )
    return [g for g in groups if g.unit is None or g.unit in units or g.name in units]


def _run(top: Any) -> Group:
    waves = (
        member("state", top.state, top.state.shape()),
        number("pc", top.pc),
        stage("bill_stage", top.bill_stage),
        member("stall", top.stall, top.stall.shape()),
        bit("counting", top.counting),
        bit("serial", top.serial),
    )
    return Group("run", None, 0.35, waves)


def _dispatch(top: Any, image: ProgramImage) -> Group:
    d = top.dispatch

    def text(pc: int) -> str:
        return word_text(int(image.words[pc])) if pc < len(image) else NOTHING

    def line(pc: int) -> int:
        return int(image.lines[pc]) if pc < len(image) else 0

    waves = (
        bit("valid", d.valid),
        stage("stage", d.stage),
        opcode("opcode", d.op),
        Wave("instruction", Kind.TEXT, d.pc, text),
        member("unit", d.unit, Unit),
        number("pc", d.pc),
        number("line", Mapped(d.pc, line, 32)),
        word("word", d.word),
        *completion("immediate_done", top.immediate_done),
    )
    return Group("dispatch", None, 0.8, waves)


def _scoreboard(top: Any, flight: Flight) -> Group:
    s = top.dispatcher.scoreboard
    waves = (
        number("occupancy", Computed(lambda: flight.total, 7)),
        bit("full", s.full),
        bit("empty", s.empty),
        number("free_slot", s.free_slot),
        bit("conflict", s.conflict),
        bit("conflict_hbm", s.conflict_hbm),
        stage("oldest_stage", s.oldest_stage),
    )
    return Group("scoreboard", "control", 0.24, waves)


def _registers(top: Any) -> Group:
    d = top.dispatcher

    def file(name: str, storage: Any, *, zero: bool) -> Iterator[Wave]:
        for i in range(storage.depth):
            yield word(f"{name}_{i}", Const(0, storage.shape) if zero and i == 0 else storage[i])

    waves = (
        *file("gp", d.gp.storage, zero=True),
        *file("f", d.f.storage, zero=True),
        *file("a", d.a, zero=False),
        word("scale", d.scale),
        word("stride", d.stride),
        word("v_mask", d.v_mask),
        word("topk", d.topk),
        bit("topk_valid", d.topk_valid),
        word("gp_pending", d.gp.pending),
        word("f_pending", d.f.pending),
    )
    return Group("registers", "control", 0.005, waves)


def _loops(top: Any) -> Group:
    loops = top.dispatcher.loops
    waves = (
        number("level", loops.level),
        number("top_pc", loops.top_pc),
        number("top_register", loops.top_register),
    )
    return Group("loops", "control", 0.02, waves)


def _profile(top: Any) -> Group:
    counters = top.profile.counters
    waves = (
        *(number(f"wall_{s.label}", counters["wall"].counts[s]) for s in Stage),
        number("overlap", top.profile.overlap),
    )
    return Group("profile", "control", 0.023, waves)
