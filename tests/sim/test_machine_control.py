"""Control on the whole machine: loops, traps, breakpoints, issue policies and the cycle
accounting."""

import numpy as np
import pytest

from isa.stages import Stage
from isa.traps import Trap


def test_integer_arithmetic_is_modulo_2_32(program):
    sim = program(
        """
        S_ADDI_INT gp1, gp0, 262143
        S_LUI_INT gp2, 1048575
        S_ADDI_INT gp2, gp2, 4095
        S_ADD_INT gp3, gp2, gp1
        S_SUB_INT gp4, gp0, gp1
        S_MUL_INT gp5, gp2, gp2
        S_ADDI_INT gp0, gp0, 7
        """
    )
    assert sim.run().cause is Trap.DONE
    gp = sim.memories.read_gp()
    assert gp[:6].tolist() == [0, 262143, 0xFFFFFFFF, 262142, 2**32 - 262143, 1]


def test_seven_integer_instructions_take_seven_cycles(program):
    result = program("S_ADDI_INT gp1, gp1, 1\n" * 7).run()
    assert result.cycles == 7
    assert sum(result.counters["dispatched"]) == sum(result.counters["completed_immediate"]) == 7


def test_a_nest_of_3_by_4_loops_runs_12_times_without_bubbles(program):
    sim = program(
        """
        C_LOOP_START gp1, 3
        C_LOOP_START gp2, 4
        S_ADDI_INT gp3, gp3, 1
        C_LOOP_END gp2
        C_LOOP_END gp1
        """
    )
    result = sim.run()
    assert sim.memories.read_gp()[1:4].tolist() == [0, 0, 12]
    assert result.cycles == 1 + 3 * (1 + 4 * 2 + 1)


def test_the_body_may_rewrite_the_counter(program):
    sim = program(
        """
        S_ADDI_INT gp5, gp0, 3
        S_ST_INT gp5, gp0, 9
        C_LOOP_START gp1, 1
        S_LD_INT gp1, gp0, 9
        S_ADDI_INT gp2, gp2, 1
        S_ADDI_INT gp6, gp0, 1
        S_SUB_INT gp7, gp1, gp6
        S_ST_INT gp7, gp0, 9
        C_LOOP_END gp1
        """
    )
    assert sim.run().cause is Trap.DONE
    assert sim.memories.read_gp()[2] == 3


TRAPS = {
    "count 0": ("C_LOOP_START gp1, 0", Trap.LOOP_COUNT_ZERO, 0),
    "nine deep": ("C_LOOP_START gp1, 2\n" * 9, Trap.LOOP_OVERFLOW, 8),
    "end without a start": ("C_LOOP_END gp1", Trap.LOOP_MISMATCH, 1),
    "end of another": ("C_LOOP_START gp2, 1\nC_LOOP_END gp1", Trap.LOOP_MISMATCH, 1),
    "vector operand not row-aligned": (
        "S_ADDI_INT gp1, gp0, 4\nV_EXP_V gp0, gp1",
        Trap.VECTOR_ADDRESS,
        4,
    ),
    "vector target past the end": (
        "S_ADDI_INT gp1, gp0, 8192\nV_EXP_V gp1, gp0",
        Trap.VECTOR_ADDRESS,
        8192,
    ),
    "matrix column group": ("S_ADDI_INT gp1, gp0, 8\nM_MM 0, gp1, gp0", Trap.MATRIX_ADDRESS, 8),
    "matrix tile past the end": (
        "S_ADDI_INT gp1, gp0, 1024\nM_MM 0, gp1, gp0",
        Trap.MATRIX_ADDRESS,
        1024,
    ),
    "M_MM rows past the end": (
        "S_ADDI_INT gp1, gp0, 8176\nM_MM 0, gp0, gp1",
        Trap.VECTOR_ADDRESS,
        8176,
    ),
    "write-out lane": ("M_MM_WO gp0, gp0, 2", Trap.VECTOR_ADDRESS, 2),
    "write-out stride": ("S_ADDI_INT gp1, gp0, 1000\nM_MM_WO gp0, gp1, 0", Trap.VECTOR_ADDRESS, 0),
    "prefetch target": (
        "S_ADDI_INT gp1, gp0, 8\nH_PREFETCH_M gp1, gp0, a0, 0, 0",
        Trap.MATRIX_ADDRESS,
        8,
    ),
    "FP_MEM": ("S_LD_FP f1, gp0, 1024", Trap.FP_MEM_ADDRESS, 1024),
    "FP_MEM row": ("S_MAP_V_FP gp0, gp0, 1017", Trap.FP_MEM_ADDRESS, 1017),
    "INT_MEM": ("S_ST_INT gp0, gp0, 1024", Trap.INT_MEM_ADDRESS, 1024),
    "address sums do not wrap": (
        "S_SUB_INT gp1, gp0, gp0\nS_ADDI_INT gp2, gp0, 1\nS_SUB_INT gp1, gp1, gp2\nS_LD_INT gp3, "
        "gp1, 1",
        Trap.INT_MEM_ADDRESS,
        1 << 32,
    ),
    "HBM range": (
        "S_ADDI_INT gp1, gp0, 4\nC_SET_ADDR_REG a1, gp1, gp0\nH_PREFETCH_V gp0, gp0, a1, 0, 0",
        Trap.HBM_ADDRESS,
        16 << 30,
    ),
    "HBM scales out of range": (
        "S_SUB_INT gp1, gp0, gp0\nS_ADDI_INT gp2, gp0, 8\nS_SUB_INT gp1, gp1, gp2\nC_SET_SCALE_REG "
        "gp1\n"
        "S_ADDI_INT gp3, gp0, 3\nC_SET_ADDR_REG a1, gp3, gp1\nH_PREFETCH_V gp0, gp0, a1, 0, 0",
        Trap.HBM_ADDRESS,
        (4 << 32) - 8,
    ),
    "HBM offset off the MX block": (
        "S_ADDI_INT gp1, gp0, 4\nH_PREFETCH_V gp0, gp1, a0, 0, 0",
        Trap.HBM_ADDRESS,
        4,
    ),
    "HBM stride off the MX block": (
        "S_ADDI_INT gp1, gp0, 12\nC_SET_STRIDE_REG gp1\nH_STORE_V gp0, gp0, a0, 1, 0",
        Trap.HBM_ADDRESS,
        0,
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_traps_are_precise(program, name):
    source, cause, operand = TRAPS[name]
    sim = program(source + "\nS_ADDI_INT gp15, gp0, 1\n")
    result = sim.run(max_cycles=200)
    trapping = len(sim.image.words) - 2
    assert (result.cause, result.pc, result.operand, result.precise) == (
        cause,
        trapping,
        operand,
        True,
    )
    assert result.word == int(sim.image.words[trapping])
    assert sim.memories.read_gp()[15] == 0, "a younger instruction changed state"
    assert sum(result.counters["dispatched"]) == trapping
    report = result.report(sim.image)
    assert cause.name in report
    assert f"line {trapping + 1}" in report


def test_a_trap_waits_for_everything_older(program):
    sim = program("S_ADDI_INT gp1, gp0, 8\nV_ADD_VF gp1, gp0, f0, 0\nS_LD_FP f1, gp0, 1024")
    sim.memories.write_vector(0, np.full((1, 8), 0x3F80, np.uint16))
    result = sim.run()
    assert result.cause is Trap.FP_MEM_ADDRESS
    assert sim.memories.read_vector(1, 1).tolist() == [[0x3F80] * 8]


def test_an_unused_field_that_is_not_zero_traps(program):
    for word, cause in (
        (0x0D | 1 << 26, Trap.ILLEGAL_ENCODING),  # V_ADD_VV
        (0x0D | 2 << 18, Trap.ILLEGAL_ENCODING),  # rmask 2
        (0x01 | 1 << 6, Trap.ILLEGAL_ENCODING),  # M_MM with rd
        (0x34 | 1 << 31, Trap.ILLEGAL_ENCODING),  # C_BREAK
        (0x17 | 8 << 6, Trap.REGISTER_INDEX),  # f8
        (0x2B | 15 << 6, Trap.REGISTER_INDEX),  # a15
        (0x0E | 9 << 14, Trap.REGISTER_INDEX),  # f9 as the scalar
    ):
        result = program(f".word 0x{word:08X}\n").run(max_cycles=10)
        assert (result.cause, result.word) == (cause, word)


def test_break_drains_every_unit_and_resumes_behind_it(program):
    sim = program(
        """
        S_ADDI_INT gp1, gp0, 8
        V_RECI_V gp1, gp0
        C_BREAK
        V_RECI_V gp0, gp1
        """
    )
    sim.memories.write_vector(0, np.full((1, 8), 0x4080, np.uint16))
    result = sim.run()
    assert (result.cause, result.pc) == (Trap.BREAK, 2)
    assert sim.memories.read_vector(1, 1).tolist() == [[0x3E80] * 8]
    assert sum(result.counters["dispatched"]) == 3
    stalls = sum(sum(v) for name, v in result.counters.items() if name.startswith("stall_"))
    assert result.cycles == sum(result.counters["wall"]) == 3 + stalls
    assert sim.memories.read_vector(0, 1).tolist() == [[0x4080] * 8]
    sim.memories.write_vector(1, np.full((1, 8), 0x3F80, np.uint16))
    result = sim.resume(result)
    assert result.cause is Trap.DONE
    assert sim.memories.read_vector(0, 1).tolist() == [[0x3F80] * 8]


def test_watchdog_names_who_waits(program):
    sim = program(
        "; @stage=gather\nC_LOOP_START gp1, 4000000\nV_ADD_VF gp0, gp0, f0, 0\nC_LOOP_END gp1\n"
    )
    result = sim.run(max_cycles=300)
    assert result.cause is Trap.WATCHDOG
    assert result.cycles == 300
    report = result.report(sim.image)
    assert "WATCHDOG" in report
    assert ", VECTOR: pc 1 (line 3, stage gather): V_ADD_VF" in report
    assert "cycle limit" in report


@pytest.mark.parametrize("issue", ["overlap", "serial"])
def test_cycle_accounting_is_exact(program, issue):
    sim = program(
        """
        ; @stage=gather
        S_ADDI_INT gp1, gp0, 8
        S_ADDI_INT gp2, gp0, 256
        H_PREFETCH_V gp2, gp0, a0, 0, 0
        V_ADD_VF gp1, gp2, f0, 0
        ; @stage=expert_projection
        H_PREFETCH_M gp0, gp0, a0, 0, 0
        V_EXP_V gp1, gp1
        M_MM 0, gp0, gp1
        M_MM_WO gp1, gp0, 0
        ; @stage=non_moe
        V_RED_SUM f1, gp1, 0
        S_EXP_FP f1, f1
        S_ST_FP f1, gp0, 3
        """,
        issue=issue,
    )
    result = sim.run(max_cycles=2000)
    assert result.cause is Trap.DONE
    count = {name: sum(values) for name, values in result.counters.items()}
    stalls = sum(value for name, value in count.items() if name.startswith("stall_"))
    completed = sum(value for name, value in count.items() if name.startswith("completed_"))
    assert count["wall"] == result.cycles == count["dispatched"] + stalls
    assert count["dispatched"] == completed == len(sim.image.words)
    assert count["multipliers"] == sim.config.BLEN
    per_stage = np.array(result.counters["dispatched"])
    assert per_stage[Stage.GATHER] == 4
    assert per_stage[Stage.EXPERT_PROJECTION] == 4
    assert per_stage[Stage.NON_MOE] == 3
    assert sum(per_stage) == 11
    for name, value in count.items():
        if name.startswith("busy_"):
            assert value <= result.cycles
    assert 64 * count["hbm_reads"] == sum(sim.hbm.bytes_read)
    if issue == "serial":
        assert result.overlap_cycles == 0


def test_serial_and_overlap_end_in_the_same_state(program):
    source = """
        S_ADDI_INT gp1, gp0, 8
        S_ADDI_INT gp2, gp0, 64
        H_PREFETCH_V gp2, gp0, a0, 0, 0
        C_LOOP_START gp3, 3
        V_EXP_V gp1, gp2
        V_ADD_VV gp2, gp1, gp2, 0
        V_RED_SUM f1, gp2, 0
        V_MUL_VF gp1, gp2, f1, 0
        S_MAX_FP f2, f1, f2
        S_ST_FP f2, gp3, 5
        S_MAP_V_FP gp1, gp0, 3
        C_LOOP_END gp3
        """
    states, cycles = [], []
    for issue in ("overlap", "serial"):
        sim = program(source, issue=issue)
        sim.hbm.write(0, bytes(range(64)))
        cycles.append(sim.run(max_cycles=3000).cycles)
        memories = sim.memories
        states.append(
            (
                memories.read_vector(0, 12).tolist(),
                memories.read_fp().tolist(),
                memories.read_f().tolist(),
            )
        )
    assert states[0] == states[1]
    assert cycles[0] < cycles[1]


def test_a_memory_error_stops_the_machine_and_says_whether_it_is_precise(program):
    for issue in ("overlap", "serial"):
        sim = program(
            "H_PREFETCH_V gp0, gp0, a0, 0, 0\nS_ADDI_INT gp1, gp0, 1\nS_ADDI_INT gp2, gp0, 1\n",
            issue=issue,
        )
        sim.hbm.inject_fault(0, 64)
        result = sim.run(max_cycles=500)
        assert (result.cause, result.pc) == (Trap.HBM_ADDRESS, 0)
        assert result.word == int(sim.image.words[0])
        assert result.precise is (issue == "serial")
        assert sim.memories.read_gp()[1] == (issue == "overlap")
        assert sum(result.counters["dispatched"]) > sum(result.counters["completed_hbm"])
        assert sum(result.counters["completed_hbm"]) == 0
