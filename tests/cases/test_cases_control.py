"""Loops, and every opcode as a word, on both machines."""

import pytest

from isa.traps import Trap
from tests.cases.sides import Side, machine, rtl
from tests.cases.table import UNDEFINED


def test_a_loop_of_count_1_runs_its_body_once_and_leaves_0(side: Side):
    end = side("C_LOOP_START gp1, 1\nS_ADDI_INT gp2, gp2, 1\nC_LOOP_END gp1\n")
    assert end.cause is Trap.DONE
    assert end.memories.read_gp()[1:3].tolist() == [0, 1]


def test_a_loop_of_count_0_traps(side: Side):
    end = side("S_ADDI_INT gp1, gp0, 5\nC_LOOP_START gp1, 0\nS_ADDI_INT gp2, gp0, 1\n")
    assert (end.cause, end.pc) == (Trap.LOOP_COUNT_ZERO, 1)
    assert end.memories.read_gp()[1:3].tolist() == [5, 0]


def test_a_nest_of_3_by_4_runs_12_times(side: Side):
    end = side(
        "C_LOOP_START gp1, 3\nC_LOOP_START gp2, 4\nS_ADDI_INT gp3, gp3, 1\n"
        "C_LOOP_END gp2\nC_LOOP_END gp1\n"
    )
    assert end.memories.read_gp()[1:4].tolist() == [0, 0, 12]


@pytest.mark.parametrize("code", range(0x40))
def test_every_opcode_as_a_word(side: Side, code):
    end = side(f"S_ADDI_INT gp1, gp0, 7\n.word 0x{code:X}\nS_ADDI_INT gp2, gp0, 9\n")
    if code in UNDEFINED:
        assert (end.cause, end.pc, end.operand) == (Trap.ILLEGAL_OPCODE, 1, code)
        assert end.everything() == side("S_ADDI_INT gp1, gp0, 7\n").everything()
    else:
        assert end.cause is not Trap.ILLEGAL_OPCODE
        other = (rtl if side is machine else machine)(end_program(code))
        assert (end.cause, end.pc, end.operand) == (other.cause, other.pc, other.operand)
        assert end.everything() == other.everything()


def end_program(code: int) -> str:
    return f"S_ADDI_INT gp1, gp0, 7\n.word 0x{code:X}\nS_ADDI_INT gp2, gp0, 9\n"
