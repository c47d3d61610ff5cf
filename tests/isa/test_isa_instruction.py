"""Instructions as values: the opcode table, encoding and decoding at the limits, refusals."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.instruction import DecodeError, Instruction, InstructionError
from isa.opcodes import OPCODES, Opcode
from isa.operands import FIELDS, Kind, Operand
from isa.traps import Trap

# Typed from isa.md: 0x01 to 0x38 in order, with the mnemonic and the operand fields of each form.
ISA_MD = """
01 M_MM 0 gp:rs1 gp:rs2
02 M_TMM 0 gp:rs1 gp:rs2
03 M_BMM gp:rd gp:rs1 gp:rs2
04 M_BTMM gp:rd gp:rs1 gp:rs2
05 M_BMM_WO gp:rd imm18
06 M_MM_WO gp:rd gp:rs1 imm18
07 M_MV 0 gp:rs1 gp:rs2
08 M_TMV 0 gp:rs1 gp:rs2
09 M_BMV gp:rd gp:rs1 gp:rs2
0A M_BTMV gp:rd gp:rs1 gp:rs2
0B M_MV_WO gp:rd imm18
0C M_BMV_WO gp:rd imm18
0D V_ADD_VV gp:rd gp:rs1 gp:rs2 rs3
0E V_ADD_VF gp:rd gp:rs1 f:rs2 rs3
0F V_SUB_VV gp:rd gp:rs1 gp:rs2 rs3
10 V_SUB_VF gp:rd gp:rs1 f:rs2 rs3 funct1
11 V_MUL_VV gp:rd gp:rs1 gp:rs2 rs3
12 V_MUL_VF gp:rd gp:rs1 f:rs2 rs3
13 V_EXP_V gp:rd gp:rs1 rs3
14 V_RECI_V gp:rd gp:rs1 rs3
15 V_RED_SUM f:rd gp:rs1 rs3
16 V_RED_MAX f:rd gp:rs1 rs3
17 S_ADD_FP f:rd f:rs1 f:rs2
18 S_SUB_FP f:rd f:rs1 f:rs2
19 S_MAX_FP f:rd f:rs1 f:rs2
1A S_MUL_FP f:rd f:rs1 f:rs2
1B S_EXP_FP f:rd f:rs1
1C S_RECI_FP f:rd f:rs1
1D S_SQRT_FP f:rd f:rs1
1E S_LD_FP f:rd gp:rs1 imm18
1F S_ST_FP f:rd gp:rs1 imm18
20 S_MAP_V_FP gp:rd gp:rs1 imm18
21 S_ADD_INT gp:rd gp:rs1 gp:rs2
22 S_ADDI_INT gp:rd gp:rs1 imm18
23 S_SUB_INT gp:rd gp:rs1 gp:rs2
24 S_MUL_INT gp:rd gp:rs1 gp:rs2
25 S_LUI_INT gp:rd imm22
26 S_LD_INT gp:rd gp:rs1 imm18
27 S_ST_INT gp:rd gp:rs1 imm18
28 H_PREFETCH_M gp:rd gp:rs1 a:rs2 rs3 funct1
29 H_PREFETCH_V gp:rd gp:rs1 a:rs2 rs3 funct1
2A H_STORE_V gp:rd gp:rs1 a:rs2 rs3 funct1
2B C_SET_ADDR_REG a:rd gp:rs1 gp:rs2
2C C_SET_SCALE_REG gp:rd
2D C_SET_STRIDE_REG gp:rd
2E C_SET_V_MASK_REG gp:rd
2F C_LOOP_START gp:rd imm22
30 C_LOOP_END gp:rd
32 V_SHFT_V gp:rd gp:rs1 gp:rs2
34 C_BREAK
35 V_MAX_VF gp:rd gp:rs1 f:rs2 rs3
36 V_MIN_VF gp:rd gp:rs1 f:rs2 rs3
37 V_TOPK gp:rd gp:rs1 gp:rs2 rs3
38 C_SET_TOPK_REG gp:rd
"""
FORMS = {int(line[:2], 16): line.split()[1:] for line in ISA_MD.strip().splitlines()}
#: Bit positions of every field, typed from isa.md.
BITS = {
    "rd": range(6, 10),
    "rs1": range(10, 14),
    "rs2": range(14, 18),
    "rs3": range(18, 22),
    "funct1": range(22, 26),
    "imm18": range(14, 32),
    "imm22": range(10, 32),
}
ROWS = list(OPCODES.values())


def by_name(row: Opcode) -> str:
    """The test identifier of a row."""
    return row.mnemonic


def form_of(row: Opcode) -> list[str]:
    """The operands in the notation of the typed table."""
    texts = {Kind.ZERO: "0", Kind.IMM: "{f}", Kind.FLAG: "{f}"}
    return [
        texts.get(o.kind, "{k}:{f}").format(k=o.kind.value, f=o.field.name) for o in row.operands
    ]


def legal_values(operand: Operand) -> list[int]:
    """The extremes that the assembler accepts."""
    return sorted(
        {0, operand.largest, *operand.allowed} if not operand.allowed else operand.allowed
    )


@st.composite
def legal_instructions(draw: st.DrawFn) -> Instruction:
    """Any instruction that the hardware accepts, S_LUI_INT above 20 bits included."""
    row = draw(st.sampled_from(ROWS))
    values: list[int] = []
    for operand in row.operands:
        largest = operand.field.limit if operand.kind is Kind.IMM else operand.largest
        choices = st.sampled_from(operand.allowed) if operand.allowed else st.integers(0, largest)
        values.append(draw(choices))
    return Instruction(row, tuple(values))


@pytest.mark.parametrize("code", range(64), ids="{:02X}".format)
def test_opcode_table_is_that_of_isa_md(code: int) -> None:
    if code not in FORMS:
        assert code not in OPCODES
        with pytest.raises(DecodeError) as caught:
            Instruction.decode(code)
        assert caught.value.trap is Trap.ILLEGAL_OPCODE
        assert f"0x{code:02X}" in str(caught.value)
        return
    mnemonic, *operands = FORMS[code]
    instruction = Instruction.decode(code)  # every operand zero is legal in every form
    assert (instruction.opcode.mnemonic, form_of(instruction.opcode)) == (mnemonic, operands)


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_every_operand_at_its_extremes_round_trips(row: Opcode) -> None:
    for values in product(*map(legal_values, row.operands)):
        instruction = Instruction.make(row.mnemonic, *values)
        assert Instruction.decode(instruction.encode()) == instruction
        assert Instruction.parse(instruction.text()) == instruction


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_operands_land_in_the_bits_of_isa_md(row: Opcode) -> None:
    _, *operands = FORMS[row.code]
    for position, text in enumerate(operands):
        if text == "0":
            continue
        values = [0] * len(operands)
        values[position] = 1
        lowest = BITS[text.split(":")[-1]][0]
        assert Instruction.make(row.mnemonic, *values).encode() == row.code | 1 << lowest


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_every_unused_bit_is_an_illegal_encoding(row: Opcode) -> None:
    used = set(range(6))
    for text in FORMS[row.code][1:]:
        used |= set(BITS.get(text.split(":")[-1], ()))
    for bit in sorted(set(range(32)) - used):
        with pytest.raises(DecodeError, match=f"does not use bits 0x{1 << bit:08X}") as caught:
            Instruction.decode(row.code | 1 << bit)
        assert caught.value.trap is Trap.ILLEGAL_ENCODING


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_every_value_of_registers_and_flags_is_judged(row: Opcode) -> None:
    limits = {"f": 7, "a": 7, "gp": 15}
    for operand in row.operands:
        if operand.kind not in (Kind.GP, Kind.F, Kind.A, Kind.FLAG):
            continue
        for value in range(16):
            word = row.code | operand.field.put(value)
            if operand.kind is Kind.FLAG:
                allowed = value in ((0, 1, 15) if row.mnemonic == "V_TOPK" else (0, 1))
                trap = Trap.ILLEGAL_ENCODING
            else:
                allowed = value <= limits[operand.kind.value]
                trap = Trap.REGISTER_INDEX
            if allowed:
                assert Instruction.decode(word).value(operand.name) == value
                continue
            with pytest.raises(DecodeError) as caught:
                Instruction.decode(word)
            assert caught.value.trap is trap
            assert caught.value.word == word


def test_opcode_is_checked_before_encoding_before_register_index() -> None:
    f8 = FIELDS["rd"].put(8)
    rmask2 = FIELDS["rs3"].put(2)
    unused = 1 << 31
    red_sum = 0x15

    def trap_of(word: int) -> Trap:
        with pytest.raises(DecodeError) as caught:
            Instruction.decode(word)
        return caught.value.trap

    assert trap_of(0x3F | unused | f8) is Trap.ILLEGAL_OPCODE
    assert trap_of(red_sum | unused | f8) is Trap.ILLEGAL_ENCODING
    assert trap_of(red_sum | rmask2 | f8) is Trap.ILLEGAL_ENCODING
    assert trap_of(red_sum | f8) is Trap.REGISTER_INDEX


@settings(max_examples=300, deadline=None)
@given(legal_instructions())
def test_decode_inverts_encode(instruction: Instruction) -> None:
    word = instruction.encode()
    assert 0 <= word < 1 << 32
    assert Instruction.decode(word) == instruction


@settings(max_examples=300, deadline=None)
@given(st.integers(0, (1 << 32) - 1))
def test_any_word_decodes_to_itself_or_to_a_trap(word: int) -> None:
    trap, encoded = None, None
    try:
        encoded = Instruction.decode(word).encode()
    except DecodeError as error:
        trap = error.trap
    by_the_word = (Trap.ILLEGAL_OPCODE, Trap.ILLEGAL_ENCODING, Trap.REGISTER_INDEX)
    assert encoded == word if trap is None else trap in by_the_word


@pytest.mark.parametrize(
    ("mnemonic", "values", "text", "word"),
    [
        ("S_ADDI_INT", (1, 0, 262143), "S_ADDI_INT gp1, gp0, 262143", 0xFFFFC062),
        ("M_MM", (0, 2, 4), "M_MM 0, gp2, gp4", 0x00010801),
        ("V_RED_SUM", (1, 2), "V_RED_SUM f1, gp2, 0", 0x00000855),
        ("C_SET_ADDR_REG", (1, 0, 3), "C_SET_ADDR_REG a1, gp0, gp3", 0x0000C06B),
        ("H_PREFETCH_M", (1, 2, 0, 1), "H_PREFETCH_M gp1, gp2, a0, 1, 0", 0x00040868),
        ("M_MM_WO", (1, 0, 0), "M_MM_WO gp1, gp0, 0", 0x00000046),
        ("M_BMM_WO", (1, 1), "M_BMM_WO gp1, 1", 0x00004045),
        ("V_SUB_VF", (1, 2, 3, 1, 1), "V_SUB_VF gp1, gp2, f3, 1, 1", 0x0044C850),
        ("C_BREAK", (), "C_BREAK", 0x00000034),
        ("C_LOOP_START", (15, 4194303), "C_LOOP_START gp15, 4194303", 0xFFFFFFEF),
    ],
)
def test_words_and_canonical_text(
    mnemonic: str, values: tuple[int, ...], text: str, word: int
) -> None:
    instruction = Instruction.make(mnemonic, *values)
    assert (instruction.text(), instruction.encode()) == (text, word)
    assert str(instruction) == text


def test_upper_immediate_beyond_the_register_decodes_and_prints_as_a_word() -> None:
    word = 0x25 | 1 << 6 | 1048576 << 10
    instruction = Instruction.decode(word)
    assert instruction.value("imm") == 1048576
    assert instruction.encode() == word
    assert instruction.text() == f".word 0x{word:08X}"
    assert Instruction.make("S_LUI_INT", 1, 1048575).text() == "S_LUI_INT gp1, 1048575"


@pytest.mark.parametrize(
    ("mnemonic", "values", "text"),
    [
        (
            "S_ADDI_INT",
            (1, 0, 262144),
            "S_ADDI_INT: operand imm = 262144: must be 0 to 262143; build",
        ),
        (
            "S_ADDI_INT",
            (1, 0, -1),
            "operand imm = -1: must be 0 to 262143: immediates are unsigned",
        ),
        ("S_ADDI_INT", (16, 0, 0), "operand rd = 16: gp registers are numbered 0 to 15"),
        ("S_ADD_FP", (0, 8, 0), "operand rs1 = 8: f registers are numbered 0 to 7"),
        ("H_STORE_V", (0, 0, 8), "operand rs2 = 8: a registers are numbered 0 to 7"),
        (
            "S_LUI_INT",
            (1, 1048576),
            "operand imm = 1048576: must be 0 to 1048575: the value leaves 32",
        ),
        ("C_LOOP_START", (1, 4194304), "must be 0 to 4194303; nest two loops"),
        ("V_TOPK", (1, 2, 3, 2), "operand rmask = 2: must be one of 0, 1, 15"),
        ("V_ADD_VV", (1, 2, 3, 2), "operand rmask = 2: must be one of 0, 1"),
        ("M_MM", (1, 2, 3), "operand 0 = 1: must be the literal 0"),
        ("M_MM", (2, 3), "M_MM: 2 operands given, takes 3: 0, rs1, rs2"),
        ("V_RED_SUM", (1,), "1 operands given, takes 2 to 3: rd, rs1, rmask"),
        ("C_BREAK", (0,), "1 operands given, takes 0: none"),
        ("V_ADD_VX", (1,), "V_ADD_VX: unknown mnemonic; did you mean V_ADD_V"),
        ("XYZZY", (), "unknown mnemonic; python -m isa.reference_table lists them"),
    ],
)
def test_refusals_name_operand_value_and_limit(
    mnemonic: str, values: tuple[int, ...], text: str
) -> None:
    with pytest.raises(InstructionError) as caught:
        Instruction.make(mnemonic, *values)
    assert text in str(caught.value)


def test_a_word_is_an_unsigned_32_bit_integer_of_any_integer_type() -> None:
    assert Instruction.decode(np.uint32(0xFFFFC062)).text() == "S_ADDI_INT gp1, gp0, 262143"
    for word in (-1, 1 << 32):
        with pytest.raises(
            ValueError, match=f"word {word}: an instruction word is 0 to 0xFFFFFFFF"
        ):
            Instruction.decode(word)


def test_a_value_beyond_its_field_never_reaches_the_neighbour() -> None:
    with pytest.raises(ValueError, match="rd = 16: the field holds 0 to 15"):
        Instruction(OPCODES[0x2C], (16,)).encode()


def test_value_of_an_operand_that_the_form_lacks() -> None:
    with pytest.raises(KeyError, match="C_BREAK has no operand 'rd'"):
        Instruction.make("C_BREAK").value("rd")
