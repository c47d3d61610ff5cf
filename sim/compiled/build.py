"""From a configuration to a loaded model: out of the cache, or elaborated, emitted and compiled."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from amaranth.hdl import Signal

from isa.config import PlenaConfig
from rtl.top import PlenaTop
from sim.compiled import cache
from sim.compiled.extract import extract
from sim.compiled.host import NetlistAccessors, host_source
from sim.compiled.model import Model, Place, describe, place_of
from sim.compiled.netlist import Netlist
from sim.compiled.paths import Reachable, reachable
from sim.compiled.program import Program, make_program
from sim.compiled.toolchain import (
    INSTALL_HINT,
    Compiler,
    CompilerError,
    compile_library,
    find_compiler,
)
from sim.probe import Probe

__all__ = ["Change", "build_engine", "build_model", "cached_entry", "entry_for"]

#: Changes a netlist before it becomes C; returns more entries for the description.
Change = Callable[[Netlist, Reachable], dict[str, Any]]


def cached_entry(config: PlenaConfig) -> cache.Entry | None:
    """The built engine of a configuration, if there is one."""
    compiler = find_compiler()
    return None if compiler is None else cache.find(cache.source_key(config, compiler))


def entry_for(config: PlenaConfig) -> tuple[cache.Entry, bool]:
    """The built engine of a configuration, and whether it was there already.

    Raises:
        CompilerError: no compiler (the message says what to install), or it failed.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError(INSTALL_HINT)
    key = cache.source_key(config, compiler)
    entry = cache.find(key)
    if entry is not None:
        return entry, True
    return cache.store(key, lambda folder: build_engine(config, compiler, folder)), False


def build_model(
    top: Any, signals: Sequence[Signal], folder: Path, name: str = "model"
) -> tuple[Model, list[Place], Program, dict[int, int]]:
    """Any design as a model, built in `folder` and not cached: for tests and measurements.

    Returns the model, the places of `signals`, the program, and the index of each MemoryData by id.

    Raises:
        CompilerError, UnsupportedError: see there.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError(INSTALL_HINT)
    netlist = extract(top)
    places = [place_of(netlist.signal(s)) for s in signals]
    program = make_program(netlist)
    library = compile_library(compiler, program.sources, folder, f"{name}.so")
    return Model(library, describe(program)), places, program, netlist.memory_data


def build_engine(
    config: PlenaConfig, compiler: Compiler, folder: Path, change: Change | None = None
) -> dict[str, Any]:
    """Build an engine into an empty folder, for `cache.store`; `change` is for experiments."""
    started = time.perf_counter()
    probe = Probe(PlenaTop(config))
    known = reachable(probe)  # before elaboration, which replaces some of the ports
    netlist = extract(probe)
    more = change(netlist, known) if change is not None else {}
    program = make_program(netlist, lambda emitter: host_source(probe, NetlistAccessors(emitter)))
    description = describe(program) | more
    description["signals"] = {
        path: place_of(netlist.signal(s)) for path, s in known.signals.items() if netlist.knows(s)
    }
    description["memory_paths"] = {
        path: netlist.memory_data[id(m)]
        for path, m in known.memories.items()
        if id(m) in netlist.memory_data
    }
    emitted = time.perf_counter()
    compile_library(compiler, program.sources, folder, cache.LIBRARY)
    (folder / cache.DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
    finished = time.perf_counter()
    return {
        "config": config.name,
        "digest": config.digest,
        "compiler": compiler.version.splitlines()[0],
        "seconds": {"elaborate and emit": emitted - started, "compile": finished - emitted},
    }
