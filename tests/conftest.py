"""Shared by all tests: engines that live as long as the test process, and one way to run a source
text."""

import os
import shutil
from collections.abc import Callable

import pytest

from isa.assembler import assemble
from isa.config import PRESETS, PlenaConfig
from sim.compiled.toolchain import find_compiler
from sim.engine import Engine
from sim.engines import make_engine
from sim.hbm import HbmDevice
from sim.simulation import Simulation

_ENGINES: dict[tuple[str, str], Engine] = {}

#: Continuous integration must have a compiler: there the tests fail instead of passing by absence.
needs_compiler = pytest.mark.skipif(
    find_compiler() is None and "CI" not in os.environ, reason="there is no C compiler"
)

#: The same for the C++ compiler that Verilator's output needs.
needs_cxx = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))) and "CI" not in os.environ,
    reason="there is no C++ compiler",
)


def engine_for(config: PlenaConfig, name: str = "pysim") -> Engine:
    """An engine of `config`, elaborated once per test process; a Simulation resets it."""
    key = (name, config.digest)
    if key not in _ENGINES:
        _ENGINES[key] = make_engine(name, config)
    return _ENGINES[key]


@pytest.fixture
def engine() -> Callable[[PlenaConfig], Engine]:
    return engine_for


@pytest.fixture
def fast_engine() -> Callable[[PlenaConfig], Engine]:
    """For long programs: compiled, or pysim where there is no C compiler outside of CI."""
    usable = find_compiler() is not None or "CI" in os.environ
    return lambda config: engine_for(config, "compiled" if usable else "pysim")


@pytest.fixture
def program() -> Callable[..., Simulation]:
    """Assembles a source text and loads it: `program(text, config="tiny", issue="overlap",
    hbm=None, engine="pysim")`."""

    def load(
        text: str,
        config: str | PlenaConfig = "tiny",
        issue: str | None = None,
        hbm: HbmDevice | None = None,
        engine: str = "pysim",
    ) -> Simulation:
        machine = PRESETS[config] if isinstance(config, str) else config
        image = assemble(text, config=machine)
        # The engine is shared by name and digest; a differently named twin has the same hardware.
        shared = engine_for(machine, engine)
        return Simulation(shared.config, image, hbm, engine=shared, issue=issue)

    return load
