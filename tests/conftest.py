"""Shared by all tests: engines that live as long as the test process, and one way to run a source
text."""

from collections.abc import Callable

import pytest

from isa.assembler import assemble
from isa.config import PRESETS, PlenaConfig
from sim.engine import Engine
from sim.hbm import HbmDevice
from sim.pysim import PysimEngine
from sim.simulation import Simulation

_ENGINES: dict[str, Engine] = {}


def engine_for(config: PlenaConfig) -> Engine:
    """An engine of `config`, elaborated once per test process; a Simulation resets it."""
    if config.digest not in _ENGINES:
        _ENGINES[config.digest] = PysimEngine(config)
    return _ENGINES[config.digest]


@pytest.fixture
def engine() -> Callable[[PlenaConfig], Engine]:
    return engine_for


@pytest.fixture
def program() -> Callable[..., Simulation]:
    """Assembles a source text and loads it: `program(text, config="tiny", issue="overlap",
    hbm=None)`."""

    def load(
        text: str,
        config: str | PlenaConfig = "tiny",
        issue: str | None = None,
        hbm: HbmDevice | None = None,
    ) -> Simulation:
        machine = PRESETS[config] if isinstance(config, str) else config
        image = assemble(text, config=machine)
        # The engine is shared by name and digest; a differently named twin has the same hardware.
        engine = engine_for(machine)
        return Simulation(engine.config, image, hbm, engine=engine, issue=issue)

    return load
