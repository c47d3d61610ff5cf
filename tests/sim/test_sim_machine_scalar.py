"""The architectural machine: integers, BF16 scalars, word memories, loops, state registers."""

import numpy as np
import pytest

from isa.traps import Trap
from sim.machine import Halt
from tests.sim.machine_bench import make

SETUP = "S_LUI_INT gp2, 1048575\nS_ADDI_INT gp2, gp2, 4095\nS_ADDI_INT gp3, gp0, 3\n"


@pytest.mark.parametrize(
    ("instruction", "result"),
    [
        ("S_ADD_INT gp1, gp2, gp3", 2),
        ("S_SUB_INT gp1, gp0, gp3", 0xFFFFFFFD),
        ("S_MUL_INT gp1, gp2, gp2", 1),
        ("S_ADDI_INT gp1, gp2, 262143", 262142),
        ("S_LUI_INT gp1, 1048575", 0xFFFFF000),
        (".word 0xFFFFFC65", 0xFFFFF000),  # S_LUI_INT gp1 of 22 ones: the low 32 bits stay
        ("S_ADD_INT gp0, gp3, gp3", 0),
    ],
)
def test_integers_are_modulo_2_32(instruction: str, result: int):
    machine = make(SETUP + instruction)
    assert machine.run().cause is Trap.DONE
    assert machine.memories.read_gp()[:2].tolist() == [0, result]


@pytest.mark.parametrize(
    ("instruction", "a", "b", "result"),
    [
        ("S_SUB_FP f3, f1, f2", 0x3F80, 0x3F80, 0x0000),
        ("S_SUB_FP f3, f1, f2", 0x4040, 0x3F80, 0x4000),
        ("S_MAX_FP f3, f1, f2", 0x8000, 0x0000, 0x0000),
        ("S_MAX_FP f3, f1, f2", 0x3F80, 0x7F81, 0x7FC0),
        ("S_MUL_FP f3, f1, f2", 0x4040, 0xC000, 0xC0C0),
        ("S_RECI_FP f3, f1", 0x4040, 0, 0x3EAB),
        ("S_SQRT_FP f3, f1", 0x4080, 0, 0x4000),
        ("S_SQRT_FP f3, f1", 0x8000, 0, 0x8000),
        ("S_SQRT_FP f3, f1", 0xBF80, 0, 0x7FC0),
        ("S_ADD_FP f0, f1, f2", 0x3F80, 0x3F80, 0x0000),  # f3 was never written
    ],
)
def test_bf16_scalars(instruction: str, a: int, b: int, result: int):
    machine = make("S_LD_FP f1, gp0, 0\nS_LD_FP f2, gp0, 1\n" + instruction)
    machine.memories.write_fp(0, np.array([a, b], np.uint16))
    assert machine.run().cause is Trap.DONE
    f = machine.memories.read_f()
    assert f[0] == 0
    assert f[3] == result


def test_word_memories_and_the_map_of_any_alignment():
    machine = make(
        """
        S_ADDI_INT gp1, gp0, 100
        S_ADDI_INT gp2, gp0, 16
        S_LD_FP f1, gp1, 3
        S_ST_FP f1, gp0, 1023
        S_ST_INT gp1, gp1, 923
        S_LD_INT gp3, gp0, 1023
        S_MAP_V_FP gp2, gp1, 1
        """
    )
    words = np.arange(1024, dtype=np.uint16)
    machine.memories.write_fp(0, words)
    assert machine.run().cause is Trap.DONE
    memories = machine.memories
    assert memories.read_fp()[[103, 1023]].tolist() == [103, 103]
    assert memories.read_int()[1023] == 100
    assert memories.read_gp()[3] == 100
    assert memories.read_vector(1, 3).tolist() == [[0] * 8, list(range(101, 109)), [0] * 8]


def test_state_and_address_registers():
    machine = make(
        """
        S_ADDI_INT gp1, gp0, 5
        S_ADDI_INT gp2, gp0, 7
        C_SET_ADDR_REG a7, gp1, gp2
        C_SET_SCALE_REG gp1
        C_SET_STRIDE_REG gp2
        C_SET_V_MASK_REG gp1
        """
    )
    reset = {"SCALE": 0, "STRIDE": 1, "V_MASK": 0, "TOPK": 0, "TOPK_VALID": 0}
    assert machine.memories.read_state() == reset
    machine.run()
    assert machine.memories.read_a().tolist() == [0] * 7 + [5 << 32 | 7]
    assert machine.memories.read_state() == reset | {"SCALE": 5, "STRIDE": 7, "V_MASK": 5}
    machine = make("S_ADDI_INT gp1, gp0, 9\nC_SET_TOPK_REG gp1")
    machine.run()
    assert machine.memories.read_state() == reset | {"TOPK": 9, "TOPK_VALID": 1}


def test_loops_nest_and_leave_their_counter_0():
    body = "S_ADDI_INT gp3, gp3, 1\n"
    nest = f"C_LOOP_START gp1, 3\nC_LOOP_START gp2, 4\n{body}C_LOOP_END gp2\nC_LOOP_END gp1\n"
    machine = make(nest)
    assert machine.run() == Halt(Trap.DONE, 5)
    assert machine.memories.read_gp()[1:4].tolist() == [0, 0, 12]
    assert machine.executed == 1 + 3 * (1 + 4 * 2 + 1)
    machine = make(f"C_LOOP_START gp0, 5\n{body}C_LOOP_END gp0\n")
    machine.run()
    assert machine.memories.read_gp()[3] == 1  # gp0 reads 0: once


def test_the_body_may_rewrite_the_counter():
    machine = make("C_LOOP_START gp1, 9\nS_ADDI_INT gp2, gp2, 1\nS_ADDI_INT gp1, gp0, 1\n"
                   "C_LOOP_END gp1\n")  # fmt: skip
    machine.run()
    assert machine.memories.read_gp()[1:3].tolist() == [0, 1]


def test_break_stops_and_resumes_behind_it():
    machine = make("S_ADDI_INT gp1, gp0, 8\nC_BREAK\nS_ADDI_INT gp1, gp1, 1\n")
    assert machine.run() == Halt(Trap.BREAK, 1, 0x34)
    assert machine.memories.read_gp()[1] == 8
    assert machine.resume() == Halt(Trap.DONE, 3)
    assert machine.memories.read_gp()[1] == 9
    with pytest.raises(ValueError, match="DONE"):
        machine.resume()


def test_the_limit_is_a_watchdog():
    machine = make("C_LOOP_START gp1, 4000000\nS_ADDI_INT gp2, gp2, 1\nC_LOOP_END gp1\n")
    assert machine.run(max_instructions=1 + 2 * 10) == Halt(Trap.WATCHDOG, 1)
    assert machine.memories.read_gp()[2] == 10
    assert machine.executed == 21
