"""The whole machine becomes Verilog."""

import re

import pytest
from amaranth.back import rtlil

from isa.config import PRESETS
from rtl import export
from rtl.dispatch.dispatcher import Dispatcher


@pytest.mark.slow
def test_the_tiny_machine_exports_with_its_ports_and_configuration(tmp_path):
    path = tmp_path / "plena.v"
    assert export.main(["--config", "tiny", "-o", str(path)]) == 0
    text = path.read_text()
    assert "MLEN = 8" in text
    (ports,) = re.findall(r"^module plena\((.*?)\);", text, re.MULTILINE | re.DOTALL)
    for name in (
        "clk",
        "rst",
        "start",
        "hbm_request__payload",
        "hbm_response__valid",
        "halt",
        "dispatch",
    ):
        assert re.search(rf"\b{name}\b", ports), name
    assert text.count("\nendmodule") == len(re.findall(r"^module ", text, re.MULTILINE))


def test_the_machine_has_no_combinational_cycle():
    # The simulator tolerates one, a netlist cannot have it. The dispatcher is where one may arise.
    assert "module" in rtlil.convert(Dispatcher(PRESETS["tiny"]))


def test_a_bad_configuration_writes_nothing(tmp_path, capsys):
    path = tmp_path / "plena.v"
    assert export.main(["--config", "nope", "-o", str(path)]) == 2
    assert "nope" in capsys.readouterr().err
    assert not path.exists()
