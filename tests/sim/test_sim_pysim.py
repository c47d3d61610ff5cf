"""What the pysim engines do to a design for speed, against Amaranth's simulator left alone."""

import random
from typing import Any

import pytest
from amaranth.hdl import Fragment, Module, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Flow
from amaranth.sim import Simulator

import sim.pysim_fast
from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC
from isa.traps import Trap
from rtl.leaves import (
    FP32,
    FloatAdd,
)
from sim.pysim_fast import PysimFastEngine, single_pass
from sim.pysim_masks import MaskedEngine
from sim.pysim_merge import merged
from sim.pysim_split import split
from sim.simulation import Simulation
from testbench.fuzz.generator import Generator
from testbench.shared_case import build_case, spec_of
from tests.conftest import engine_for
from tests.rtl.leaves.test_leaf_structure import LEAVES

COPIES = 3
SPECIAL = (0, 1, 0x7F, 0x80, 0x3F80, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0)


def operand(rng: random.Random, width: int) -> int:
    """Random bits, or a BF16 that is special, also as the upper half of a wider word."""
    if width >= 16 and rng.random() < 0.5:
        word = rng.choice(SPECIAL) | rng.randrange(2) << 15
        return word << (width % 64 - 16 if 16 < width <= 32 else 0)
    return rng.getrandbits(width)


class Rows:
    """Rows of every leaf on slices of one register, chains of wires, and a memory with lanes."""

    def __init__(self) -> None:
        self.module = m = Module()
        self.outputs: list[Any] = []
        leaves = [make() for make in LEAVES.values() for _ in range(COPIES)]
        ports = [
            (leaf, name, len(getattr(leaf, name)))
            for leaf in leaves
            for name, member in leaf.signature.members.items()
            if member.flow is Flow.In
        ]
        self.widths = [width for _, _, width in ports]
        self.feed = Signal(sum(self.widths))
        operands = Signal.like(self.feed)
        m.d.sync += operands.eq(self.feed)
        at = 0
        for leaf, name, width in ports:
            leaf.bind(**{name: operands[at : at + width]})
            at += width
        for number, leaf in enumerate(leaves):
            m.submodules[f"leaf_{number}"] = leaf
            self.outputs += [
                getattr(leaf, n) for n, p in leaf.signature.members.items() if p.flow is Flow.Out
            ]
        # A chain against the order of statements, a signal in halves, one with a default.
        first, second, third, halves = Signal(16), Signal(16), Signal(16, init=3), Signal(16)
        last = Signal(16)
        with m.If(second[0]):
            m.d.comb += third.eq(second + first)
        m.d.comb += [second.eq(first ^ operands[:16]), first.eq(operands[16:32] + 1)]
        m.submodules.half = half = Module()
        m.d.comb += [halves[:8].eq(third), last.eq(halves + 1)]
        half.d.comb += halves[8:].eq(halves[:8] + 1)
        m.submodules.memory = memory = Memory(shape=32, depth=4, init=[1, 2, 3, 4])
        lanes, whole, read = (
            memory.write_port(granularity=8),
            memory.write_port(),
            memory.read_port(domain="comb"),
        )
        m.d.comb += [
            lanes.en.eq(operands[4:8]),
            lanes.addr.eq(operands[8:10]),
            lanes.data.eq(operands),
            whole.en.eq(operands[10:13] == 5),
            whole.addr.eq(operands[14:16]),
            whole.data.eq(~operands[:32]),
            read.addr.eq(first),
        ]
        self.outputs += [first, second, third, halves, last, read.data]

    def run(self, simulator: Simulator, cycles: int) -> list[list[int]]:
        """The outputs in every cycle, for operands of one seed."""
        seen: list[list[int]] = []
        rng = random.Random(11)

        async def bench(ctx: Any) -> None:
            for _ in range(cycles):
                word = at = 0
                for width in self.widths:
                    word |= operand(rng, width) << at
                    at += width
                ctx.set(self.feed, word)
                await ctx.tick()
                seen.append([ctx.get(output) for output in self.outputs])

        simulator.add_clock(1e-9)
        simulator.add_testbench(bench)
        simulator.run()
        return seen


def modules(fragment: Fragment) -> int:
    return 1 + sum(modules(child) for child, _, _ in fragment.subfragments)


def rows(kind: str, cycles: int) -> list[list[int]]:
    design = Rows()
    if kind == "alone":
        return design.run(Simulator(design.module), cycles)
    fragment = merged(design.module, whole=kind != "pysim")
    if kind != "fast, not split":
        split(fragment)
    if kind == "pysim":
        return design.run(Simulator(fragment, engine=MaskedEngine), cycles)
    with single_pass():
        simulator = Simulator(fragment, engine=MaskedEngine)
    return design.run(simulator, cycles)


def test_every_leaf_and_wire_and_memory_shows_the_same_in_every_cycle():
    want = rows("alone", 150)
    assert len({tuple(row) for row in want}) > 100
    for kind in ("pysim", "fast", "fast, not split"):
        assert rows(kind, 150) == want, kind


def test_a_row_of_leaves_is_a_module_per_step_or_one_in_all():
    alone = modules(Fragment.get(Rows().module, None))
    by_step, whole = (modules(merged(Rows().module, whole=w)) for w in (False, True))
    assert alone > COPIES * by_step / 2
    assert by_step > whole
    row = next(c for c, n, _ in merged(Rows().module, whole=True).subfragments if n == "leaf_0")
    assert not row.subfragments
    assert len(row.statements["comb"]) > COPIES


def test_a_leaf_with_latency_keeps_its_registers():
    m = Module()
    a, b = Signal(32), Signal(32)
    for i in range(2):
        m.submodules[f"add_{i}"] = FloatAdd(FP32, latency=1).bind(a=a, b=b)
    fragment = merged(m)
    assert [name for _, name, _ in fragment.subfragments] == ["add_0", "add_1"]
    assert all("sync" in child.statements for child, _, _ in fragment.subfragments)


def test_pysim_fast_is_for_one_release_of_amaranth(monkeypatch):
    monkeypatch.setattr(sim.pysim_fast, "SUPPORTED", "0.5.9")
    with pytest.raises(RuntimeError, match=r"0\.5\.9; 0\.5.* is installed; use engine pysim"):
        PysimFastEngine(PRESETS["tiny"])


def test_amaranth_is_as_it_was_after_pysim_fast():
    from sim.private import pyrtl, pysim

    def parts() -> list[object]:
        return [pyrtl._RHSValueCompiler.on_Signal, pysim._PyMemoryState]

    before = parts()
    with single_pass():
        assert not any(now is then for now, then in zip(parts(), before, strict=True))
    assert parts() == before
    with pytest.raises(TypeError), single_pass():
        Simulator(None)  # type: ignore[arg-type]
    assert parts() == before


def left(simulation: Simulation, result: Any) -> dict[str, Any]:
    """All that can be told from a run."""
    memories = simulation.memories
    fields = {k: v for k, v in vars(result).items() if k not in ("engine", "wall_seconds")}
    return fields | {
        "vector": memories.read_vector().tobytes(),
        "matrix": memories.read_matrix(0).tobytes(),
        "words": [memories.read_fp().tolist(), memories.read_int().tolist()],
        "registers": [memories.read_gp().tolist(), memories.read_f().tolist()],
        "hbm": simulation.hbm.image(),
    }


def test_the_shared_expert_is_the_same_on_pysim_fast():
    config = PRESETS["tiny"]
    case = build_case(config, spec_of("qwen2", hidden=8, intermediate=8), rows=3)
    seen = []
    for name in ("pysim", "pysim-fast"):
        engine = engine_for(config, name)
        simulation = Simulation(config, case.program.image, case.hbm(), engine=engine)
        case.load(simulation)
        result = simulation.run()
        assert all(c.ok for c in case.check(simulation))
        seen.append(left(simulation, result))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("seed", range(4))
def test_a_random_program_is_the_same_on_pysim_fast(seed):
    config = PRESETS["tiny"]
    case = Generator(config, 300 + seed, frozenset(BY_MNEMONIC)).case("overlap")
    seen = []
    for name in ("pysim", "pysim-fast"):
        simulation = Simulation(
            config, case.image(), case.hbm(), engine=engine_for(config, name), issue=case.issue
        )
        case.contents.load(simulation.memories, simulation.hbm)
        result = simulation.run(max_cycles=3000)
        assert result.cause is not Trap.WATCHDOG
        seen.append(left(simulation, result))
    assert seen[0] == seen[1]
