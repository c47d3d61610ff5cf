"""The router program against the bit-exact reference, run by the architectural machine."""

import dataclasses

import numpy as np
import pytest

from compiler import CompileError, Program
from compiler.counts import count_issued
from compiler.models import MODELS
from compiler.router import Router
from compiler.router_program import RouterProgram
from compiler.router_rule import RouterSpec
from isa import PRESETS, PlenaConfig, Trap
from sim.hbm import HbmDevice
from sim.machine import Machine
from testbench.router_case import RouterCase, build_router_case, golden_routing, router_data
from tests.testbench.garbage import load_into_garbage


def run(case: RouterCase, seed: int = 0) -> Machine:
    """Run twice from a vector SRAM full of garbage: nothing is taken to be zero, or left over."""
    config = case.program.config
    machine = Machine(config, case.program.image, HbmDevice(config))
    load_into_garbage(case, machine.memories, seed)
    for _ in range(2):
        assert machine.run().cause is Trap.DONE
    return machine


def differences(case: RouterCase, machine: Machine) -> list[str]:
    got = case.results(machine.memories)
    return [name for name, want in case.wanted.items() if not np.array_equal(got[name], want)]


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda c: c.name)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_bit_exact(config: PlenaConfig, model: str) -> None:
    spec = MODELS[model].scaled(config).router
    case = build_router_case(config, spec, tokens=5, seed=3)
    assert differences(case, run(case)) == []


def test_the_program_does_not_grow_with_tokens_or_experts() -> None:
    """Both are loops; all instructions are the router's."""
    config = PRESETS["default"]
    words = []
    for name, tokens in (("gpt-oss-20b", 2), ("gpt-oss-20b", 50), ("gpt-oss-120b", 50)):
        program = build_router_case(
            config, MODELS[name].scaled(config).router, tokens=tokens
        ).program
        words.append(len(program.image.words))
        assert program.issued.by_stage == {"router_topk": program.issued.total}
    assert max(words) <= min(words) + 4


def test_two_routers_in_one_program_do_not_disturb_each_other() -> None:
    """The second one's operands, loaded before the run, are not the first one's scratch."""
    config = PRESETS["tiny"]
    prog = Program(config, "two layers")
    made = []
    for name in ("gpt-oss-20b", "deepseek-v3"):
        spec = MODELS[name].scaled(config).router
        x = prog.vram.matrix("x", 3, spec.hidden, preloaded=True)
        router = Router(prog, spec, tokens=3)
        router.emit(x)
        made.append((spec, x, router))
    prog.end_region()
    image = prog.build()
    machine = Machine(config, image, HbmDevice(config))
    cases = []
    for seed, (spec, x, router) in enumerate(made):
        program = RouterProgram(
            config=config,
            spec=spec,
            tokens=3,
            image=image,
            x=x,
            router=router,
            fp_mem=prog.fp_mem.initial(),
            issued=count_issued(image),
        )
        data = router_data(spec, 3, seed=seed)
        golden = golden_routing(spec, data, config.MLEN)
        cases.append(RouterCase(program=program, data=data, golden=golden))
        cases[-1].load(machine.memories)
    assert machine.run().cause is Trap.DONE
    assert [differences(case, machine) for case in cases] == [[], []]


def test_scratch_is_given_back_and_operands_stay() -> None:
    config = PRESETS["tiny"]
    prog = Program(config, "scratch")
    spec = MODELS["deepseek-v3"].scaled(config).router
    x = prog.vram.matrix("x", 3, spec.hidden)
    router = Router(prog, spec, tokens=3)
    router.emit(x)
    assert set(prog.vram.matrices) == {"x", "router weight", "router logits"}
    assert set(router.operands) == {"weight", "correction"}


def test_a_router_refuses_what_it_cannot_take() -> None:
    config = PRESETS["tiny"]
    spec = MODELS["glm-4.5"].scaled(config).router
    prog = Program(config, "refused")
    router = Router(prog, spec, tokens=3)
    with pytest.raises(CompileError, match=r"router input x \[2, 24\]: must be \[3 or more, 24\]"):
        router.emit(prog.vram.matrix("x", 2, 24))
    with pytest.raises(CompileError, match=r"router correction \(3,\): must be \(16,\)"):
        router.place("correction", np.zeros(3, np.uint16))
    with pytest.raises(CompileError, match="tokens = 0"):
        Router(prog, spec, tokens=0)
    few = config.replace(TOPK_MAX=8)
    grouped = RouterSpec(
        experts=24,
        top_k=2,
        hidden=8,
        rule=dataclasses.replace(MODELS["deepseek-v3"].rule, groups=12, kept_groups=9),
    )
    with pytest.raises(CompileError, match=r"kept_groups = 9: .*TOPK_MAX = 8 is too small"):
        Router(Program(few, "groups"), grouped, tokens=1)
