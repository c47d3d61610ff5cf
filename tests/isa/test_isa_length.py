"""How many instructions a program dispatches, as far as its words say."""

from isa.assembler import assemble
from isa.config import PRESETS
from isa.length import expected_dispatches

NESTED = """
    S_ADDI_INT gp1, gp0, 1
    C_LOOP_START gp2, 10
        S_ADDI_INT gp1, gp1, 1
        C_LOOP_START gp3, 7
            S_ADDI_INT gp1, gp1, 1
            S_ADDI_INT gp1, gp1, 1
        C_LOOP_END gp3
    C_LOOP_END gp2
    S_ADDI_INT gp1, gp0, 1
"""


def test_loops_multiply_and_end_where_they_end(program):
    image = assemble(NESTED, config=PRESETS["tiny"])
    expected = expected_dispatches(image)
    assert expected == 1 + 1 + 10 * (1 + 1 + 7 * 3 + 1) + 1
    simulation = program(NESTED)
    assert sum(simulation.run().counters["dispatched"]) == expected


def test_counting_ends_when_it_is_enough():
    image = assemble(
        "C_LOOP_START gp2, 4000000\n" * 3 + "S_ADDI_INT gp1, gp0, 1", config=PRESETS["tiny"]
    )
    assert 10 <= expected_dispatches(image, enough=10) <= 10 + 4_000_000
    assert expected_dispatches(image) > 4_000_000**3


def test_words_that_are_no_instructions_and_lonely_ends_count_one_each():
    image = assemble("C_LOOP_END gp2\n.word 0xFFFFFFFF\n", config=PRESETS["tiny"])
    assert expected_dispatches(image) == 2
