"""The assembler: largest immediates, notation and comments; what assembles also runs alike on both
machines."""

import pytest

from compiler.immediates import load_immediate
from compiler.program import Program
from isa.assembler import AssemblyError, assemble
from isa.traps import Trap
from tests.cases.sides import CONFIG, Side


def words(text: str) -> list[int]:
    return assemble(text).words.tolist()


def test_the_largest_immediate(side: Side):
    text = "S_ADDI_INT gp1, gp0, 262143"
    assert words(text) == [0xFFFFC062]
    assert side(text).memories.read_gp()[1] == 262143


@pytest.mark.parametrize(
    ("statement", "parts"),
    [
        ("S_ADDI_INT gp1, gp0, 262144", ["'262144'", "must be 0 to 262143", "S_LUI_INT"]),
        ("S_ADDI_INT gp16, gp0, 1", ["'gp16'", "gp registers are numbered 0 to 15"]),
        ("S_LUI_INT gp1, 1048576", ["'1048576'", "the value leaves 32 bits"]),
        ("M_MM_W0 gp2, gp0, 0", ["'M_MM_W0'", "unknown mnemonic; did you mean M_MM_WO?"]),
    ],
)
def test_errors_name_the_line_and_the_limit(statement, parts):
    with pytest.raises(AssemblyError) as caught:
        assemble(f"C_BREAK\n\n{statement}\n", source_name="p.asm")
    text = str(caught.value)
    assert text.startswith("p.asm:3: ")
    assert all(part in text for part in parts), text


@pytest.mark.parametrize("value", [262143, 262144, 0xABCDE000, 0xFFFFFFFF])
def test_the_builder_expands_what_does_not_fit(side: Side, value):
    builder = Program(CONFIG, "a constant")
    builder.stage(stage="non_moe")
    with builder.gp("value") as register:
        load_immediate(builder, register, value)
    end = side(builder.build())
    assert end.memories.read_gp()[register.index] == value


PLAIN = "S_ADDI_INT gp1, gp0, 16\nM_MM 0, gp2, gp4\nS_ADDI_INT gp2, gp1, 1\nC_BREAK"
VARIANTS = {
    "comments": "S_ADDI_INT gp1, gp0, 16\nM_MM 0, gp2, gp4 // a; b\n"
    "S_ADDI_INT gp2, gp1, 1 ; c // d\nC_BREAK ; stop",
    "tabs": "\tS_ADDI_INT\tgp1,\tgp0,\t16\t\n\tM_MM\t0,gp2\t,gp4\nS_ADDI_INT gp2,gp1,1\n\tC_BREAK",
    "CRLF": PLAIN.replace("\n", "\r\n") + "\r\n",
    "a comment without an end of line": PLAIN + "\n; the end",
    "hexadecimal": PLAIN.replace("16", "0x10"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_white_space_comments_and_notation_change_nothing(side: Side, name):
    assert words(VARIANTS[name]) == words(PLAIN)
    end = side(VARIANTS[name])
    assert (end.cause, end.pc) == (Trap.BREAK, 3)
    assert end.memories.read_gp()[1:3].tolist() == [16, 17]
