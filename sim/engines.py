"""Engines by name."""

from isa.config import PlenaConfig
from sim.compiled.build import cached_entry
from sim.compiled.engine import CompiledEngine
from sim.compiled.toolchain import INSTALL_HINT, CompilerError, find_compiler
from sim.engine import Engine
from sim.pysim import PysimEngine
from sim.pysim_fast import PysimFastEngine
from sim.verilator.engine import VerilatorEngine

__all__ = ["ENGINES", "CompilerError", "choose_engine", "make_engine"]

ENGINES: dict[str, type[Engine]] = {
    "pysim": PysimEngine,
    "pysim-fast": PysimFastEngine,
    "compiled": CompiledEngine,
    "verilator": VerilatorEngine,
}


def choose_engine(config: PlenaConfig) -> tuple[str, str]:
    """The engine that `auto` takes for `config`, and why.

    Compiled when it is built already: its start is then the faster one too. A build takes longer
    than a short program on pysim, and how long a program runs is not known beforehand, so it is
    left to those who ask for it by name.
    """
    if find_compiler() is None:
        return "pysim", f"there is no C compiler ({INSTALL_HINT})"
    if cached_entry(config) is not None:
        return "compiled", "it is built already for this configuration and these sources"
    return (
        "pysim",
        (
            "engine compiled is not built yet for this configuration and these sources; "
            "ask for it by name"
        ),
    )


def make_engine(name: str, config: PlenaConfig) -> Engine:
    """The engine called `name` for `config`; `auto` takes the best one that this machine can run.

    The engine's `reason` says why it was taken. Raises ValueError with the names that exist.
    """
    reason = "asked for by name"
    if name == "auto":
        name, reason = choose_engine(config)
    if name not in ENGINES:
        raise ValueError(f"engine {name!r}: must be one of auto, {', '.join(ENGINES)}")
    engine = ENGINES[name](config)
    engine.reason = reason  # type: ignore[attr-defined]
    return engine
