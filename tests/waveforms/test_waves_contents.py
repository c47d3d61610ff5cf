"""What the waveform file says is what the machine did."""

from collections import Counter

import pytest
from vcdvcd import VCDVCD

from isa.opcodes import OPCODES, Unit
from isa.stages import Stage
from tests.waveforms.vcd_reader import read_vcd
from waveforms.query import first_dispatch, signal, stage_spans


def values(changes, cycles):
    """The value in each of the first `cycles` cycles."""
    value, by_cycle = None, dict(changes)
    row = []
    for cycle in range(cycles):
        value = by_cycle.get(cycle, value)
        row.append(value)
    return row


def test_the_first_cycle_of_every_stage_is_the_observers(record):
    run = record()
    assert run.result.ok
    for stage in Stage:
        cycles = [e.cycle for e in run.seen.dispatches if e.stage == stage]
        want = min(cycles) if cycles else None
        assert first_dispatch(run.path, stage.label) == want
    assert first_dispatch(run.path, "non_moe") > 20
    assert first_dispatch(run.path, "scatter_combine") is None


def test_every_dispatch_is_in_the_file_with_its_instruction(record):
    run = record()
    dump = read_vcd(run.path)
    for event in run.seen.dispatches:
        time = event.cycle * run.period
        assert dump.at("dispatch.valid", time) == 1
        assert dump.at("dispatch.pc", time) == event.pc
        assert dump.at("dispatch.word", time) == event.word
        assert dump.at("dispatch.stage", time) == Stage(event.stage).label
        assert dump.at("dispatch.opcode", time) == OPCODES[event.word & 0x3F].mnemonic
        assert dump.at("dispatch.instruction", time).startswith(OPCODES[event.word & 0x3F].mnemonic)
        assert dump.at("dispatch.line", time) == run.simulation.image.lines[event.pc]
    dispatching = values(signal(run.path, "dispatch.valid"), run.result.cycles)
    assert sum(dispatching) == len(run.seen.dispatches) > len(run.simulation.image)


PORTS = {
    "immediate": "dispatch.immediate_done",
    "matrix_product": "matrix.product_done",
    "matrix_write": "matrix.write_done",
    "vector": "vector.done",
    "vector_reduce": "vector.reduce_done",
    "scalar": "scalar.done",
    "hbm": "hbm.done",
}


@pytest.mark.parametrize("port", PORTS)
def test_completions_have_pc_and_stage_in_their_cycle(record, port):
    run = record()
    dump, name = read_vcd(run.path), PORTS[port]
    events = [e for e in run.seen.completions if e.port == port]
    assert events
    for event in events:
        time = event.cycle * run.period
        assert dump.at(f"{name}_valid", time) == 1
        assert dump.at(f"{name}_pc", time) == event.pc
        assert dump.at(f"{name}_stage", time) == Stage(event.stage).label
        assert dump.at(f"{name}_stage_index", time) == event.stage
    cycles = run.result.cycles
    assert sum(values(signal(run.path, f"{name}_valid"), cycles)) == len(events)


def test_an_element_of_an_array_has_one_plain_name_in_every_reader(record):
    run = record()
    want = [c["m_acc"][1][2] for c in run.seen.cycles]
    assert len(set(want)) > 2
    assert values(signal(run.path, "matrix.m_acc_1_2"), len(want)) == want
    theirs = VCDVCD(str(run.path), signals=["matrix.m_acc_1_2"])["matrix.m_acc_1_2"].tv
    assert values([(t // 1000, int(v, 2)) for t, v in theirs], len(want)) == want
    assert values(read_vcd_cycles(run.path, "matrix.m_acc_1_2"), len(want)) == want
    assert signal(run.path, "registers.gp_1")[-1][1] == 8
    assert signal(run.path, "registers.gp_0") == [(0, 0)]


def read_vcd_cycles(path, name):
    return [(time // 1000, value) for time, value in read_vcd(path).changes[name]]


def test_a_512_bit_signal_is_the_python_integer(record):
    run = record()
    cycles = len(run.seen.cycles)
    for name, key in (("hbm.request_data", "request"), ("hbm.response_data", "response")):
        want = [c[key] for c in run.seen.cycles]
        assert max(want).bit_length() > 256
        assert values(signal(run.path, name), cycles) == want
    beat = int.from_bytes(bytes(range(0x20, 0x60)), "little")  # what `prepare` puts there
    assert beat in dict(signal(run.path, "hbm.response_data")).values()
    assert beat in [value for _, value in read_vcd(run.path).changes["hbm.response_data"]]
    assert read_vcd(run.path).variables["hbm.response_data"] == ("wire", 512)


def test_every_enumeration_is_a_string_and_a_number_that_agree(record):
    dump = read_vcd(record().path)
    strings = [n for n, (kind, _) in dump.variables.items() if kind == "string"]
    enums = [n for n in strings if f"{n}_index" in dump.variables]
    assert set(strings) - set(enums) == {"dispatch.instruction"}
    for name in (n for n in enums if n.endswith("stage")):
        valid = {"stage": "busy", "mac_stage": "mac_busy"}.get(name.split(".")[1])
        valid = valid or f"{name.split('.')[1].removesuffix('_stage')}_valid"
        gate = f"{name.split('.')[0]}.{valid}"
        for time in dump.times:
            text, index = dump.at(name, time), dump.at(f"{name}_index", time)
            shown = dump.at(gate, time) if gate in dump.variables else True
            assert text == (Stage(index).label if shown else "-"), (name, time)
    for time in dump.times:
        index = dump.at("vector.op_index", time)
        want = OPCODES[index].mnemonic if index else "-"
        assert dump.at("vector.op", time) == want
    assert {v for _, v in dump.changes["run.state"]} == {"running", "halted"}
    assert {v for _, v in dump.changes["run.stall"]} >= {"none", "memory", "hazard"}


def test_memories_show_a_write_in_the_next_cycle(record):
    run = record()
    cycles = len(run.seen.cycles)
    for row in (1, 8, 12, 16):
        want = [c["vram"][row] for c in run.seen.cycles]
        assert values(signal(run.path, f"vram.row_{row}"), cycles) == want
    assert len(signal(run.path, "vram.row_12")) > 1, "M_MM_WO wrote some lanes of it"
    for word in range(8):
        want = [c["fp"] >> 16 * word & 0xFFFF for c in run.seen.cycles]
        assert values(signal(run.path, f"fp_mem.word_{word}"), cycles) == want
    assert len(signal(run.path, "fp_mem.word_3")) == 2
    assert [v for _, v in signal(run.path, "int_mem.word_5")] == [0, 128]
    tile = run.simulation.memories.read_matrix(1)
    row = sum(int(v) << 16 * lane for lane, v in enumerate(tile[3]))
    assert signal(run.path, "mram.tile_1_row_3") == [(0, row)]


def test_lanes_are_variables_on_request(record):
    path = record(lanes=True, memory_rows=range(16, 18)).path
    dump = read_vcd(path)
    rows = [n for n in dump.variables if n.startswith("vram.")]
    assert len(rows) == 2 * 9
    row = dump.changes["vram.row_17"][0][1]
    lanes = [dump.changes[f"vram.row_17_lane_{i}"][0][1] for i in range(8)]
    assert lanes == [0x4008 + i for i in range(8)]
    assert row == sum(lane << 16 * i for i, lane in enumerate(lanes))


def test_a_matrix_row_that_is_prefetched_shows_its_new_contents(record):
    run = record("H_PREFETCH_M gp0, gp0, a0, 0, 0\n")
    tile = run.simulation.memories.read_matrix(0)
    for row in range(8):
        want = sum(int(v) << 16 * lane for lane, v in enumerate(tile[row]))
        assert want
        assert [v for _, v in signal(run.path, f"mram.tile_0_row_{row}")] == [0, want]


def test_units_are_busy_as_long_as_they_have_unfinished_instructions(record):
    run = record()
    cycles = len(run.seen.cycles)
    for unit in ("scalar", "vector", "matrix", "hbm"):
        busy = values(signal(run.path, f"{unit}.busy"), cycles)
        unfinished = values(signal(run.path, f"{unit}.unfinished"), cycles)
        assert busy == [int(n > 0) for n in unfinished]
        assert any(busy)
    assert values(signal(run.path, "vector.busy"), cycles) == [c["busy"] for c in run.seen.cycles]
    empty = values(signal(run.path, "scoreboard.empty"), cycles)
    assert empty == [int(n == 0) for n in values(signal(run.path, "scoreboard.occupancy"), cycles)]


def test_the_op_of_a_unit_is_its_oldest_unfinished_instruction(record):
    run = record()
    ends: dict[int, list[int]] = {}
    for event in run.seen.completions:
        ends.setdefault(event.pc, []).append(event.cycle)
    lives = [(e, ends[e.pc].pop(0)) for e in run.seen.dispatches]
    most = 0
    for unit in (Unit.SCALAR, Unit.VECTOR, Unit.MATRIX, Unit.HBM):
        cycles = len(run.seen.cycles)
        pcs = values(signal(run.path, f"{unit.name.lower()}.op_pc"), cycles)
        codes = values(signal(run.path, f"{unit.name.lower()}.op_index"), cycles)
        for cycle in range(cycles):
            live = [e for e, end in lives if e.unit == unit and e.cycle < cycle <= end]
            most = max(most, len(live))
            assert pcs[cycle] == (live[0].pc if live else 0)
            assert codes[cycle] == (live[0].word & 0x3F if live else 0)
    assert most > 1


def test_spans_and_counters_are_the_profile(record):
    run = record()
    spans = stage_spans(run.path)
    assert spans[0][1] == 0
    assert [s[1] for s in spans[1:]] == [s[2] for s in spans[:-1]]
    lengths: Counter[str] = Counter()
    for label, start, stop in spans:
        lengths[label] += stop - start
    for stage in Stage:
        wall = run.result.counters["wall"][stage]
        assert lengths[stage.label] == wall
        assert signal(run.path, f"profile.wall_{stage.label}")[-1][1] == wall


def test_time_is_in_clock_periods_and_the_clock_toggles(record):
    run = record()
    dump = read_vcd(run.path)
    cycles = len(run.seen.cycles)
    assert "$timescale 1 ps $end" in run.path.read_text()
    clock = dump.changes["run.clk"]
    assert clock[:4] == [(0, 1), (500, 0), (1000, 1), (1500, 0)]
    assert dump.changes["run.cycle"] == [(1000 * i, i) for i in range(cycles + 1)]
    assert dump.at("run.state", cycles * 1000) == "halted"
    assert dump.times[-1] == (cycles + 1) * 1000
    assert dump.at("run.counting", (cycles - 1) * 1000) == 0


def test_equal_runs_give_equal_files(record):
    first = record().path.read_bytes()
    assert record().path.read_bytes() == first
