"""Engines by name."""

from isa.config import PlenaConfig
from isa.image import ProgramImage
from isa.length import expected_dispatches
from sim.compiled.build import cached_entry
from sim.compiled.engine import CompiledEngine
from sim.compiled.toolchain import INSTALL_HINT, CompilerError, find_compiler
from sim.engine import Engine
from sim.progress import waiting
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


#: From this MLEN on, the compiled engine starts as early as pysim does, even when it must be built.
_WIDE = 16
#: Below it a build takes some 3 s more, in which pysim makes about as many cycles.
_REPAID = 4000


def choose_engine(config: PlenaConfig, image: ProgramImage | None = None) -> tuple[str, str]:
    """The engine that `auto` takes for `config`, and why.

    Compiled when it is built already, or when the program is long enough to repay the build;
    without an `image`, many programs are taken to follow. Otherwise, and where there is no
    compiler, pysim.
    """
    if find_compiler() is None:
        return "pysim", f"there is no C compiler ({INSTALL_HINT})"
    if cached_entry(config) is not None:
        return "compiled", "it is built already for this configuration and these sources"
    if image is not None and config.MLEN < _WIDE:
        least = expected_dispatches(image, enough=_REPAID)
        if least < _REPAID:
            return (
                "pysim",
                f"engine compiled is not built yet, and {least:,} instructions do not repay that; "
                "ask for it by name",
            )
    return "compiled", "it is built in little more time than pysim needs to start"


def make_engine(name: str, config: PlenaConfig, image: ProgramImage | None = None) -> Engine:
    """The engine called `name` for `config`; `auto` takes the best one for `image` here.

    The engine's `reason` says why it was taken. A terminal shows that it is being made.

    Raises:
        ValueError: no such engine; the names that exist.
        CompilerError: the engine cannot be built; `auto` takes pysim then.
    """
    if name not in ("auto", *ENGINES):
        raise ValueError(f"engine {name!r}: must be one of auto, {', '.join(ENGINES)}")
    chosen, reason = (name, "") if name != "auto" else choose_engine(config, image)
    try:
        engine = _made(chosen, config)
    except CompilerError as error:
        if name != "auto" or chosen == "pysim":
            raise
        reason = f"engine {chosen} cannot be built: {str(error).splitlines()[0]}"
        engine = _made("pysim", config)
    engine.reason = f"auto: {reason}" if reason else "asked for by name"
    return engine


def _made(name: str, config: PlenaConfig) -> Engine:
    with waiting(f"engine {name}, configuration {config.name}: elaborating and building"):
        return ENGINES[name](config)
