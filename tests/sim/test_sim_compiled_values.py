"""Operators, shifts and parts on the compiled engine, as in Amaranth's simulator."""

from collections.abc import Callable

import pytest
from amaranth.hdl import (
    Cat,
    Const,
    Mux,
    signed,
    unsigned,
)

from tests.conftest import needs_compiler
from tests.sim.compiled_bench import Design, Features, keep_clocked, lock_step

pytestmark = needs_compiler

feature = FEATURES = Features()


def arithmetic_of(width: int) -> Callable[[Design], None]:
    def build(d: Design) -> None:
        for sign_a in (unsigned, signed):
            for sign_b in (unsigned, signed):
                tag = f"{sign_a.__name__[0]}{sign_b.__name__[0]}"
                a, b = (
                    d.input(sign_a(width), f"a{tag}"),
                    d.input(sign_b(max(1, width - 3)), f"b{tag}"),
                )
                for op, value in {
                    "add": a + b,
                    "sub": a - b,
                    "mul": a * b,
                    "and": a & b,
                    "or": a | b,
                    "xor": a ^ b,
                    "neg": -a,
                    "not": ~a,
                    "lt": a < b,
                    "le": a <= b,
                    "gt": a > b,
                    "ge": a >= b,
                    "eq": a == b,
                    "ne": a != b,
                    "mux": Mux(a < b, a, b),
                    "any": a.any(),
                    "all": a.all(),
                    "parity": a.xor(),
                    "bool": a.bool(),
                    "abs": abs(a),
                    "low": (a + b)[: width // 2 + 1],
                    "high": (a - b)[width // 2 :],
                    "mixed": (a ^ b)[width // 3 : width // 3 + 1],
                    "chosen": Mux(b[0], a, Cat(b, a))[: width // 2 + 1],
                }.items():
                    d.output(value, f"{op}_{tag}")
        keep_clocked(d)

    return build


for _width in (1, 2, 7, 31, 32, 33, 63, 64, 65, 130):
    FEATURES[f"arithmetic_on_{_width}_bits"] = arithmetic_of(_width)


@feature
def division_rounds_down_and_by_zero_is_zero(d: Design) -> None:
    for width in (4, 31, 33):
        for sign_a in (unsigned, signed):
            for sign_b in (unsigned, signed):
                tag = f"{width}{sign_a.__name__[0]}{sign_b.__name__[0]}"
                a, b = d.input(sign_a(width), f"a{tag}"), d.input(sign_b(width // 2 + 1), f"b{tag}")
                d.output(a // b, f"div_{tag}")
                d.output(a % b, f"mod_{tag}")
    keep_clocked(d)


@feature
def shifts_by_values_and_constants(d: Design) -> None:
    for width in (5, 32, 33, 64, 70, 200):
        for kind in (unsigned, signed):
            tag = f"{width}{kind.__name__[0]}"
            a, by, far = (
                d.input(kind(width), f"a{tag}"),
                d.input(4, f"by{tag}"),
                d.input(9, f"far{tag}"),
            )
            d.output(a << by, f"left_{tag}")
            d.output((a << by)[:width], f"kept_{tag}")
            d.output((a << far)[3:width], f"middle_{tag}")
            d.output(a >> by, f"right_{tag}")
            d.output(a >> far, f"gone_{tag}")
            d.output((a >> far)[1:4], f"window_{tag}")
            d.output(a.shift_left(3), f"constant_left_{tag}")
            d.output(a.shift_right(2), f"constant_right_{tag}")
            d.output(Cat(a, a) >> Cat(Const(0, 3), by), f"rotated_{tag}")
            d.output(a.rotate_left(3), f"rotl_{tag}")
    keep_clocked(d)


@feature
def parts_at_variable_offsets(d: Design) -> None:
    for width in (8, 33, 64, 100, 256):
        for kind in (unsigned, signed):
            tag = f"{width}{kind.__name__[0]}"
            a, at = d.input(kind(width), f"a{tag}"), d.input(5, f"at{tag}")
            d.output(a.bit_select(at, 3), f"bits_{tag}")
            d.output(a.bit_select(at, width), f"all_{tag}")
            d.output(a.word_select(at, 8), f"word_{tag}")
            d.output(a.word_select(at, 5), f"odd_{tag}")
            d.output(a.bit_select(at, 70), f"long_{tag}")
    keep_clocked(d)


@pytest.mark.parametrize("name", FEATURES)
def test_a_module_behaves_as_in_amaranths_simulator(name, tmp_path):
    lock_step(FEATURES[name], tmp_path)
