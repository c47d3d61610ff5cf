"""Small modules on the compiled engine, in lock step with Amaranth's simulator."""

import random
from collections.abc import Callable
from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.sim import Simulator

from sim.compiled.build import build_model

CYCLES = 60


class Design:
    """A module with inputs that are driven at random and outputs that are compared in every
    cycle."""

    def __init__(self) -> None:
        self.m = Module()
        self.inputs: list[Signal] = []
        self.outputs: list[Signal] = []

    def input(self, width: Any, name: str) -> Signal:
        self.inputs.append(signal := Signal(width, name=name))
        return signal

    def output(self, value: Any, name: str, domain: str = "comb") -> Signal:
        """A signal as wide as the value, that follows it."""
        self.outputs.append(signal := Signal(value.shape(), name=name))
        self.m.d[domain] += signal.eq(value)
        return signal

    def watch(self, *signals: Any) -> None:
        self.outputs += signals


def pattern(signal: Signal, rng: random.Random) -> int:
    """A random bit pattern, often a special one."""
    width = len(signal)
    ones = (1 << width) - 1
    return rng.choice(
        (
            0,
            ones,
            1,
            1 << (width - 1),
            rng.getrandbits(width),
            rng.getrandbits(width),
            rng.getrandbits(width) & 7,
        )
    )


def unsigned_bits(signal: Signal, value: int) -> int:
    return value & ((1 << len(signal)) - 1)


def lock_step(build: Callable[[Design], None], folder: Any, seed: int = 1) -> None:
    """Runs both on the same inputs and compares all outputs in every cycle.

    One bus drives all inputs, since Amaranth's simulator settles after each signal that is set.
    """
    reference, compiled = Design(), Design()
    buses = []
    for design in (reference, compiled):
        build(design)
        bus = Signal(sum(len(s) for s in design.inputs))
        at = 0
        for number, signal in enumerate(design.inputs):
            # Every other one through a register, so that not all logic has the same inputs.
            domain = "sync" if number % 2 else "comb"
            design.m.d[domain] += signal.eq(bus[at : at + len(signal)])
            at += len(signal)
        buses.append(bus)
    model, (bus, *places), _, _ = build_model(compiled.m, [buses[1], *compiled.outputs], folder)
    rng = random.Random(seed)

    async def bench(ctx: Any) -> None:
        for cycle in range(CYCLES):
            value = at = 0
            for signal in reference.inputs:
                value |= pattern(signal, rng) << at
                at += len(signal)
            ctx.set(buses[0], value)
            model.set(bus, value)
            for signal, place in zip(reference.outputs, places, strict=True):
                want = unsigned_bits(signal, ctx.get(signal))
                assert model.get(place) == want, f"cycle {cycle}: {signal.name}, bus {value:#x}"
            await ctx.tick()
            model.step()

    simulator = Simulator(reference.m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def keep_clocked(d: Design) -> None:
    """A register, so that there is a clock."""
    d.output(Cat(d.inputs), "clocked", "sync")


class Features(dict[str, Callable[[Design], None]]):
    """The modules of a test file, by the names of the functions that build them."""

    def __call__(self, build: Callable[[Design], None]) -> Callable[[Design], None]:
        self[build.__name__] = build
        return build
