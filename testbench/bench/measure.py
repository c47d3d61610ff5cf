"""One engine, measured from nothing: build, start, speeds, memory, and whether it is right.

Every engine gets processes of its own and an empty cache, so that what one leaves behind does not
help another.
"""

import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isa.config import PlenaConfig
from sim.compiled import cache
from sim.engine import Engine
from sim.engines import make_engine
from sim.simulation import Simulation
from testbench.bench.workloads import WORKLOADS, rate
from testbench.shared_case import SharedCase, build_case, spec_of

__all__ = ["LONG_SHAPE", "measure_engine", "measure_start"]

ROWS = 8
#: The long run, in MLEN: hidden, intermediate, rows.
LONG_SHAPE = (8, 8, 1)
#: Engines slower than this (cycles per second) do not get the long run.
_LONG_FROM = 2_000


def in_process(function: Callable[..., Any], *arguments: object) -> Any:
    """The result of a function in a new process, whose peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure_engine(name: str, config: PlenaConfig, seconds: float, long: bool) -> dict[str, Any]:
    """All figures of an engine; `seconds` is how long each speed is measured."""
    root = Path(tempfile.mkdtemp(prefix="plena-bench-"))
    try:
        figures = in_process(_speeds, name, config, seconds, long, root)
        figures["cached_start_seconds"] = (
            in_process(measure_start, name, config, root) if figures["has_cache"] else None
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return figures


def measure_start(name: str, config: PlenaConfig, root: Path) -> float:
    """Seconds to construct an engine that is in the cache at `root`."""
    cache.cache_root = lambda: root
    started = time.perf_counter()
    make_engine(name, config)
    return time.perf_counter() - started


def _note(name: str, what: str) -> None:
    print(f"{name}: {what} ...", file=sys.stderr, flush=True)


def _speeds(
    name: str, config: PlenaConfig, seconds: float, long: bool, root: Path
) -> dict[str, Any]:
    cache.cache_root = lambda: root
    _note(name, "building")
    started = time.perf_counter()
    engine = make_engine(name, config)
    total = time.perf_counter() - started
    entries = cache.entries()
    parts = dict(entries[0].manifest["seconds"]) if entries else {"elaborate": total}
    figures: dict[str, Any] = {
        "engine": engine.name,
        "has_cache": bool(entries),
        "from_nothing_seconds": total,
        "elaborate_seconds": sum(s for part, s in parts.items() if part.startswith("elaborate")),
        "build_seconds": sum(s for part, s in parts.items() if not part.startswith("elaborate")),
        "parts_seconds": parts,
    }
    for workload in WORKLOADS:
        _note(name, workload.name)
        found = rate(workload, engine, seconds)
        figures[workload.name] = {
            "cycles_per_second": found.cycles_per_second,
            "cycles": found.cycles,
            "busy": found.busy,
        }
    _note(name, "shared expert")
    case = _case(config, 1, 1, ROWS)
    figures["shared_expert"] = _repeat(case, engine, seconds)
    figures["peak_mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if long and figures["shared_expert"]["cycles_per_second"] >= _LONG_FROM:
        _note(name, "long shared expert")
        hidden, intermediate, rows = LONG_SHAPE
        figures["long"] = _long(_case(config, hidden, intermediate, rows * config.MLEN), engine)
    return figures


def _case(config: PlenaConfig, hidden: int, intermediate: int, rows: int) -> SharedCase:
    spec = spec_of(
        "deepseek",
        hidden=hidden * config.MLEN,
        intermediate=intermediate * config.MLEN,
        n_shared=1,
    )
    return build_case(config, spec, rows=rows)


def _run(case: SharedCase, engine: Engine) -> tuple[Simulation, Any]:
    simulation = Simulation(case.config, case.program.image, case.hbm(), engine=engine)
    case.load(simulation)
    return simulation, simulation.run()


def _repeat(case: SharedCase, engine: Engine, seconds: float) -> dict[str, Any]:
    """The shared expert again and again until `seconds` have passed in runs."""
    cycles = runs = 0
    passed, exact = 0.0, True
    length = 0
    while passed < seconds:
        simulation, result = _run(case, engine)
        length = result.cycles
        cycles += length
        passed += result.wall_seconds
        runs += 1
        if runs == 1:
            exact = result.ok and all(c.ok for c in case.check(simulation))
    return {
        "cycles": length,
        "runs": runs,
        "cycles_per_second": cycles / passed,
        "exact": exact,
    }


def _long(case: SharedCase, engine: Engine) -> dict[str, Any]:
    """A long run, timed; then again for the share of the host, since reading the clock takes
    time."""
    simulation, result = _run(case, engine)
    exact = result.ok and all(c.ok for c in case.check(simulation))
    loops: list[Any] = []
    make: Any = getattr(engine, "clock_loop", None)
    share = None
    if make is not None:

        def timed(*arguments: object) -> object:
            loop = make(*arguments)
            if loop is not None:
                loop.time_machine()
                loops.append(loop)
            return loop

        vars(engine)["clock_loop"] = timed
        try:
            _, again = _run(case, engine)
        finally:
            del vars(engine)["clock_loop"]
        share = 1 - sum(loop.machine_seconds for loop in loops) / again.wall_seconds
    return {
        "cycles": result.cycles,
        "seconds": result.wall_seconds,
        "cycles_per_second": result.cycles / result.wall_seconds,
        "exact": exact,
        "host_share": share,
    }


def machine_facts() -> dict[str, Any]:
    """What the figures depend on."""
    model = ""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.split(":", 1)[1].strip()
            for line in info.read_text(encoding="utf-8", errors="replace").splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else ""
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "load": os.getloadavg()[0],
    }
