"""Whole layers on RTL against the reference: every model of the table, every lowering."""

from dataclasses import replace

import numpy as np
import pytest

from compiler import CompileError
from compiler.layer_program import choose_lowering
from compiler.models import MODELS
from compiler.moe_layer import LayerPlan
from compiler.routed_experts import Accumulation
from compiler.routed_spec import Lowering
from isa.config import PRESETS
from isa.traps import Trap
from sim.machine import Machine
from sim.numerics.bf16 import round_to_bf16, to_bits
from sim.simulation import Simulation
from testbench.layer_case import build_layer_case
from testbench.reference.routed_data import routing
from testbench.workload import read_matrix

PAIR, EXPERT = Lowering.PAIR, Lowering.EXPERT
NAMED = ("gpt-oss-20b", "qwen3-30b-a3b", "qwen2-moe-a14b", "deepseek-v3")


def plan_of(name, config, tokens, lowering, order=None, known=None) -> LayerPlan:
    if order is None:
        order = Accumulation.PAIR if lowering is PAIR else Accumulation.EXPERT
    model = MODELS[name].scaled(config)
    return LayerPlan(model=model, tokens=tokens, lowering=lowering, order=order, known=known)


def run_exactly(engine, config, plan, **options):
    """Runs one case and asserts that every bit and every stage is right."""
    case = build_layer_case(config, plan, **options)
    simulation = Simulation(config, case.image, case.hbm(), engine=engine(config))
    case.load(simulation)
    result = simulation.run(max_cycles=5_000_000)
    assert result.cause is Trap.DONE, result.report(simulation.image)
    wrong = [str(c) for c in case.check(simulation) if not c.ok] + case.check_stages(result)
    assert not wrong, "\n".join(wrong)
    return case, simulation, result


@pytest.mark.parametrize("lowering", [PAIR, EXPERT], ids=lambda v: v.value)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_at_a_scaled_size(fast_engine, name, lowering):
    config = PRESETS["tiny"]
    tokens = 3 if lowering is PAIR else 5
    run_exactly(fast_engine, config, plan_of(name, config, tokens, lowering), kind="random")


@pytest.mark.parametrize("lowering", [PAIR, EXPERT], ids=lambda v: v.value)
@pytest.mark.parametrize("name", NAMED)
def test_default_configuration(fast_engine, name, lowering):
    config = PRESETS["default"]
    run_exactly(fast_engine, config, plan_of(name, config, 3, lowering), kind="random")


@pytest.mark.parametrize("name", ["qwen2-moe-a14b", "llama4-scout", "gpt-oss-120b"])
@pytest.mark.parametrize("lowering", [PAIR, EXPERT], ids=lambda v: v.value)
@pytest.mark.parametrize("tokens", [1, 4])
def test_two_layers_in_one_program(fast_engine, name, lowering, tokens):
    config = PRESETS["tiny"]
    plan = plan_of(name, config, tokens, lowering)
    case, simulation, _ = run_exactly(fast_engine, config, plan, layers=2, kind="random")
    one = build_layer_case(config, plan, kind="random")
    assert not np.array_equal(case.result(simulation), one.reference)


@pytest.mark.parametrize("tokens", [1, 2, 7])
@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2"])
def test_pair_order_gives_the_bits_of_pair_major(fast_engine, name, tokens):
    config = PRESETS["tiny"]
    results = []
    for lowering in (PAIR, EXPERT):
        plan = plan_of(name, config, tokens, lowering, Accumulation.PAIR)
        case, simulation, _ = run_exactly(fast_engine, config, plan, kind="random")
        results.append(case.result(simulation))
    assert np.array_equal(*results)


@pytest.mark.parametrize("order", Accumulation)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_batch_is_cut_into_pieces_when_int_mem_is_short(order, layers):
    """On the architectural machine: there is no engine for a machine of this size. The last piece
    is smaller, which the first one of the next layer must not feel."""
    config = PRESETS["tiny"].replace(INT_MEM_WORDS=58 + 22 * layers)
    plan = plan_of("mixtral-8x7b", config, 11, EXPERT, order)
    case = build_layer_case(config, plan, layers=layers, kind="random")
    turn = "@stage=gather the expert of this turn"
    pieces = sum(turn in line for line in case.image.source) // layers
    assert pieces > 2
    assert 11 % pieces
    machine = Machine(config, case.image, case.hbm())
    case.load(machine)
    assert machine.run().cause is Trap.DONE
    for wanted in case.expected:
        assert np.array_equal(read_matrix(machine, wanted.matrix), to_bits(wanted.values))


def test_a_sort_that_does_not_fit_says_what_it_needs_and_what_to_do():
    config = PRESETS["tiny"].replace(INT_MEM_WORDS=520, VRAM_ROWS=4096)
    model = replace(MODELS["kimi-k2"].scaled(config), experts=384, top_k=8)
    plan = LayerPlan(model=model, tokens=12, lowering=EXPERT, order=Accumulation.EXPERT)
    with pytest.raises(CompileError) as error:
        build_layer_case(config, plan)
    assert str(error.value) == (
        "tokens = 12, experts = 384: sorting one token takes 425 words of INT_MEM, 424 are free "
        "(give fewer tokens at a time, lower expert-major with a known routing (a trace) or "
        "pair-major, or raise INT_MEM_WORDS)"
    )


@pytest.mark.parametrize("lowering", [PAIR, EXPERT], ids=lambda v: v.value)
def test_routing_from_a_trace(fast_engine, lowering):
    config = PRESETS["tiny"]
    model = MODELS["qwen3-30b-a3b"].scaled(config)
    known = routing("skewed", 6, model.experts, model.top_k, seed=4)
    weights = round_to_bf16(np.random.default_rng(5).uniform(0.1, 1, known.shape))
    plan = plan_of("qwen3-30b-a3b", config, 6, lowering, known=known)
    run_exactly(fast_engine, config, plan, route_weights=weights)


def test_auto_is_expert_major_where_tokens_share_experts():
    config = PRESETS["default"]
    mixtral = MODELS["mixtral-8x7b"]
    assert choose_lowering(config, mixtral, 1) is PAIR
    assert choose_lowering(config, mixtral, 64) is EXPERT
    apart = np.arange(8).reshape(4, 2)
    assert choose_lowering(config, mixtral, 4, apart) is PAIR
    assert choose_lowering(config, mixtral, 4, np.tile([0, 1], (4, 1))) is EXPERT
    # Nothing is left of INT_MEM to sort 384 experts in.
    assert choose_lowering(config, MODELS["kimi-k2"], 512) is PAIR
