"""The test tensors: identity under MX, distinct rows, gates that do not saturate, independence."""

import ast
from pathlib import Path

import numpy as np
import pytest

import testbench.reference
from sim.numerics import mx
from sim.numerics.bf16 import from_bits, round_to_bf16, to_bits
from testbench.reference import data
from testbench.reference.shared_expert import SharedExpertResult, shared_expert, sigmoid_gate

SHAPES = [(1, 64, 64), (5, 16, 80), (8, 320, 64), (68, 192, 192), (64, 640, 128), (16, 1024, 64)]
WEIGHTS = ("w_gate", "w_up", "w_down")


def run(d: data.SharedExpertData, mlen: int) -> SharedExpertResult:
    return shared_expert(
        d.x,
        d.w_gate,
        d.w_up,
        d.w_down,
        mlen=mlen,
        k_chunk_tiles=4,
        biases=d.biases,
        gate_weight=d.gate_weight,
    )


@pytest.mark.parametrize(("rows", "hidden", "inter"), SHAPES)
@pytest.mark.parametrize("kind", ["exact", "pattern"])
def test_mx_is_the_identity(kind: data.Kind, rows: int, hidden: int, inter: int):
    d = data.shared_expert_data(rows, hidden, inter, kind=kind, seed=3, biased=True)
    assert d.biases
    assert d.gate_weight is not None
    for tensor in (d.x, d.w_gate, d.w_up, d.w_down, d.gate_weight, d.biases.gate, d.biases.down):
        assert tensor is not None
        assert data.obeys_mx_identity_rule(tensor).all()
        assert np.array_equal(to_bits(mx.round_trip(tensor)), to_bits(tensor))
    read_back = d.through_mx()
    assert all(
        np.array_equal(to_bits(getattr(read_back, n)), to_bits(getattr(d, n))) for n in WEIGHTS
    )


@pytest.mark.parametrize(("rows", "hidden", "inter"), SHAPES)
@pytest.mark.parametrize("kind", ["exact", "random"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_differ_gates_live_and_values_stay_moderate(
    kind: data.Kind, rows: int, hidden: int, inter: int, seed: int
):
    d = data.shared_expert_data(rows, hidden, inter, kind=kind, seed=seed, biased=True)
    result = run(d, 16)
    for tensor in (d.x, d.w_gate, d.w_up, d.w_down, d.w_gate.T, d.w_down.T, result.output):
        assert len(np.unique(to_bits(tensor), axis=0)) == tensor.shape[0]
    assert result.gate_scalars is not None
    data.assert_not_saturated(result.gate_scalars)
    assert rows < 8 or len(np.unique(to_bits(result.gate_scalars))) >= min(rows, 8) // 2
    for tensor in (result.gate, result.up, result.activation, result.down, result.output):
        values = tensor.astype(np.float64)
        assert np.isfinite(values).all()
        assert 0.1 < values.std() < 100


def test_random_data_is_changed_by_mx_and_only_where_asked():
    d = data.shared_expert_data(4, 64, 64, kind="random", seed=4)
    read_back = d.through_mx(("w_gate",))
    assert np.mean(to_bits(read_back.w_gate) != to_bits(d.w_gate)) > 0.5
    assert read_back.x is d.x
    assert np.array_equal(to_bits(d.through_mx().x), to_bits(mx.round_trip(d.x)))


def test_the_pattern_is_upstreams_and_collapses_at_multiples_of_five():
    assert data.pattern((2, 4), 2, 1).astype(np.float64).tolist() == [
        [-0.5, 0.5, -1.0, 0.0],
        [1.0, -0.5, 0.5, -1.0],
    ]
    rows = data.pattern((8, 320), 1, 0)
    assert len(np.unique(to_bits(rows), axis=0)) == 1
    assert len(np.unique(to_bits(data.pattern((8, 64), 1, 0)), axis=0)) == 5
    with pytest.raises(ValueError, match="stride 10 is a multiple of 5"):
        data.pattern((8, 64), 10, 0)


def test_exact_data_contains_repaired_maxima_and_deep_elements():
    x = data.exact((64, 64), seed=5).astype(np.float64)
    blocks = np.abs(x).reshape(-1, 8)
    top = blocks.max(axis=-1)
    assert 2 * np.frexp(top)[0].max() == 1.75
    assert (2 * np.frexp(blocks)[0] == 1.875).any()  # below the maximum all four bits are used
    assert ((blocks > 0) & (blocks * 2**10 < top[:, None])).any()
    assert (x == 0).any()


def test_exact_data_other_blocks_seeds_and_refusals():
    x = data.exact((8, 64), seed=6, block=32)
    assert np.array_equal(to_bits(mx.round_trip(x, 32)), to_bits(x))
    assert np.array_equal(to_bits(x), to_bits(data.exact((8, 64), seed=6, block=32)))
    assert not np.array_equal(to_bits(x), to_bits(data.exact((8, 64), seed=7, block=32)))
    with pytest.raises(ValueError, match=r"scale 0.3 must be a power of two"):
        data.exact((8, 64), seed=0, scale=0.3)
    with pytest.raises(ValueError, match="not a multiple of the block 8"):
        data.exact((8, 12), seed=0)
    with pytest.raises(ValueError, match="MX would not be the identity"):
        data.exact((8, 64), seed=0, exponents=(0, 4))


def test_a_tensor_with_equal_rows_is_drawn_again(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(data, "_all_rows_differ", lambda _: False)
        with pytest.raises(ValueError, match="distinct rows and columns in 16 draws"):
            data.exact((8, 64), seed=0)
    # A column of two rows may well repeat: only columns of at least 8 elements are held apart.
    assert data.exact((2, 512), seed=0).shape == (2, 512)


def test_a_tensor_does_not_change_with_the_options():
    plain = data.shared_expert_data(4, 64, 64, seed=8, gated=False)
    full = data.shared_expert_data(4, 64, 64, seed=8, biased=True)
    for name in ("x", *WEIGHTS):
        assert np.array_equal(to_bits(getattr(plain, name)), to_bits(getattr(full, name)))
    assert plain.gate_weight is None
    assert plain.biases is None


@pytest.mark.parametrize(
    ("hidden", "scale"), [(16, 0.125), (64, 0.125), (128, 0.125), (192, 0.0625), (2048, 2.0**-7)]
)
def test_gate_scale(hidden: int, scale: float):
    assert data.gate_scale(hidden) == scale
    assert scale <= 20 / hidden


def test_upstreams_pattern_saturates_without_the_scale_and_not_with_it():
    x = data.pattern((5, 64), 1, 0)
    row = data.pattern((1, 64), 3, 1).astype(np.float32)
    data.assert_not_saturated(sigmoid_gate(x, round_to_bf16(row * np.float32(0.125)), 64))
    with pytest.raises(data.SaturatedGate, match=r"sigmoid gate of token \d is 1.0"):
        data.assert_not_saturated(sigmoid_gate(x, round_to_bf16(row), 64))


@pytest.mark.parametrize(("bits", "value"), [(0x3F80, "1.0"), (0x0000, "0.0"), (0x7FC0, "nan")])
def test_the_saturation_error_names_token_value_and_way_out(bits: int, value: str):
    gates = from_bits([0x3F00, 0x3F00, bits, 0x3F80])
    with pytest.raises(
        data.SaturatedGate, match=rf"token 2 is {value}.*power of two.*2 of 4 gates"
    ):
        data.assert_not_saturated(gates)
    data.assert_not_saturated(gates[:2])
    data.assert_not_saturated(from_bits([0x3F7F, 0x0001]))


def test_the_reference_imports_nothing_of_what_it_judges():
    mine = {"testbench.reference", "sim.numerics"}
    allowed = {"numpy", "ml_dtypes", "dataclasses", "fractions"}
    allowed |= {"collections", "functools", "typing", "math", "enum"}
    declared = {"compiler.router_rule"}  # what a model's rule is, as data; nothing that lowers it
    root = Path(testbench.reference.__file__).parents[2]
    folders = {"sim.numerics": mine - {"testbench.reference"}, "testbench.reference": mine}
    for package, ours in folders.items():
        files = sorted(root.joinpath(*package.split(".")).glob("*.py"))
        assert len(files) >= 4
        for file in files:
            for node in ast.walk(ast.parse(file.read_text())):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    assert node.level == 0, file.name
                    names = [node.module or ""]
                for name in names:
                    known = name.split(".")[0] in allowed or name in declared
                    known |= ".".join(name.split(".")[:2]) in ours
                    assert known, f"{file} imports {name}"
