"""The timeline: every instruction once, lanes without overlap, sums that are the profile's."""

import json
from contextlib import suppress

import pytest

from isa.opcodes import OPCODES, Unit
from isa.stages import Stage
from sim.observers import Observer
from tests.waveforms.conftest import SOURCE, Seen
from waveforms.timeline import Timeline


class Interrupts(Observer):
    def cycle(self, cycle):
        if cycle == 14:
            raise KeyboardInterrupt


@pytest.fixture
def timeline(prepare, tmp_path):
    """`timeline(*observers, **options of Timeline)`: document, what was seen, the result."""

    def run(*observers, source=SOURCE, **options):
        simulation = prepare(source)
        path, seen, result = tmp_path / "timeline.json", Seen(simulation), None
        watching = [seen, Timeline(path, simulation, **options), *observers]
        with suppress(KeyboardInterrupt):
            result = simulation.run(max_cycles=5000, observers=watching)
        return json.loads(path.read_text()), seen, result, simulation

    return run


def slices(document, *categories):
    return [e for e in document["traceEvents"] if e["ph"] == "X" and e["cat"] in categories]


UNITS = tuple(unit.name.lower() for unit in Unit)


def test_every_instruction_is_a_slice_from_dispatch_to_completion(timeline):
    document, seen, _, simulation = timeline()
    found = sorted((e["ts"], e["args"]["pc"], e["name"]) for e in slices(document, *UNITS))
    want = sorted((e.cycle, e.pc, OPCODES[e.word & 0x3F].mnemonic) for e in seen.dispatches)
    assert found == want
    ends = sorted((e["ts"] + e["dur"] - 1, e["args"]["pc"]) for e in slices(document, *UNITS))
    assert ends == sorted((e.cycle, e.pc) for e in seen.completions)
    for event in slices(document, *UNITS):
        pc, arguments = event["args"]["pc"], event["args"]
        assert arguments["stage"] == Stage(int(simulation.image.stages[pc])).label
        assert arguments["line"] == simulation.image.lines[pc]
        assert arguments["source"].startswith(event["name"])
        assert int(arguments["word"], 16) == simulation.image.words[pc]
        assert "unfinished" not in arguments


def test_the_stage_lane_adds_up_to_the_wall_cycles_and_the_stalls_to_theirs(timeline):
    document, _, result, _ = timeline()
    for stage in Stage:
        spans = [e["dur"] for e in slices(document, "stage") if e["name"] == stage.label]
        assert sum(spans) == result.counters["wall"][stage]
    assert sum(e["dur"] for e in slices(document, "stage")) == result.cycles
    for reason in ("hazard", "memory", "no_unit", "drain"):
        spans = [e["dur"] for e in slices(document, "stall") if e["name"] == reason]
        assert sum(spans) == sum(result.counters[f"stall_{reason}"])
    per_unit = sum(result.counters["dispatched"])
    assert len(slices(document, *UNITS)) == per_unit


def test_slices_of_a_lane_do_not_overlap_and_lanes_are_named_after_units(timeline):
    document, *_ = timeline()
    names = {
        e["tid"]: e["args"]["name"]
        for e in document["traceEvents"]
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    free: dict[int, int] = {}
    for event in sorted(slices(document, *UNITS, "stage", "stall"), key=lambda e: e["ts"]):
        assert event["dur"] > 0
        assert event["ts"] >= free.get(event["tid"], 0)
        free[event["tid"]] = event["ts"] + event["dur"]
        assert names[event["tid"]].split()[0] == event["cat"]
    assert "matrix 2" in names.values(), "two at once need two lanes"
    assert set(free) == set(names)


def test_it_says_that_a_cycle_is_a_microsecond(timeline):
    document, *_ = timeline()
    assert document["otherData"]["time"] == "1 cycle is shown as 1 us"
    titles = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert titles == ["PLENA, 1 cycle = 1 us"]


def test_after_an_interrupt_the_file_is_whole_and_names_what_is_unfinished(timeline):
    document, seen, *_ = timeline(Interrupts())
    found = slices(document, *UNITS)
    assert len(found) == len(seen.dispatches)
    unfinished = {e["args"]["pc"] for e in found if "unfinished" in e["args"]}
    done = [e.pc for e in seen.completions]
    assert unfinished == {e.pc for e in seen.dispatches if done.count(e.pc) == 0}
    assert unfinished
    assert all(e["ts"] + e["dur"] <= 15 for e in found)


def test_a_window_limits_it(timeline):
    document, seen, *_ = timeline(window=(5, 12))
    starts = sorted(e["ts"] for e in slices(document, *UNITS))
    assert starts == [e.cycle for e in seen.dispatches if 5 <= e.cycle < 12]
    assert sum(e["dur"] for e in slices(document, "stage")) == 7
    assert all(5 <= e["ts"] < 12 for e in slices(document, "stall"))
