"""Shared by the tests of `python -m testbench.run`."""

import pytest

from testbench import run as command

LOOP = """\
; @stage=gather
        S_ADDI_INT gp1, gp0, 8
        C_LOOP_START gp3, 3
body:   V_ADD_VV gp1, gp0, gp1, 0
        S_ADDI_INT gp2, gp2, 1
        C_LOOP_END gp3
; @stage=non_moe
end:    S_ADDI_INT gp4, gp0, 7   ; seven
        S_LD_FP f1, gp0, 3
after:
"""


@pytest.fixture
def one_engine(engine, monkeypatch):
    """The command takes the engine that the other tests use: elaboration is slow."""
    simulation = command.Simulation
    shared_engine = engine

    def reused(config, image, *, engine, issue):
        assert engine == "auto"
        shared = shared_engine(config)
        return simulation(shared.config, image, engine=shared, issue=issue)

    monkeypatch.setattr(command, "Simulation", reused)


@pytest.fixture
def asm(tmp_path):
    """Writes a source, a loop of three by default, and returns its name."""

    def write(text: str = LOOP, name: str = "program.asm") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write
