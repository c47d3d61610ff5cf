"""Routers on RTL against the reference, bit for bit: every model, both issue policies, sizes of
their own."""

import numpy as np
import pytest

from compiler.models import MODELS
from compiler.router_rule import GroupScore, RouterRule, RouterSpec, Scores
from isa.config import PRESETS, PlenaConfig
from isa.traps import Trap
from sim.lockstep import Lockstep
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.router_case import build_router_case
from tests.conftest import engine_for, needs_compiler
from tests.testbench.garbage import load_into_garbage

TINY, SMALL, DEFAULT = PRESETS["tiny"], PRESETS["small"], PRESETS["default"]

pytestmark = needs_compiler


def run_exactly(
    config: PlenaConfig,
    spec: RouterSpec,
    *,
    tokens: int,
    seed: int = 0,
    issue: str | None = None,
    lockstep: bool = False,
) -> RunResult:
    """Routes on RTL and asserts that logits, indices and weights are right in every bit."""
    case = build_router_case(config, spec, tokens=tokens, seed=seed)
    image, engine = case.program.image, engine_for(config, "compiled")
    simulation = Simulation(config, image, engine=engine, issue=issue)
    load_into_garbage(case, simulation.memories, seed)
    result = simulation.run(observers=[Lockstep()] if lockstep else [])
    assert result.cause is Trap.DONE, result.report(image)
    got = case.results(simulation.memories)
    wrong = [name for name, want in case.wanted.items() if not np.array_equal(got[name], want)]
    assert wrong == []
    completed = {
        image.vocabulary[stage]
        for name, counts in result.counters.items()
        if name.startswith("completed_")
        for stage, count in enumerate(counts)
        if count
    }
    assert completed == {"router_topk"}
    return result


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_on_a_tiny_machine(model: str, tokens: int) -> None:
    spec = MODELS[model].scaled(TINY).router
    run_exactly(TINY, spec, tokens=tokens, seed=tokens)


@pytest.mark.parametrize("model", ["gpt-oss-20b", "qwen2-moe-a14b", "deepseek-v2", "deepseek-v3"])
def test_serial_issue_gives_the_same_bits_in_more_cycles(model: str) -> None:
    spec = MODELS[model].scaled(TINY).router
    overlap = run_exactly(TINY, spec, tokens=3, issue="overlap")
    assert run_exactly(TINY, spec, tokens=3, issue="serial").cycles > overlap.cycles


@pytest.mark.parametrize("model", ["deepseek-v2", "deepseek-v3", "llama4-scout"])
def test_lock_step_with_the_machine(model: str) -> None:
    run_exactly(TINY, MODELS[model].scaled(TINY).router, tokens=2, lockstep=True)


def grouped(
    groups: int, kept: int, score: GroupScore, *, softmax: bool = False, renormalised: bool = True
) -> RouterRule:
    return RouterRule(
        scores=Scores.SOFTMAX if softmax else Scores.SIGMOID,
        renormalised=renormalised,
        factor=1.0 if softmax and renormalised else 2.5,
        correction_bias=not softmax,
        groups=groups,
        kept_groups=kept,
        group_score=score,
    )


MAXIMUM, PAIRS = GroupScore.MAXIMUM, GroupScore.TOP_TWO_SUM


@pytest.mark.parametrize(
    ("experts", "top_k", "rule"),
    [
        # Groups of 5 and of 20 straddle the rows of 8 lanes, those of 3 leave lanes empty.
        (20, 3, grouped(4, 2, PAIRS)),
        (60, 6, grouped(3, 2, PAIRS)),
        (60, 6, grouped(3, 2, MAXIMUM)),
        (21, 4, grouped(7, 3, MAXIMUM, softmax=True, renormalised=False)),
        (21, 4, grouped(7, 3, MAXIMUM, softmax=True)),
        # All groups kept, and all experts of the kept one chosen.
        (16, 16, grouped(2, 2, PAIRS)),
        (16, 4, grouped(4, 1, PAIRS)),
        # More groups than lanes.
        (40, 5, grouped(20, 7, PAIRS)),
        (9, 1, RouterRule(scores=Scores.SIGMOID, factor=0.5)),
        (3, 3, RouterRule(scores=Scores.SIGMOID, renormalised=True)),
        (1, 1, RouterRule(scores=Scores.SOFTMAX)),
        # More chosen than lanes.
        (30, 13, RouterRule(scores=Scores.SIGMOID, renormalised=True, factor=2.827)),
        (30, 13, RouterRule(scores=Scores.SOFTMAX, factor=16.0)),
        (67, 9, RouterRule(scores=Scores.SELECTED_SOFTMAX, bias=True)),
    ],
)
@pytest.mark.parametrize("blocks", [1, 9])
def test_shapes_of_their_own(experts: int, top_k: int, rule: RouterRule, blocks: int) -> None:
    spec = RouterSpec(experts=experts, top_k=top_k, hidden=blocks * TINY.MLEN, rule=rule)
    run_exactly(TINY, spec, tokens=3, seed=experts)


@pytest.mark.slow
@pytest.mark.parametrize("config", [SMALL, DEFAULT], ids=lambda c: c.name)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_on_larger_machines(config: PlenaConfig, model: str) -> None:
    run_exactly(config, MODELS[model].scaled(config).router, tokens=16)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        *("gpt-oss-20b", "mixtral-8x7b", "qwen2-moe-a14b"),
        *("deepseek-v2-lite", "llama4-scout"),
    ],
)
def test_full_size_routers_that_the_default_machine_holds(model: str) -> None:
    run_exactly(DEFAULT, MODELS[model].router, tokens=2)
