"""Lock step to the end of a program: traps, breakpoints, errors of the memory."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC
from isa.traps import Trap
from sim.lockstep import Lockstep, LockstepError
from sim.machine.registry import BUILDERS
from sim.simulation import Simulation
from tests.sim.machine_bench import bits
from tests.sim.test_sim_lockstep import EVERY_EFFECT, load

TINY = PRESETS["tiny"]
ISSUES = ("overlap", "serial")


@pytest.mark.parametrize("issue", ISSUES)
@pytest.mark.parametrize(
    "text",
    [
        "S_LD_FP f1, gp0, 1024",
        ".word 0x0000003F",
        "C_LOOP_START gp1, 0",
        "V_EXP_V gp1, gp0\nS_ADDI_INT gp1, gp1, 1\nV_EXP_V gp0, gp1",
        "V_EXP_V gp0, gp0\nC_BREAK\nV_EXP_V gp0, gp0",
    ],
)
def test_traps_and_breakpoints_agree(program: Callable[..., Simulation], issue: str, text: str):
    lockstep = Lockstep()
    simulation = load(program, text, issue)
    result = simulation.run(observers=[lockstep])
    if result.cause is Trap.BREAK:
        simulation.memories.write_vector(0, bits([np.ones(8)]))
        result = simulation.resume(result, observers=[lockstep])
        assert result.cause is Trap.DONE
        assert lockstep.executed == 3


def test_another_halt_record_is_found(
    program: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch
):
    code = BY_MNEMONIC["S_LD_FP"].code
    original = BUILDERS[code]
    monkeypatch.setitem(
        BUILDERS, code, lambda state, i, pc: original(state, replace(i, values=(1, 0, 1025)), pc)
    )
    with pytest.raises(LockstepError, match="the halt record differs") as caught:
        program("S_LD_FP f1, gp0, 1024").run(observers=[Lockstep()])
    assert "1024" in str(caught.value)
    assert "1025" in str(caught.value)


@pytest.mark.parametrize("issue", ISSUES)
@pytest.mark.parametrize("address", [0, 64])
def test_errors_of_the_memory_agree(program: Callable[..., Simulation], issue: str, address: int):
    simulation = load(program, EVERY_EFFECT.replace("gp0, a0", "gp2, a0"), issue)
    simulation.hbm.inject_fault(address)
    result = simulation.run(observers=[Lockstep()])
    assert (result.cause, result.precise) == (Trap.HBM_ADDRESS, issue == "serial")
