"""A counterexample again in Amaranth's simulator, which shares nothing with the solver's view."""

from typing import Any

from amaranth.hdl import Value
from amaranth.sim import Simulator

from testbench.formal.bmc import Trace
from testbench.formal.tags import TagProof

_PERIOD = 1e-9


def replay(trace: Trace) -> str | None:
    """Simulates `trace`; the message of the assertion that fails in its last cycle, or None."""
    harness = TagProof()
    for name, storages in harness.memories().items():
        for storage in storages:
            rows = trace.contents.get(name) or [0] * storage.depth
            storage.init = [_row(storage.shape, row) for row in rows]
    free = dict(harness.machine.free_signals())
    simulator = Simulator(harness)
    simulator.add_clock(_PERIOD)

    async def drive(ctx: Any) -> None:
        for values in trace.inputs:
            for name, signal in free.items():
                # As bits: an input may hold what its enumeration does not.
                ctx.set(Value.cast(signal), values.get(name, 0))
            await ctx.tick()

    simulator.add_testbench(drive)
    try:
        simulator.run()
    except AssertionError as error:
        return str(error)
    return None


def _row(shape: Any, bits: int) -> Any:
    return shape.from_bits(bits) if hasattr(shape, "from_bits") else bits
