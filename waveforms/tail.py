"""Waves of the end of a run that failed: the same run once more, recorded around one cycle."""

import contextlib
from os import PathLike

from sim.simulation import Simulation
from waveforms.vcd import VcdWriter

BEFORE, AFTER = 200, 16


def record_tail(
    path: str | PathLike[str],
    simulation: Simulation,
    cycle: int,
    *,
    before: int = BEFORE,
    after: int = AFTER,
) -> range:
    """Runs `simulation` and writes waves from `before` cycles ahead of `cycle` to `after` behind.

    A run follows from what was loaded and from the memory device's seed alone, so a new simulation
    that is loaded like the failed one comes to the same cycle. Returns the cycles that are in the
    file, as far as the run goes.

    Raises:
        KeyError: the engine cannot show every signal (verilator).
    """
    recorded = range(max(0, cycle - before), cycle + after)
    writer = VcdWriter(path, simulation, window=(recorded.start, recorded.stop))
    with contextlib.suppress(AssertionError):  # the run's own failure, which is known
        simulation.run(max_cycles=recorded.stop, observers=[writer])
    return recorded
