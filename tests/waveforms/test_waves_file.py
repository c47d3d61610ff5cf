"""The file itself: limited by window and unit, whole after an interrupt, with what viewers need."""

import pytest

from sim.observers import Observer, TagError
from tests.waveforms.conftest import SOURCE
from tests.waveforms.vcd_reader import read_vcd
from waveforms.gtkw import write_gtkw
from waveforms.query import signal
from waveforms.size import LARGE_BYTES, instructions_of
from waveforms.vcd import VcdWriter


class Raises(Observer):
    """Raises in a cycle, or at a dispatch in it."""

    def __init__(self, error, at, *, in_event=False):
        self._error, self._at, self._in_event = error, at, in_event

    def cycle(self, cycle):
        if cycle == self._at and not self._in_event:
            raise self._error

    def dispatched(self, event):
        if event.cycle >= self._at and self._in_event:
            raise self._error


def test_a_window_holds_its_cycles_and_no_others(record):
    path = record().path
    everything, size = read_vcd(path), path.stat().st_size
    run = record(window=(10, 15))
    part = read_vcd(run.path)
    assert part.changes["run.cycle"] == [(1000 * c, c) for c in range(10, 15)]
    assert (part.times[0], part.times[-1]) == (10_000, 15_000)
    assert part.variables == everything.variables
    for name in part.variables:
        for cycle in range(10, 15):
            assert part.at(name, 1000 * cycle) == everything.at(name, 1000 * cycle), name
    assert run.path.stat().st_size < size


def test_the_file_is_complete_as_soon_as_the_window_is_over(record, tmp_path):
    class Looks(Observer):
        def cycle(self, cycle):
            if cycle == 16:
                assert read_vcd(tmp_path / "waves.vcd").times[-1] == 15_000

    assert record(window=(10, 15), observers=lambda _: [Looks()]).error is None


def test_a_window_to_the_end_has_the_final_state(record):
    run = record(window=(20, None))
    changes = read_vcd(run.path).changes["run.state"]
    assert [v for _, v in changes] == ["running", "halted"]


def test_a_window_that_is_never_reached_leaves_an_empty_file_and_says_so(record, capsys):
    run = record(window=(100_000, None))
    assert run.result.ok
    assert read_vcd(run.path).variables == {}
    assert "ended before the window, cycles 100000 to the end" in capsys.readouterr().err


@pytest.mark.parametrize("window", [(5, 5), (7, 2), (-1, None)])
def test_impossible_windows_are_refused(record, window):
    with pytest.raises(ValueError, match="cycles count from 0"):
        record(window=window)


@pytest.mark.parametrize("rows", [-1, range(0, 9, 2), range(-3, 4)])
def test_impossible_rows_are_refused(record, rows):
    with pytest.raises(ValueError, match="must be a number of rows, or a range"):
        record(memory_rows=rows)


def test_an_engine_that_fails_keeps_its_own_error_and_the_file_whole(record, monkeypatch):
    class Breaks(Observer):
        def cycle(self, cycle):
            if cycle == 8:
                monkeypatch.setattr("waveforms.sampler.Sampler.read", lambda _: 1 // 0)
                raise AssertionError("the engine is broken")

    run = record(observers=lambda _: [Breaks()])
    assert "the engine is broken" in str(run.error)
    assert read_vcd(run.path).changes["run.cycle"][-1][1] == 8


def test_units_limit_the_groups(record):
    def scopes(**options):
        return {n.split(".")[0] for n in read_vcd(record(**options).path).variables}

    assert scopes(units=["vector"]) == {"run", "dispatch", "vector", "vram"}
    assert scopes(units={"matrix"}) == {"run", "dispatch", "matrix", "heads", "mram"}
    assert scopes(units={"topk"}) == {"run", "dispatch", "topk"}
    assert scopes(units={"hbm", "registers"}) == {"run", "dispatch", "hbm", "registers"}
    assert scopes(units=()) == {"run", "dispatch"}
    everything = scopes()
    assert everything > {"scoreboard", "loops", "profile", "fp_mem", "int_mem", "vram", "mram"}
    assert scopes(memory_rows=0) == everything - {"vram", "mram", "fp_mem", "int_mem"}
    with pytest.raises(ValueError, match=r"tensor; units: control.*groups: run"):
        record(units={"tensor"})


def test_units_make_the_file_smaller(record):
    sizes = [len(record(**o).path.read_bytes()) for o in ({}, {"units": {"matrix"}}, {"units": ()})]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < sizes[0] / 4


@pytest.mark.parametrize("at", [0, 1, 17])
def test_ctrl_c_leaves_a_whole_file(record, at):
    run = record(observers=lambda _: [Raises(KeyboardInterrupt(), at)])
    assert isinstance(run.error, KeyboardInterrupt)
    dump = read_vcd(run.path)
    assert dump.changes["run.cycle"] == [(1000 * c, c) for c in range(at + 1)]
    assert dump.times[-1] == 1000 * (at + 1)
    assert run.path.with_suffix(".gtkw").exists()


def test_ctrl_c_while_a_cycle_is_written_drops_that_cycle(record, monkeypatch):
    from waveforms.dump import Dump

    change, count = Dump.change, []

    def interrupted(self, variable, value):
        change(self, variable, value)
        count.append(1)
        if len(count) == 50:
            raise KeyboardInterrupt

    monkeypatch.setattr(Dump, "change", interrupted)
    run = record()
    assert isinstance(run.error, KeyboardInterrupt)
    dump = read_vcd(run.path)
    whole = len(dump.changes["run.cycle"])
    assert whole == len(run.seen.cycles) - 1
    assert sum(len(c) - 1 for n, c in dump.changes.items() if n != "run.clk") < 50


def test_a_failed_check_leaves_a_whole_file_up_to_the_cycle_that_failed(record):
    run = record(observers=lambda _: [Raises(TagError("wrong"), 12, in_event=True)])
    assert isinstance(run.error, TagError)
    failed = len(run.seen.cycles)
    assert failed >= 12
    dump = read_vcd(run.path)
    assert dump.changes["run.cycle"][-1] == (1000 * failed, failed)
    assert dump.at("dispatch.valid", 1000 * failed) == 1


def test_a_watchdog_stop_leaves_a_whole_file(record):
    run = record("C_LOOP_START gp1, 1000\nC_LOOP_END gp1\n", max_cycles=40)
    assert read_vcd(run.path).changes["run.cycle"][-1][1] == 40


def test_before_the_run_the_file_is_whole_and_empty(prepare, tmp_path):
    path = tmp_path / "w.vcd"
    path.write_text("an older file, much longer than an empty one" * 100)
    VcdWriter(path, prepare())
    assert read_vcd(path).variables == {}


def test_a_path_that_cannot_be_written_fails_at_once(prepare, tmp_path):
    with pytest.raises(OSError, match="missing"):
        VcdWriter(tmp_path / "missing" / "w.vcd", prepare())
    with pytest.raises(ValueError, match=r"use \.vcd"):
        VcdWriter(tmp_path / "w.gtkw", prepare())


def test_a_writer_records_one_run_of_its_own_simulation(prepare, tmp_path):
    simulation = prepare("C_BREAK\nS_ADDI_INT gp1, gp0, 1\n")
    writer = VcdWriter(tmp_path / "w.vcd", simulation)
    result = simulation.run(observers=[writer])
    with pytest.raises(ValueError, match="one run"):
        simulation.resume(result, observers=[writer])
    with pytest.raises(ValueError, match="another simulation"):
        prepare().run(observers=[VcdWriter(tmp_path / "v.vcd", simulation)])


def test_a_resumed_run_goes_on_in_a_file_of_its_own(prepare, tmp_path):
    simulation = prepare("S_ADDI_INT gp1, gp0, 1\nC_BREAK\nS_ADDI_INT gp1, gp0, 7\n")
    first, second = tmp_path / "a.vcd", tmp_path / "b.vcd"
    result = simulation.run(observers=[VcdWriter(first, simulation)])
    simulation.resume(result, observers=[VcdWriter(second, simulation)])
    assert [v for _, v in signal(first, "registers.gp_1")] == [0, 1]
    assert signal(second, "registers.gp_1")[0] == (2, 1)
    assert signal(second, "registers.gp_1")[-1][1] == 7


def gtkw_traces(path):
    lines = path.read_text().splitlines()
    return [line.split()[-1] for line in lines if line[0] not in "[*@-"]


@pytest.mark.parametrize("options", [{}, {"units": {"vector"}}, {"memory_rows": 0}])
def test_the_save_file_lists_only_signals_that_exist(record, options):
    run = record(**options)
    variables = read_vcd(run.path).variables
    exist = {f"{n}[{w - 1}:0]" if k == "wire" and w > 1 else n for n, (k, w) in variables.items()}
    traces = gtkw_traces(run.path.with_suffix(".gtkw"))
    assert traces
    assert set(traces) <= exist
    numbers = {f"{n}_index" for n, (kind, _) in variables.items() if kind == "string"}
    assert not numbers & {t.split("[")[0] for t in traces}, "a number beside its name is noise"
    missing = exist - set(traces)
    assert all("_index" in n or n.split(".")[0] in MEMORIES for n in missing), missing
    assert f'[dumpfile] "{run.path}"' in run.path.with_suffix(".gtkw").read_text()


MEMORIES = {"vram", "mram", "fp_mem", "int_mem"}


def test_the_save_file_shows_numbers_as_they_are_read(record):
    text = record().path.with_suffix(".gtkw").read_text()
    decimal, hexadecimal = text.index("run.cycle[47:0]"), text.index("registers.gp_3[31:0]")
    assert text[:decimal].rsplit("@", 1)[1].startswith("24")
    assert text[:hexadecimal].rsplit("@", 1)[1].startswith("22")
    assert text.count("-overview") == 2, "a group begins and ends"


def test_the_surfer_file_lists_only_signals_that_exist(record):
    run = record()
    variables = read_vcd(run.path).variables
    lines = run.path.with_suffix(".sucl").read_text().splitlines()
    added = [line.split()[1] for line in lines if line.startswith("variable_add ")]
    assert "dispatch.stage" in added
    assert set(added) <= set(variables)
    assert {line.split()[0] for line in lines} == {"variable_add", "divider_add", "zoom_fit"}


def test_the_save_file_is_named_after_the_waveform(tmp_path):
    assert write_gtkw(tmp_path / "run.7.vcd", [], 1000, 0) == tmp_path / "run.7.gtkw"


def test_the_projection_is_close_and_short_runs_do_not_print_it(record, prepare, tmp_path, capsys):
    run = record()
    assert capsys.readouterr().err == ""
    projected = VcdWriter(tmp_path / "p.vcd", prepare()).projection
    body = run.path.read_text().split("$end\n#", 1)[1]
    per_cycle = len(body) / run.result.cycles
    assert per_cycle / 3 < projected.bytes_per_cycle < per_cycle * 3
    assert projected.cycles <= run.result.cycles


def test_a_long_run_is_announced_and_a_large_file_comes_with_ways_out(prepare, tmp_path, capsys):
    long = "C_LOOP_START gp1, 1000\nC_LOOP_START gp2, 1000\nC_LOOP_END gp2\nC_LOOP_END gp1\nC_BREAK"
    simulation = prepare(long)
    assert instructions_of(simulation.image) == 1 + 1000 + 1_000_000 + 1000 + 1
    simulation.run(max_cycles=5, observers=[VcdWriter(tmp_path / "w.vcd", simulation)])
    err = capsys.readouterr().err
    assert "at least 1,002,002 cycles" in err
    assert "MB" in err
    assert all(way in err for way in ("window=", "units=", "memory_rows=0"))
    writer = VcdWriter(tmp_path / "w.vcd", prepare(), window=(0, 120_000), expected_cycles=10**9)
    assert writer.projection.cycles == 120_000
    assert writer.projection.is_long
    assert writer.projection.size < LARGE_BYTES
    assert "window=" not in str(writer.projection)


def test_a_file_that_grows_too_large_says_so_once(record, monkeypatch, capsys):
    monkeypatch.setattr("waveforms.vcd.LARGE_BYTES", 1)
    monkeypatch.setattr("waveforms.vcd.CHECK_CYCLES", 10)
    record(SOURCE)
    assert capsys.readouterr().err.count("window=") == 1
