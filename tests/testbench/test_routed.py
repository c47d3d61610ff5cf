"""Routed experts on RTL against the reference: every lowering, bit for bit, stage for stage."""

import itertools

import numpy as np
import pytest

from compiler.routed_experts import Accumulation
from compiler.routed_spec import Lowering, RoutedSpec
from isa.config import PRESETS
from isa.stages import Stage
from isa.traps import Trap
from sim.simulation import Simulation
from testbench.routed_case import PROJECTION_STAGES, build_routed_case

PAIR, EXPERT = Lowering.PAIR, Lowering.EXPERT
#: lowering, order of accumulation, whether the compiler knows the routing.
LOWERINGS = {
    "pair": (PAIR, Accumulation.PAIR, True),
    "expert": (EXPERT, Accumulation.EXPERT, True),
    "expert in pair order": (EXPERT, Accumulation.PAIR, True),
    "device": (EXPERT, Accumulation.EXPERT, False),
    "device in pair order": (EXPERT, Accumulation.PAIR, False),
}
FORMS = {
    "swiglu": {},
    "gpt-oss": {"activation": "gpt_oss_clamp_gated", "biases": True},
    "llama4": {"scale_input": True},
}
#: experts, top_k, hidden and intermediate in MLEN, cap.
SHAPES = ((8, 2, 1, 1, None), (5, 3, 2, 1, 1), (6, 1, 1, 3, 2), (4, 4, 3, 2, 2))


def run_exactly(engine, config_name, lowering, spec, tokens, **options):
    """Runs one case and asserts that every bit and every stage is right."""
    config = PRESETS[config_name]
    form, order, known = LOWERINGS[lowering]
    case = build_routed_case(
        config, spec, tokens=tokens, lowering=form, order=order, known=known, **options
    )
    simulation = Simulation(config, case.image, case.hbm(), engine=engine(config))
    case.load(simulation)
    result = simulation.run(max_cycles=2_000_000)
    assert result.cause is Trap.DONE, result.report(simulation.image)
    wrong = [str(c) for c in case.check(simulation) if not c.ok] + case.check_stages(result)
    assert not wrong, "\n".join(wrong)
    return case, simulation, result


def spec_of(config_name, shape, **form):
    experts, top_k, hidden, inter, _ = shape
    mlen = PRESETS[config_name].MLEN
    return RoutedSpec(
        experts=experts, top_k=top_k, hidden=hidden * mlen, intermediate=inter * mlen, **form
    )


def rotated(tokens):
    """Every (lowering, form, tokens), each with the next shape and choice of experts."""
    shapes = itertools.cycle(SHAPES)
    choices = itertools.cycle(("random", "skewed", "one"))
    kinds = itertools.cycle(("exact", "random"))
    return [
        (lowering, form, n, next(shapes), next(choices), next(kinds))
        for n in tokens
        for form in FORMS
        for lowering in LOWERINGS
    ]


@pytest.mark.parametrize(
    ("lowering", "form", "tokens", "shape", "choice", "kind"), rotated((1, 3, 4, 9))
)
def test_tiny(fast_engine, lowering, form, tokens, shape, choice, kind):
    spec = spec_of("tiny", shape, **FORMS[form])
    options = {"choice": choice, "kind": kind, "seed": tokens, "cap": shape[-1]}
    run_exactly(fast_engine, "tiny", lowering, spec, tokens, **options)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("choice", ["one", "skewed"])
def test_all_tokens_on_one_expert_and_experts_without_tokens(fast_engine, lowering, choice):
    spec = RoutedSpec(experts=6, top_k=1, hidden=16, intermediate=8)
    run_exactly(fast_engine, "tiny", lowering, spec, 11, choice=choice)


def test_tokens_gathered_from_hbm(fast_engine):
    for tokens in (1, 5):
        spec = spec_of("tiny", SHAPES[1], **FORMS["gpt-oss"])
        run_exactly(fast_engine, "tiny", "pair", spec, tokens, gather_from_hbm=True, kind="random")


def test_the_order_of_accumulation_shows_and_pair_order_is_that_of_pair_major(fast_engine):
    spec = RoutedSpec(experts=6, top_k=4, hidden=16, intermediate=8)
    results = {}
    for lowering in LOWERINGS:
        case, simulation, _ = run_exactly(
            fast_engine, "tiny", lowering, spec, 7, kind="random", seed=3
        )
        results[lowering] = case.result(simulation)
    assert np.array_equal(results["pair"], results["expert in pair order"])
    assert np.array_equal(results["pair"], results["device in pair order"])
    assert np.array_equal(results["expert"], results["device"])
    assert np.any(results["pair"] != results["expert"])


def test_one_program_sorts_any_routing(fast_engine):
    spec = RoutedSpec(experts=6, top_k=2, hidden=8, intermediate=8)
    images = set()
    for choice in ("random", "one", "skewed"):
        case, _, _ = run_exactly(fast_engine, "tiny", "device", spec, 9, choice=choice)
        images.add(case.image.words.tobytes())
    assert len(images) == 1


@pytest.mark.parametrize("lowering", ["device", "device in pair order"])
def test_as_many_experts_as_kimi_k2_has_are_sorted_in_the_default_memory(fast_engine, lowering):
    spec = RoutedSpec(experts=384, top_k=8, hidden=8, intermediate=8)
    assert PRESETS["tiny"].INT_MEM_WORDS == PRESETS["default"].INT_MEM_WORDS
    run_exactly(fast_engine, "tiny", lowering, spec, 12, kind="random")


@pytest.mark.parametrize("lowering", ["device", "device in pair order"])
@pytest.mark.parametrize("inter", [1, 2, 20])
def test_work_beside_the_products_of_many_column_blocks(fast_engine, lowering, inter):
    """One or two K tiles, in and out of a loop over column blocks."""
    for hidden in (1, 2):
        spec = RoutedSpec(experts=3, top_k=2, hidden=8 * hidden, intermediate=8 * inter)
        run_exactly(fast_engine, "tiny", lowering, spec, 6, kind="random")


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_default_configuration(fast_engine, lowering):
    spec = RoutedSpec(experts=8, top_k=2, hidden=128, intermediate=64)
    run_exactly(fast_engine, "default", lowering, spec, 5, kind="random")


def test_expert_major_pays_off(fast_engine):
    """64 tokens, 8 experts, top-2: at most a fourteenth of the weight traffic, a third of the
    cycles, and busy multipliers, whoever decides the routing."""
    spec = RoutedSpec(experts=8, top_k=2, hidden=64, intermediate=64)
    runs = {
        lowering: run_exactly(fast_engine, "default", lowering, spec, 64)
        for lowering in ("pair", "expert", "device")
    }
    _, pair_simulation, pair = runs["pair"]
    for lowering in ("expert", "device"):
        _, simulation, result = runs[lowering]
        assert simulation.hbm.total_read * 14 <= pair_simulation.hbm.total_read
        assert result.cycles * 3 <= pair.cycles
        cycles = sum(result.counters["wall"][stage] for stage in PROJECTION_STAGES)
        assert sum(result.counters["multipliers"]) >= 0.6 * cycles


@pytest.mark.parametrize("lowering", ["pair", "expert"])
def test_weights_arrive_under_the_products_before_them(fast_engine, lowering):
    """Matrix unit and HBM port are busy together, most of the time that the shorter one takes."""
    spec = RoutedSpec(experts=8, top_k=2, hidden=64, intermediate=64)
    _, _, result = run_exactly(fast_engine, "default", lowering, spec, 16)
    matrix, hbm = (sum(result.counters[f"busy_{unit}"]) for unit in ("matrix", "hbm"))
    rest = result.cycles - matrix - hbm
    vector = sum(result.counters["busy_vector"])
    assert rest < -0.5 * min(matrix, hbm) + vector
    assert result.counters["wall"][Stage.EXPERT_PROJECTION] < matrix
