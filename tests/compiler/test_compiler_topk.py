"""V_TOPK encodings: fixed where there is one, else the policy register, written when it changes."""

import pytest

from compiler import CompileError, Program
from compiler.immediates import load_immediate
from compiler.loops import loop
from compiler.topk import TopkEncoding, emit_topk, topk_encoding
from isa import PRESETS
from testbench.policy_case import encoding_problems, policy_program

DEFAULT = PRESETS["default"]
WIDE = DEFAULT.replace(TOPK_MAX=255)

#: lowering.md section 3, "Values to pin".
POLICIES = {
    (256, 8): 65544,
    (1023, 255): 262143,
    (16, 1): 4097,
    (60, 4): 15364,
    (64, 6): 16390,
    (160, 8): 40968,
    (384, 8): 98312,
    (128, 4): 32772,
    (1024, 1): 262145,
    (16383, 255): 4194303,
}


@pytest.mark.parametrize(("shape", "policy"), POLICIES.items())
def test_shapes_without_a_fixed_encoding_take_the_register(
    shape: tuple[int, int], policy: int
) -> None:
    assert topk_encoding(WIDE, *shape) == TopkEncoding(rmask=15, policy=policy)


@pytest.mark.parametrize(("shape", "rmask", "packed"), [((32, 4), 0, 8196), ((128, 8), 1, 32776)])
def test_the_two_fixed_shapes_never_touch_the_register(
    shape: tuple[int, int], rmask: int, packed: int
) -> None:
    assert topk_encoding(WIDE, *shape) == TopkEncoding(rmask=rmask, policy=None)
    assert shape[0] << 8 | shape[1] == packed


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 5), r"top_k = 5: must be 1 to experts = 4"),
        ((4, 0), r"top_k = 0: must be 1 to experts = 4"),
        ((16384, 1), r"experts = 16384: a V_TOPK policy names at most 16383"),
        ((64, 17), r"top_k = 17: must be at most TOPK_MAX = 16 of configuration 'default'"),
    ],
)
def test_shapes_that_no_policy_can_say_are_refused(shape: tuple[int, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        topk_encoding(DEFAULT, *shape)


#: The words of a selection from rows 0, 1 and 2 into INT_MEM 0 and FP_MEM 8 (behind the constants).
FIXED_WORDS = {
    (32, 4): [0x00020062, 0x000000A2, 0x000000E2, 0x0000C877],
    (128, 8): [0x00020062, 0x000000A2, 0x000000E2, 0x0004C877],
}


@pytest.mark.parametrize(("shape", "words"), FIXED_WORDS.items())
def test_words_of_the_fixed_shapes_stay_as_they_are(
    shape: tuple[int, int], words: list[int]
) -> None:
    program = policy_program(DEFAULT, *shape)
    assert program.image.words.tolist()[:4] == words
    assert len(program.image.words) == 4 * program.tokens
    assert encoding_problems(program) == []


@pytest.mark.parametrize(
    ("shape", "loads"),
    [
        ((1023, 255), ["S_ADDI_INT gp4, gp0, 262143"]),
        ((1024, 1), ["S_LUI_INT gp4, 64", "S_ADDI_INT gp4, gp4, 1"]),
        ((16, 1), ["S_ADDI_INT gp4, gp0, 4097"]),
    ],
)
def test_a_policy_of_more_than_18_bits_is_split(shape: tuple[int, int], loads: list[str]) -> None:
    program = policy_program(WIDE, *shape)
    text = [line.strip() for line in program.image.source]
    at = text.index(loads[0])
    assert text[at : at + len(loads) + 1] == [*loads, "C_SET_TOPK_REG gp4"]
    assert sum("C_SET_TOPK_REG" in line for line in text) == 1
    assert encoding_problems(program) == []


def test_a_loop_with_two_shapes_sets_the_register_where_it_changes() -> None:
    prog = Program(DEFAULT, "two shapes")
    prog.stage("router_topk", "two shapes")
    with prog.gps("weights", "logits", "indices") as (weights, logits, indices):
        for register in (weights, logits, indices):
            load_immediate(prog, register, 0)
        pointers = {"weights": weights, "logits": logits, "indices": indices}
        emit_topk(prog, 64, 6, **pointers)
        with loop(prog, 3, "tokens"):
            emit_topk(prog, 64, 6, **pointers)
            emit_topk(prog, 60, 4, **pointers)
        emit_topk(prog, 64, 6, **pointers)
    lines = [i.text().split()[0] for i in prog.instructions]
    assert lines[3:] == [
        *("S_ADDI_INT", "C_SET_TOPK_REG", "V_TOPK"),
        *("C_LOOP_START", "V_TOPK", "S_ADDI_INT", "C_SET_TOPK_REG", "V_TOPK"),
        *("S_ADDI_INT", "C_SET_TOPK_REG", "C_LOOP_END", "V_TOPK"),
    ]
