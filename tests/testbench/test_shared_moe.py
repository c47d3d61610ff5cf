"""The shared expert on RTL against the reference: every family, shape, row count and kind of data,
bit for bit."""

import itertools

import numpy as np
import pytest

from compiler import ARCHITECTURES
from isa.config import PRESETS
from isa.traps import Trap
from sim.simulation import Simulation
from testbench.shared_case import build_case, spec_of

ARCHS = tuple(ARCHITECTURES)
FACTORS = tuple(itertools.product((1, 2, 3), (1, 2, 3)))
#: Families whose programs differ; the others are the same program under another name.
DISTINCT = ("deepseek", "qwen2", "llama4")


def row_counts(config) -> tuple[int, ...]:
    return (1, 3, config.BLEN, config.BLEN + 1, config.MLEN, config.MLEN + 4)


def run_exactly(
    engine,
    config_name,
    arch,
    hidden,
    intermediate,
    rows,
    *,
    kind="exact",
    seed=0,
    issue=None,
    routed=False,
):
    """Runs one case in multiples of MLEN and asserts that every bit and every stage is right."""
    config = PRESETS[config_name]
    spec = spec_of(arch, hidden=hidden * config.MLEN, intermediate=intermediate * config.MLEN)
    case = build_case(config, spec, rows=rows, kind=kind, seed=seed, routed_accumulator=routed)
    simulation = Simulation(
        config, case.program.image, case.hbm(), engine=engine(config), issue=issue
    )
    case.load(simulation)
    result = simulation.run(max_cycles=200_000)
    assert result.cause is Trap.DONE, result.report(simulation.image)
    wrong = [str(c) for c in case.check(simulation) if not c.ok] + case.check_stages(result)
    assert not wrong, "\n".join(wrong)
    return case, simulation, result


def rotated(names, config_name, shapes):
    """Every (arch, kind, rows), each with the next of `shapes`, so that all meet without a full
    product."""
    rows = row_counts(PRESETS[config_name])
    shape = itertools.cycle(shapes)
    return [
        (arch, kind, n, next(shape)) for kind in ("exact", "random") for n in rows for arch in names
    ]


@pytest.mark.parametrize(("arch", "kind", "rows", "shape"), rotated(ARCHS, "tiny", FACTORS))
def test_tiny(engine, arch, kind, rows, shape):
    run_exactly(engine, "tiny", arch, *shape, rows, kind=kind, seed=rows)


@pytest.mark.parametrize(
    ("arch", "kind", "rows", "shape"),
    [case for i, case in enumerate(rotated(ARCHS, "small", FACTORS)) if case[2] <= 5 or i % 7 == 0],
)
def test_small(engine, arch, kind, rows, shape):
    run_exactly(engine, "small", arch, *shape, rows, kind=kind, seed=rows)


@pytest.mark.parametrize("kind", ["exact", "random"])
@pytest.mark.parametrize("arch", ARCHS)
def test_default(engine, arch, kind):
    run_exactly(engine, "default", arch, 1, 1, 3, kind=kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exact", "random"])
@pytest.mark.parametrize("rows", row_counts(PRESETS["tiny"]))
@pytest.mark.parametrize("shape", FACTORS)
@pytest.mark.parametrize("arch", DISTINCT)
def test_tiny_full_product(engine, arch, shape, rows, kind):
    run_exactly(engine, "tiny", arch, *shape, rows, kind=kind, seed=rows + 100)


@pytest.mark.slow
@pytest.mark.parametrize("shape", FACTORS)
@pytest.mark.parametrize("arch", DISTINCT)
def test_small_long_rows(engine, arch, shape):
    run_exactly(engine, "small", arch, *shape, PRESETS["small"].MLEN + 4, kind="random")


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "rows"), [((2, 1), 5), ((1, 2), 4), ((3, 3), 1)])
def test_default_wider(engine, shape, rows):
    run_exactly(engine, "default", "qwen2", *shape, rows, kind="random")


@pytest.mark.parametrize("arch", ["deepseek", "qwen2"])
def test_on_top_of_a_routed_accumulator(engine, arch):
    case, _, _ = run_exactly(engine, "tiny", arch, 2, 1, 5, routed=True)
    assert np.any(case.total != case.golden.output)


@pytest.mark.parametrize("arch", ["deepseek", "qwen2"])
def test_serial_gives_the_same_bits_in_more_cycles(engine, arch):
    _, _, overlap = run_exactly(engine, "tiny", arch, 2, 2, 5, kind="random", issue="overlap")
    _, _, serial = run_exactly(engine, "tiny", arch, 2, 2, 5, kind="random", issue="serial")
    assert overlap.cycles < serial.cycles
    assert serial.overlap_cycles == 0 < overlap.overlap_cycles


def test_the_same_engine_runs_again_from_a_clean_state(engine):
    _, _, a = run_exactly(engine, "tiny", "qwen2", 1, 1, 3, seed=1)
    run_exactly(engine, "tiny", "deepseek", 2, 2, 5, seed=2)
    _, _, b = run_exactly(engine, "tiny", "qwen2", 1, 1, 3, seed=1)
    assert a.counters == b.counters


class TestTheComparisonCanFail:
    """A bench that passes on wrong results is worse than none: four wrong results, each noticed."""

    def finished(self, engine):
        config = PRESETS["tiny"]
        case = build_case(config, spec_of("llama4", hidden=16, intermediate=8), rows=5)
        simulation = Simulation(config, case.program.image, case.hbm(), engine=engine(config))
        case.load(simulation)
        return case, simulation, case.program.vram["accumulator"]

    def broken(self, case, simulation) -> set[str]:
        return {c.name for c in case.check(simulation) if not c.ok}

    def test_nothing_executed(self, engine):
        case, simulation, _ = self.finished(engine)
        assert {"x", "accumulator", "stored result (MX bytes)"} <= self.broken(case, simulation)

    def test_zero_output(self, engine):
        case, simulation, out = self.finished(engine)
        simulation.run()
        simulation.memories.write_vector(out.first_row, np.zeros((out.memory_rows, 8), np.uint16))
        assert self.broken(case, simulation) == {"accumulator"}

    def test_one_flipped_bit_is_reported_with_its_place_values_and_writer(self, engine):
        case, simulation, out = self.finished(engine)
        simulation.run()
        rows = simulation.memories.read_vector(out.first_row, out.memory_rows)
        rows[out.physical_rows + 3, 2] ^= 1
        simulation.memories.write_vector(out.first_row, rows)
        (comparison,) = [c for c in case.check(simulation) if not c.ok]
        (mismatch,) = comparison.first
        assert (mismatch.row, mismatch.column, mismatch.lane) == (3, 10, 2)
        assert mismatch.got == mismatch.want ^ 1
        text = str(comparison)
        assert f"got 0x{mismatch.got:04X}, want 0x{mismatch.want:04X}" in text
        assert "stage scatter_combine): V_ADD_VV" in text
        assert "line" in text

    def test_two_swapped_rows(self, engine):
        case, simulation, out = self.finished(engine)
        simulation.run()
        rows = simulation.memories.read_vector(out.first_row, out.memory_rows)
        rows[[0, 1]] = rows[[1, 0]]
        simulation.memories.write_vector(out.first_row, rows)
        assert self.broken(case, simulation) == {"accumulator"}
