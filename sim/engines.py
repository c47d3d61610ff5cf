"""Engines by name."""

from isa.config import PlenaConfig
from sim.engine import Engine
from sim.pysim import PysimEngine

ENGINES: dict[str, type[Engine]] = {"pysim": PysimEngine}


def make_engine(name: str, config: PlenaConfig) -> Engine:
    """The engine called `name` for `config`; `auto` takes the best one that this machine can run.

    Raises ValueError with the names that exist.
    """
    if name == "auto":
        name = "pysim"
    if name not in ENGINES:
        raise ValueError(f"engine {name!r}: must be one of auto, {', '.join(ENGINES)}")
    return ENGINES[name](config)
