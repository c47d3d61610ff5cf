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
from rtl.dispatch.dispatcher import RunState, Stall
from rtl.top import PlenaTop
from waveforms.flight import Flight
from waveforms.wave import (
    NOTHING,
    Banked,
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
UNITS = ("control", "scalar", "vector", "matrix", "hbm")

#: What a viewer shows first, by full name.
OVERVIEW = (
    "run.clk",
    "run.cycle",
    "run.state",
    "run.bill_stage",
    "run.stall",
    "dispatch.valid",
    "dispatch.stage",
    "dispatch.instruction",
    "dispatch.line",
    "scoreboard.occupancy",
    "scalar.op",
    "vector.op",
    "matrix.op",
    "matrix.mac_busy",
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
        _matrix(top, flight),
        _vector(top, flight),
        _scalar(top, flight),
        _hbm(top, flight),
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


def _completion(name: str, port: Any) -> Iterator[Wave]:
    """A completion port: who finishes in this cycle, if `valid`."""
    yield bit(f"{name}_valid", port.valid)
    yield number(f"{name}_pc", port.tag.pc)
    yield stage(f"{name}_stage", port.tag.stage, port.valid)


def _write(name: str, port: Any) -> Iterator[Wave]:
    """A write port of the vector SRAM; the data show in the row a cycle later."""
    yield bit(f"{name}_en", port.en)
    yield number(f"{name}_row", port.row)
    yield word(f"{name}_lanes", port.lanes)


def _read(name: str, port: Any) -> Iterator[Wave]:
    """A read port of the vector SRAM."""
    yield bit(f"{name}_en", port.en)
    yield number(f"{name}_row", port.row)


def _unit(unit: Unit, top: PlenaTop, flight: Flight, issue: Any) -> Iterator[Wave]:
    """What every unit has: its oldest unfinished instruction, how many there are, its issue port."""
    scoreboard, name = top.dispatcher.scoreboard, unit.name.lower()
    busy = getattr(scoreboard, f"busy_{name}")

    def oldest_code() -> int:
        entry = flight.oldest(unit)
        return 0 if entry is None else entry.word & 0x3F

    def oldest_pc() -> int:
        entry = flight.oldest(unit)
        return 0 if entry is None else entry.pc

    yield bit("busy", busy)
    yield stage("stage", getattr(scoreboard, f"busy_stage_{name}"), busy)
    yield opcode("op", Computed(oldest_code, 6))
    yield number("op_pc", Computed(oldest_pc, len(top.pc)))
    yield number("unfinished", Computed(lambda: flight.count(unit), 7))
    yield bit("issue_valid", issue.valid)
    yield bit("issue_ready", issue.ready)


def _run(top: PlenaTop) -> Group:
    waves = (
        member("state", top.state, RunState),
        number("pc", top.pc),
        stage("bill_stage", top.bill_stage),
        member("stall", top.stall, Stall),
        bit("counting", top.counting),
        bit("serial", top.serial),
    )
    return Group("run", None, 0.16, waves)


def _dispatch(top: PlenaTop, image: ProgramImage) -> Group:
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
        *_completion("immediate_done", top.immediate_done),
    )
    return Group("dispatch", None, 0.3, waves)


def _scoreboard(top: PlenaTop, flight: Flight) -> Group:
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
    return Group("scoreboard", "control", 0.2, waves)


def _matrix(top: PlenaTop, flight: Flight) -> Group:
    unit, accumulator = top.matrix, top.matrix.accumulator
    rows = range(len(accumulator.banks[0]))
    slot = accumulator.slot
    waves = (
        *_unit(Unit.MATRIX, top, flight, unit.issue),
        # In the order of the pipeline: columns of the tile, rows of activations, products, sums.
        bit("mram_read_en", unit.mram_read.en),
        number("mram_read_tile", unit.mram_read.tile),
        number("mram_read_index", unit.mram_read.index),
        bit("mram_read_transposed", unit.mram_read.transposed),
        *_read("vram_read", unit.vram_read),
        bit("mac_busy", unit.mac_busy),
        number("mac_pc", unit.mac_tag.pc),
        stage("mac_stage", unit.mac_tag.stage, unit.mac_busy),
        bit("accumulate_valid", slot.valid),
        number("accumulate_row", slot.row),
        bit("write_out_valid", slot.write_out.valid),
        *_write("vram_write", unit.vram_write),
        *_completion("product_done", unit.product_done),
        *_completion("write_done", unit.write_done),
        *(
            word(f"m_acc_{i}_{j}", Banked(accumulator.active, tuple(b[i][j] for b in accumulator.banks)))
            for i in rows
            for j in rows
        ),
    )
    return Group("matrix", "matrix", 0.15, waves)


def _vector(top: PlenaTop, flight: Flight) -> Group:
    unit, issue = top.vector, top.vector.issue.payload
    waves = (
        *_unit(Unit.VECTOR, top, flight, unit.issue),
        word("issue_scalar", issue.scalar),
        word("issue_heads", issue.heads),
        *_read("a_read", unit.a_read),
        *_read("b_read", unit.b_read),
        *_write("vram_write", unit.write),
        *_completion("done", unit.done),
        *_completion("reduce_done", unit.reduce_done),
        bit("fp_write_valid", unit.fp_write.valid),
        number("fp_write_index", unit.fp_write.index),
        word("fp_write_value", unit.fp_write.value),
    )
    return Group("vector", "vector", 0.2, waves)


def _scalar(top: PlenaTop, flight: Flight) -> Group:
    unit, issue = top.scalar, top.scalar.issue.payload
    waves = (
        *_unit(Unit.SCALAR, top, flight, unit.issue),
        word("issue_a", issue.a),
        word("issue_b", issue.b),
        number("issue_address", issue.address),
        *_write("vram_write", unit.vram_write),
        *_completion("done", unit.done),
        bit("fp_write_valid", unit.fp_write.valid),
        number("fp_write_index", unit.fp_write.index),
        word("fp_write_value", unit.fp_write.value),
        bit("gp_write_valid", unit.gp_write.valid),
        number("gp_write_index", unit.gp_write.index),
        word("gp_write_value", unit.gp_write.value),
    )
    return Group("scalar", "scalar", 0.05, waves)


def _hbm(top: PlenaTop, flight: Flight) -> Group:
    request, response = top.hbm_request, top.hbm_response
    waves = (
        *_unit(Unit.HBM, top, flight, top.hbm.issue),
        word("issue_elements", top.hbm.issue.payload.elements),
        word("issue_scales", top.hbm.issue.payload.scales),
        bit("request_valid", request.valid),
        bit("request_ready", request.ready),
        word("request_address", request.payload.address),  # counts beats of 64 bytes
        bit("request_write", request.payload.write),
        stage("request_stage", request.payload.stage, request.valid),
        word("request_data", request.payload.data),
        word("request_strobe", request.payload.strobe),
        bit("response_valid", response.valid),
        word("response_data", response.payload.data),
        bit("response_error", response.payload.error),
        bit("mram_write_en", top.hbm.mram_write.en),
        number("mram_write_tile", top.hbm.mram_write.tile),
        number("mram_write_row", top.hbm.mram_write.row),
        *_read("vram_read", top.hbm.vram_read),
        *_write("vram_write", top.hbm.vram_write),
        *_completion("done", top.hbm.done),
        bit("error_valid", top.hbm.error.valid),
    )
    return Group("hbm", "hbm", 0.1, waves)


def _registers(top: PlenaTop) -> Group:
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
    return Group("registers", "control", 0.02, waves)


def _loops(top: PlenaTop) -> Group:
    loops = top.dispatcher.loops
    waves = (
        number("level", loops.level),
        number("top_pc", loops.top_pc),
        number("top_register", loops.top_register),
    )
    return Group("loops", "control", 0.02, waves)


def _profile(top: PlenaTop) -> Group:
    counters = top.profile.counters
    waves = (
        *(number(f"wall_{s.label}", counters["wall"].counts[s]) for s in Stage),
        number("overlap", top.profile.overlap),
    )
    return Group("profile", "control", 0.02, waves)
