"""The router program against the bit-exact reference, run by the architectural machine."""

import numpy as np
import pytest

from compiler.models import MODELS
from isa import PRESETS, PlenaConfig, Trap
from sim.hbm import HbmDevice
from sim.machine import Machine
from testbench.router_case import RouterCase, build_router_case
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
