"""Rounding, exponential, reciprocal, addition and multiplication: leaves, reference, and programs
on both machines."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from compiler.elementwise import zero_rows
from compiler.program import Program
from isa.traps import Trap
from rtl.leaves import BF16, BF16Exp, BF16Reciprocal, FloatAdd, FloatMul, Leaf, RoundToBF16
from sim.numerics import bf16
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16
from tests.cases.sides import CONFIG, LANES, Side
from tests.cases.table import (
    ADD,
    EXPONENTIAL,
    HOST_ROUNDING,
    MULTIPLY,
    RECIPROCAL,
    ROUNDING,
)
from tests.rtl.leaves.leaf_harness import evaluate, expect

UNARY: dict[str, tuple[dict[int, int], type[Leaf], Callable[..., bf16.Bf16Array]]] = {
    "exponential": (EXPONENTIAL, BF16Exp, bf16.exp),
    "reciprocal": (RECIPROCAL, BF16Reciprocal, bf16.reciprocal),
}
BINARY: dict[str, tuple[dict[tuple[int, int], int], Callable[[], Leaf], Callable[..., object]]] = {
    "add": (ADD, lambda: FloatAdd(BF16), bf16.add),
    "multiply": (MULTIPLY, lambda: FloatMul(BF16, BF16), bf16.mul),
}
MULTIPLICATIONS = {"V_MUL_VV", "V_MUL_VF", "S_MUL_FP"}
INSTRUCTIONS = {
    "exponential": ("S_EXP_FP f3, f1", "V_EXP_V gp2, gp0", None),
    "reciprocal": ("S_RECI_FP f3, f1", "V_RECI_V gp2, gp0", None),
    "add": ("S_ADD_FP f3, f1, f2", "V_ADD_VF gp2, gp0, f2, 0", "V_ADD_VV gp2, gp0, gp1, 0"),
    "multiply": ("S_MUL_FP f3, f1, f2", "V_MUL_VF gp2, gp0, f2, 0", "V_MUL_VV gp2, gp0, gp1, 0"),
}


def words(*patterns: int) -> np.ndarray:
    return np.array(patterns, np.uint32)


# --- leaves and reference ------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNARY)
def test_unary_leaves_and_reference(name):
    table, leaf, reference = UNARY[name]
    given, wanted = words(*table), words(*table.values())
    expect(evaluate(leaf, {"i": given}), wanted, i=given)
    expect(canonical_bits(reference(from_bits(given))), wanted, i=given)


@pytest.mark.parametrize("name", BINARY)
def test_binary_leaves_and_reference(name):
    table, leaf, reference = BINARY[name]
    a, b = (words(*column) for column in zip(*table, strict=True))
    for x, y in ((a, b), (b, a)):
        wanted = words(*table.values())
        expect(evaluate(leaf, {"a": x, "b": y}), wanted, a=x, b=y)
        expect(canonical_bits(reference(from_bits(x), from_bits(y))), wanted, a=x, b=y)


def test_rounding_leaf_and_reference():
    given, wanted = words(*ROUNDING), words(*ROUNDING.values())
    for sign in (0, 1):
        signed = given | np.uint32(sign << 31)
        result = np.where(wanted == 0x7FC0, wanted, wanted | np.uint32(sign << 15))
        expect(evaluate(RoundToBF16, {"i": signed}), result, i=signed)
        expect(canonical_bits(round_to_bf16(signed.view(np.float32))), result, i=signed)


# --- programs ------------------------------------------------------------------------------------


def operand_pairs() -> Iterator[tuple[str, int, int, int]]:
    """Operation, two operands, result; both orders of two."""
    for name, (table, _, _) in UNARY.items():
        yield from ((name, a, 0, wanted) for a, wanted in table.items())
    for name, (table, _, _) in BINARY.items():
        for (a, b), wanted in table.items():
            yield from {(name, a, b, wanted), (name, b, a, wanted)}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_programs_on_both_machines(side: Side, name):
    """The scalar form, and the vector forms with each case in a lane of its own."""
    scalar, with_f, with_row = INSTRUCTIONS[name]
    for operation, a, b, wanted in operand_pairs():
        if operation != name:
            continue
        text = (
            f"S_LD_FP f1, gp0, 0\nS_LD_FP f2, gp0, 1\n{scalar}\n"
            f"S_ADDI_INT gp1, gp0, {LANES}\nS_ADDI_INT gp2, gp0, {2 * LANES}\n{with_f}\n"
        )
        if with_row is not None:
            text += f"S_ADDI_INT gp2, gp0, {3 * LANES}\n{with_row}\n"

        def prepare(memories, _hbm, a=a, b=b):
            memories.write_fp(0, np.array([a, b], np.uint16))
            memories.write_vector(0, np.array([[a] * LANES, [b] * LANES], np.uint16))

        end = side(text, prepare)
        results = [end.f(3), *end.row(2), *(end.row(3) if with_row else ())]
        assert {f"{r:04X}" for r in results} == {f"{wanted:04X}"}, f"{a:04X} {b:04X}"


def products_of(pattern: int) -> tuple[list[float], list[float]]:
    """Numbers of 8 significant bits whose products add up to a positive FP32 number, exactly."""
    field, trailing = pattern >> 23, pattern & 0x7FFFFF
    significand = trailing | (0x800000 if field else 0)
    exponent = max(field, 1) - 127 - 23
    left, right = [], []
    for byte in range(3):
        part = float(significand >> 8 * byte & 0xFF)
        power = exponent + 8 * byte
        half = power // 2
        left.append(part * 2.0**half)
        right.append(2.0 ** (power - half))
    return left, right


@pytest.mark.parametrize("pattern", [p for p in ROUNDING if p < 0x7F800000])
def test_a_write_out_rounds_the_accumulator(side: Side, pattern):
    left, right = products_of(pattern)

    def prepare(memories, _hbm):
        rows, tile = np.zeros((4, LANES)), np.zeros((LANES, LANES))
        rows[:, :3] = left
        tile[:3, :] = np.array(right)[:, None]
        memories.write_vector(0, round_to_bf16(rows))
        memories.write_matrix(0, round_to_bf16(tile))

    text = f"M_MM 0, gp0, gp0\nS_ADDI_INT gp1, gp0, {8 * LANES}\nM_MM_WO gp1, gp0, 0\n"
    end = side(text, prepare)
    for row in range(8, 12):
        assert [f"{v:04X}" for v in end.row(row)[:4]] == [f"{ROUNDING[pattern]:04X}"] * 4


@pytest.mark.parametrize("number", HOST_ROUNDING)
def test_host_values_are_rounded_once_on_their_way_into_a_memory(side: Side, number):
    wanted = HOST_ROUNDING[number]
    assert int(canonical_bits(round_to_bf16([number]))[0]) == wanted
    end = side("S_LD_FP f1, gp0, 0\n", lambda m, _: m.write_fp(0, round_to_bf16([number])))
    assert end.f(1) == wanted
    with pytest.raises(TypeError, match="float64"):
        side("C_BREAK\n", lambda m, _: m.write_fp(0, np.array([number])))


def test_300_additions_of_one_stop_at_256(side: Side):
    loop = "S_LD_FP f1, gp0, 0\nC_LOOP_START gp1, 300\nS_ADD_FP f2, f2, f1\nC_LOOP_END gp1\n"
    end = side(loop, lambda m, _: m.write_fp(0, np.array([0x3F80], np.uint16)))
    assert end.f(2) == 0x4380


def test_minus_infinity_in_padding_is_not_cleared_by_a_multiplication(side: Side):
    padding = np.full((1, LANES), 0xFF80, np.uint16)
    end = side("V_MUL_VF gp0, gp0, f0, 0\n", lambda m, _: m.write_vector(0, padding))
    assert end.row(0) == [0x7FC0] * LANES


def test_the_compiler_clears_by_writing_zeros(side: Side):
    builder = Program(CONFIG, "clear")
    target = builder.vram.matrix("stale", 4, 2 * LANES)
    zero_rows(builder, target, stage="accumulator_init", rows=4)
    assert {i.opcode.mnemonic for i in builder.instructions} & MULTIPLICATIONS == set()
    stale = np.full((target.memory_rows, LANES), 0xFF80, np.uint16)
    stale[0] = 0x7FC0
    end = side(builder.build(), lambda m, _: m.write_vector(target.first_row, stale))
    assert end.cause is Trap.DONE
    assert not end.memories.read_vector(target.first_row, target.memory_rows).any()
