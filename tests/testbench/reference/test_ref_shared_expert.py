"""The shared expert against scalar loops over patterns, and the structure of its gate."""

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from sim.numerics import bf16, exact
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16, to_bits
from sim.numerics.exact import BF16, FP32
from sim.numerics.matrix import product_fp32
from sim.numerics.reduce import tree_sum
from testbench.reference import data, matrix
from testbench.reference import shared_expert as se

ONE, MINUS_ONE, MAX_ARGUMENT = 0x3F80, 0xBF80, 0x42B0


def mul(a: int, b: int) -> int:
    return exact.mul_bits(a, b, BF16, BF16)


def add(a: int, b: int) -> int:
    return exact.add_bits(a, b, BF16)


def exponential(a: int) -> int:
    if a & 0x7FFF > MAX_ARGUMENT:
        a = MAX_ARGUMENT | a & 0x8000
    with mpmath.workprec(120):
        result: Any = mpmath.exp(float(exact.value_of(a, BF16)))
    mantissa, exponent = int(result.man), int(result.exp)
    return exact.bits_of(mantissa * Fraction(2) ** exponent, BF16)


def inverse(a: int) -> int:
    return exact.bits_of(1 / exact.value_of(a, BF16), BF16)


def sigmoid_of_negated(a: int) -> int:
    return inverse(add(exponential(a), ONE))


def swiglu(gate: int, up: int) -> int:
    return mul(up, mul(gate, sigmoid_of_negated(mul(gate, MINUS_ONE))))


def gate_logit(x: list[int], w: list[int], mlen: int) -> int:
    acc = 0
    for k0 in range(0, len(x), mlen):
        products = [exact.convert_bits(mul(x[k], w[k]), BF16, FP32) for k in range(k0, k0 + mlen)]
        start = exact.convert_bits(acc, BF16, FP32)
        total = exact.add_bits(start, exact.tree_sum_bits(products, FP32), FP32)
        acc = exact.convert_bits(total, FP32, BF16)
    return acc


def gate_scalar(x: list[int], w: list[int], mlen: int) -> int:
    return sigmoid_of_negated(add(0, gate_logit(x, w, mlen) ^ 0x8000))


def project(
    act: list[list[int]], weight: list[list[int]], mlen: int, cap: int, bias: list[int]
) -> list[list[int]]:
    out: list[list[int]] = []
    for row in act:
        values: list[int] = []
        for n in range(len(weight[0])):
            parts: list[int] = []
            for c in range(0, len(weight), cap * mlen):
                acc = 0
                for k0 in range(c, min(len(weight), c + cap * mlen), mlen):
                    terms = [
                        exact.mul_bits(row[k], weight[k][n], BF16, FP32)
                        for k in range(k0, k0 + mlen)
                    ]
                    acc = exact.add_bits(acc, exact.tree_sum_bits(terms, FP32), FP32)
                parts.append(exact.convert_bits(acc, FP32, BF16))
            total = parts[0]
            for part in parts[1:]:
                total = add(total, part)
            values.append(add(total, bias[n]))
        out.append(values)
    return out


@pytest.mark.parametrize("kind", ["exact", "pattern", "random"])
@pytest.mark.parametrize(("mlen", "cap"), [(8, 1), (4, 3), (16, 1)])
def test_whole_expert_against_scalar_loops(kind: data.Kind, mlen: int, cap: int):
    d = data.shared_expert_data(3, 16, 32, kind=kind, seed=21, biased=True)
    assert d.biases
    assert d.gate_weight is not None
    got = se.shared_expert(
        d.x,
        d.w_gate,
        d.w_up,
        d.w_down,
        mlen=mlen,
        k_chunk_tiles=cap,
        biases=d.biases,
        gate_weight=d.gate_weight,
    )
    x = to_bits(d.x).tolist()

    def bias(row: bf16.Bf16Array | None) -> list[int]:
        assert row is not None
        return to_bits(row).tolist()

    gate = project(x, to_bits(d.w_gate).tolist(), mlen, cap, bias(d.biases.gate))
    up = project(x, to_bits(d.w_up).tolist(), mlen, cap, bias(d.biases.up))
    activation = [
        [swiglu(g, u) for g, u in zip(*row, strict=True)] for row in zip(gate, up, strict=True)
    ]
    down = project(activation, to_bits(d.w_down).tolist(), mlen, cap, bias(d.biases.down))
    scalars = [gate_scalar(row, to_bits(d.gate_weight)[0].tolist(), mlen) for row in x]
    output = [[mul(v, s) for v in row] for row, s in zip(down, scalars, strict=True)]
    assert got.gate_scalars is not None
    assert to_bits(got.gate).tolist() == gate
    assert to_bits(got.up).tolist() == up
    assert to_bits(got.activation).tolist() == activation
    assert to_bits(got.down).tolist() == down
    assert to_bits(got.gate_scalars).tolist() == scalars
    assert to_bits(got.output).tolist() == output


def test_swiglu_has_six_roundings():
    rng = np.random.default_rng(22)
    gate, up = (round_to_bf16(rng.standard_normal(4000) * 4) for _ in range(2))
    got = to_bits(se.swiglu(gate, up))
    for g, u, bits in zip(to_bits(gate)[:800], to_bits(up)[:800], got, strict=False):
        assert bits == swiglu(int(g), int(u))
    g64, u64 = gate.astype(np.float64), up.astype(np.float64)
    fused = to_bits(round_to_bf16(g64 / (1 + np.exp(-g64)) * u64))
    assert np.mean(got != fused) > 0.3


def test_swiglu_gates_with_silu_of_gate_not_of_up():
    gate, up = round_to_bf16([2.0]), round_to_bf16([-3.0])
    assert float(se.swiglu(gate, up)[0]) == pytest.approx(-3.0 * 2.0 / (1 + np.exp(-2.0)), rel=0.01)


@pytest.mark.parametrize(
    ("gate", "up", "expected"),
    [
        (0x0000, 0x3F80, 0x0000),
        (0x8000, 0x3F80, 0x8000),
        (0x7F80, 0x3F80, 0x7F80),
        (0xFF80, 0x3F80, 0xFF80),  # the clamp: sigmoid(-inf) is 2^-127 or so, not 0
        (0x7F80, 0x0000, 0x7FC0),
        (0x7FC0, 0x3F80, 0x7FC0),
        (0xC2B0, 0x3F80, None),
    ],
)
def test_swiglu_at_the_ends(gate: int, up: int, expected: int | None):
    bits = int(canonical_bits(se.swiglu(from_bits([gate]), from_bits([up])))[0])
    assert bits == (swiglu(gate, up) if expected is None else expected)


def one_rounding_gate_logits(x: bf16.Bf16Array, w: bf16.Bf16Array) -> bf16.Bf16Array:
    """The wrong reference: the whole row through one tree with one BF16 rounding at the end."""
    return round_to_bf16(tree_sum(bf16.mul(x, w).astype(np.float32)))


def test_one_rounding_for_the_whole_gate_row_agrees_only_at_h_equal_m():
    x = data.random((64, 256), seed=23)
    w = data.random((1, 256), seed=24, scale=0.0625)
    one_rounding = to_bits(one_rounding_gate_logits(x, w))
    assert np.array_equal(one_rounding, to_bits(se.gate_logits(x, w, 256)))
    for mlen in (16, 64, 128):
        assert np.mean(one_rounding != to_bits(se.gate_logits(x, w, mlen))) > 0.1, mlen


def test_gate_blocks_are_accumulated_in_order():
    x, w = data.random((40, 64), seed=32), data.random((64,), seed=33)
    got = to_bits(se.gate_logits(x, w, 8))
    assert got.tolist() == [gate_logit(row, to_bits(w).tolist(), 8) for row in to_bits(x).tolist()]
    blocks_reversed = np.arange(64).reshape(8, 8)[::-1].reshape(64)
    other = to_bits(se.gate_logits(x[:, blocks_reversed], w[blocks_reversed], 8))
    assert np.mean(got != other) > 0.3


def test_gate_products_are_rounded_to_bf16():
    x, w = data.random((64, 64), seed=25), data.random((64,), seed=26)
    unrounded = round_to_bf16(tree_sum(product_fp32(x, w)))
    assert np.mean(to_bits(unrounded) != to_bits(se.gate_logits(x, w, 64))) > 0.1
    row = w.reshape(1, 64)
    assert np.array_equal(to_bits(se.sigmoid_gate(x, row, 64)), to_bits(se.sigmoid_gate(x, w, 64)))


def test_gate_is_one_from_logit_5_55_on():
    x = round_to_bf16(np.array([[5.5] + [0.0] * 7, [5.5625] + [0.0] * 7]))
    w = round_to_bf16(np.array([1.0] + [0.0] * 7))
    below, above = se.sigmoid_gate(x, w, 8).astype(np.float64)
    assert below < 1.0 == above


def test_ungated_and_unbiased_expert():
    d = data.shared_expert_data(4, 16, 16, seed=27, gated=False)
    result = se.shared_expert(d.x, d.w_gate, d.w_up, d.w_down, mlen=16)
    assert result.gate_scalars is None
    assert result.output is result.down
    assert np.array_equal(
        to_bits(result.gate), to_bits(matrix.linear_projection(d.x, d.w_gate, 16))
    )


def test_gate_reads_x_and_rows_are_independent():
    d = data.shared_expert_data(6, 32, 16, seed=28, kind="random")
    whole = se.shared_expert(d.x, d.w_gate, d.w_up, d.w_down, mlen=16, gate_weight=d.gate_weight)
    part = se.shared_expert(
        d.x[2:4], d.w_gate, d.w_up, d.w_down, mlen=16, gate_weight=d.gate_weight
    )
    assert np.array_equal(to_bits(whole.output)[2:4], to_bits(part.output))
    assert d.gate_weight is not None
    assert whole.gate_scalars is not None
    assert np.array_equal(
        to_bits(whole.gate_scalars), to_bits(se.sigmoid_gate(d.x, d.gate_weight, 16))
    )


def test_each_bias_is_applied_once_where_it_belongs():
    d = data.shared_expert_data(2, 16, 16, seed=29, gated=False, biased=True)
    assert d.biases
    plain = se.shared_expert(d.x, d.w_gate, d.w_up, d.w_down, mlen=16)
    for name in ("gate", "up", "down"):
        only = se.Biases(**{name: getattr(d.biases, name)})
        got = se.shared_expert(d.x, d.w_gate, d.w_up, d.w_down, mlen=16, biases=only)
        expected = bf16.add(getattr(plain, name), getattr(d.biases, name))
        assert np.array_equal(to_bits(getattr(got, name)), to_bits(expected))
        for other in {"gate", "up"} - {name}:
            assert np.array_equal(to_bits(getattr(got, other)), to_bits(getattr(plain, other)))


def test_combine_on_a_true_zero_is_the_shared_output():
    d = data.shared_expert_data(4, 32, 16, seed=30)
    y = se.shared_expert(d.x, d.w_gate, d.w_up, d.w_down, mlen=16, gate_weight=d.gate_weight).output
    zero = from_bits(np.zeros(y.shape, np.uint16))
    assert np.array_equal(to_bits(se.combine(zero, y)), to_bits(y))
    assert to_bits(se.combine(from_bits([0x0000]), from_bits([0x8000]))) == [0x0000]
    with pytest.raises(ValueError, match="differ in shape"):
        se.combine(zero, y[:1])


def test_errors_name_what_does_not_fit():
    d = data.shared_expert_data(2, 32, 16, seed=31, biased=True)
    assert d.biases
    assert d.gate_weight is not None
    with pytest.raises(ValueError, match=r"gate weight \(1, 16\) must be one row .* H = 32"):
        se.sigmoid_gate(d.x, d.gate_weight[:, :16], 16)
    with pytest.raises(ValueError, match="H = 32 is not a multiple of MLEN 64"):
        se.sigmoid_gate(d.x, d.gate_weight, 64)
    with pytest.raises(ValueError, match="do not fit"):
        se.shared_expert(d.x, d.w_gate, d.w_up, d.w_up, mlen=16)
    wrong = se.Biases(up=d.biases.down)
    with pytest.raises(ValueError, match=r"up bias \(32,\) must be \[16\]"):
        se.shared_expert(d.x, d.w_gate, d.w_up, d.w_down, mlen=16, biases=wrong)
