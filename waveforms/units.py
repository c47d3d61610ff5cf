"""The waves of the units: what each one works on, its memory ports, its completions."""

from collections.abc import Iterator
from typing import Any

from isa.opcodes import Unit
from rtl.matrix.heads import block_columns
from waveforms.flight import Flight
from waveforms.wave import Banked, Computed, Group, Wave, bit, number, opcode, stage, word


def completion(name: str, port: Any) -> Iterator[Wave]:
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


def _unit(unit: Unit, top: Any, flight: Flight, issue: Any) -> Iterator[Wave]:
    """What every unit has: its oldest unfinished instruction, their number, its issue port."""
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


#: Rows of hm_acc that are shown of every head.
HM_ROWS = 4


def matrix(top: Any, flight: Flight) -> Group:
    """The matrix unit, its accumulators as the program sees them."""
    unit, accumulator = top.matrix, top.matrix.accumulator
    rows = range(len(accumulator.banks[0]))
    slot = accumulator.slot

    def m_acc(i: int, j: int) -> Banked:
        return Banked(accumulator.active, tuple(bank[i][j] for bank in accumulator.banks))

    def v_acc(j: int) -> Banked:
        return Banked(accumulator.v_active, tuple(bank[j] for bank in accumulator.v_banks))

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
        *completion("product_done", unit.product_done),
        *completion("write_done", unit.write_done),
        *(word(f"m_acc_{i}_{j}", m_acc(i, j)) for i in rows for j in rows),
        *(word(f"v_acc_{j}", v_acc(j)) for j in rows),
    )
    return Group("matrix", "matrix", 0.08, waves)


def heads(top: Any) -> Group:
    """The accumulators of the per-head forms, as stored: while `filled` is low they are +0.0."""
    unit, config = top.matrix.heads, top.config
    blocks = config.MLEN // block_columns(config)

    def acc(name: str, row: int, label: str) -> Iterator[Wave]:
        for head in range(config.heads):
            for block in range(blocks):
                column = block * block_columns(config)
                bank, address, _ = unit.place(config, head, row, column)
                yield word(f"{name}_{head}{label}_block_{block}", unit.storage[bank][address])

    waves = (
        bit("hm_acc_filled", unit.filled[0]),
        bit("hv_acc_filled", unit.filled[1]),
        bit("fetch_valid", unit.fetch.valid),
        number("fetch_row", unit.fetch.row),
        bit("add_valid", unit.add.valid),
        number("add_row", unit.add.row),
        bit("clear_hm", unit.clear),
        bit("clear_hv", unit.clear_hv),
        bit("read_en", unit.read_en),
        number("read_address", unit.read_address),
        *acc("hv_acc", config.MLEN, ""),
        *(w for row in range(min(HM_ROWS, config.MLEN)) for w in acc("hm_acc", row, f"_{row}")),
    )
    return Group("heads", "matrix", 0.002, waves)


def topk(top: Any, flight: Flight) -> Group:
    """The top-k unit."""
    unit, issue = top.topk, top.topk.issue.payload
    waves = (
        *_unit(Unit.TOPK, top, flight, unit.issue),
        number("issue_row", issue.row),
        number("issue_num_experts", issue.num_experts),
        number("issue_top_k", issue.top_k),
        *_read("vram_read", unit.vram_read),
        bit("int_write_valid", unit.int_write.valid),
        number("int_write_address", unit.int_write.address),
        number("int_write_value", unit.int_write.value),
        bit("fp_write_valid", unit.fp_write.valid),
        number("fp_write_address", unit.fp_write.address),
        word("fp_write_value", unit.fp_write.value),
        *completion("done", unit.done),
    )
    return Group("topk", "topk", 0.02, waves)


def vector(top: Any, flight: Flight) -> Group:
    """The vector unit."""
    unit, issue = top.vector, top.vector.issue.payload
    waves = (
        *_unit(Unit.VECTOR, top, flight, unit.issue),
        word("issue_scalar", issue.scalar),
        word("issue_heads", issue.heads),
        *_read("a_read", unit.a_read),
        *_read("b_read", unit.b_read),
        *_write("vram_write", unit.write),
        *completion("done", unit.done),
        *completion("reduce_done", unit.reduce_done),
        bit("fp_write_valid", unit.fp_write.valid),
        number("fp_write_index", unit.fp_write.index),
        word("fp_write_value", unit.fp_write.value),
    )
    return Group("vector", "vector", 0.16, waves)


def scalar(top: Any, flight: Flight) -> Group:
    """The scalar unit."""
    unit, issue = top.scalar, top.scalar.issue.payload
    waves = (
        *_unit(Unit.SCALAR, top, flight, unit.issue),
        word("issue_a", issue.a),
        word("issue_b", issue.b),
        number("issue_address", issue.address),
        *_write("vram_write", unit.vram_write),
        *completion("done", unit.done),
        bit("fp_write_valid", unit.fp_write.valid),
        number("fp_write_index", unit.fp_write.index),
        word("fp_write_value", unit.fp_write.value),
        bit("gp_write_valid", unit.gp_write.valid),
        number("gp_write_index", unit.gp_write.index),
        word("gp_write_value", unit.gp_write.value),
    )
    return Group("scalar", "scalar", 0.02, waves)


def hbm(top: Any, flight: Flight) -> Group:
    """The HBM port; addresses of requests count beats of 64 bytes."""
    request, response = top.hbm_request, top.hbm_response
    waves = (
        *_unit(Unit.HBM, top, flight, top.hbm.issue),
        word("issue_elements", top.hbm.issue.payload.elements),
        word("issue_scales", top.hbm.issue.payload.scales),
        bit("request_valid", request.valid),
        bit("request_ready", request.ready),
        word("request_address", request.payload.address),
        bit("request_write", request.payload.write),
        number("request_pc", request.payload.tag.pc),
        stage("request_stage", request.payload.tag.stage, request.valid),
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
        *completion("done", top.hbm.done),
        bit("error_valid", top.hbm.error.valid),
    )
    return Group("hbm", "hbm", 0.03, waves)
