"""FallingExp: bit for bit against the stepwise reference, and its error bound against float64."""

import random
import struct
from typing import Any

import numpy as np
from amaranth.sim import Simulator

from rtl.topk.exponential import FallingExp
from sim.numerics.topk import falling_exp

INF = 0x7F800000


def value_of(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits_of(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def arguments() -> list[int]:
    """Ends of every range, both sides of each boundary of a segment, and random ones."""
    rng = random.Random(2)
    words = [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, INF, bits_of(2**-17), bits_of(1)]
    words += [bits_of(x) + d for x in (2**-17, 64, 87.33655, 103.97, 128) for d in (-1, 0, 1)]
    words += [bits_of(j * np.log(2) / 32) + d for j in range(1, 65) for d in (-2, 0, 2)]
    words += [bits_of(rng.uniform(0, 130)) for _ in range(700)]
    words += [bits_of(2.0 ** rng.uniform(-20, 7)) for _ in range(700)]
    words += [rng.randrange(INF) for _ in range(100)]
    return words


def run(words: list[int]) -> list[int]:
    """One argument per cycle; the result is there two cycles after its own."""
    unit: Any = FallingExp()
    results = []

    async def host(ctx: Any) -> None:
        for cycle in range(len(words) + 2):
            ctx.set(unit.reduce, int(cycle < len(words)))
            ctx.set(unit.evaluate, int(cycle > 0))
            if cycle < len(words):
                ctx.set(unit.a, words[cycle])
            if cycle > 1:
                results.append(ctx.get(unit.o))
            await ctx.tick()

    sim = Simulator(unit)
    sim.add_clock(1e-9)
    sim.add_testbench(host)
    sim.run()
    return results


def test_every_step_against_the_reference():
    words = arguments()
    for word, got in zip(words, run(words), strict=True):
        assert value_of(got) == falling_exp(value_of(word)), hex(word)


def test_the_stated_error():
    """2^-15.5, and 2^-149 below 2^-126; on a dense set for the reference, which the unit equals."""
    a = np.concatenate([np.linspace(0, 3, 6000), np.linspace(3, 104, 3000)]).astype(np.float32)
    got = np.array([falling_exp(float(x)) for x in a])
    exact = np.exp(-a.astype(np.float64))
    assert (np.abs(got - exact) <= 2**-15.5 * exact + 2.0**-149).all()
    assert falling_exp(0.0) == 1.0
