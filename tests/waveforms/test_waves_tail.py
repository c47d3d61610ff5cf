"""After a lock-step mismatch the run is made again with waves, on every engine."""

import pytest

from isa.opcodes import BY_MNEMONIC
from sim.machine.registry import BUILDERS
from testbench.shared_moe import main
from tests.conftest import needs_compiler
from tests.waveforms.vcd_reader import read_vcd
from waveforms.tail import AFTER, BEFORE, record_tail

REQUEST = ("--config", "tiny", "--hidden", "8", "--intermediate", "8", "--rows", "3", "--lockstep")


@pytest.mark.parametrize("engine", ["pysim", pytest.param("compiled", marks=needs_compiler)])
def test_a_mismatch_leaves_waves_of_its_cycles(engine, tmp_path, monkeypatch, capsys):
    code = BY_MNEMONIC["M_MM_WO"].code
    original = BUILDERS[code]
    monkeypatch.setitem(BUILDERS, code, lambda *_: lambda: None)  # it writes nothing
    arguments = [*REQUEST, "--engine", engine, "--build-dir", str(tmp_path)]
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert "FAIL: " in told
    assert f"{tmp_path / 'mismatch.vcd'}" in told
    dump = read_vcd(tmp_path / "mismatch.vcd")
    cycles = [value for _, value in dump.changes["run.cycle"]]
    # The first write of an M_MM_WO is what differs; the file goes on a little.
    time = next(t for t, v in dump.changes["matrix.vram_write_en"] if v)
    failed = dump.at("run.cycle", time)
    assert cycles[-1] == failed + AFTER - 1
    assert cycles[0] == max(0, failed - BEFORE)
    monkeypatch.setitem(BUILDERS, code, original)
    assert main(arguments) == 0
    assert not list(tmp_path.glob("mismatch.*"))


def test_a_run_that_ends_before_is_recorded_to_its_end(program, tmp_path):
    simulation = program("S_ADDI_INT gp1, gp0, 8\nV_EXP_V gp1, gp1, 0")
    path = tmp_path / "waves.vcd"
    assert record_tail(path, simulation, 1000, before=1000) == range(1000 + AFTER)
    assert [v for _, v in read_vcd(path).changes["run.state"]][-1] == "halted"
