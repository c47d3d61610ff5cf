"""Test tensors for matrix and shared-expert benches, all deterministic in their seed.

Source: numerics.md, "Test data that makes quantisation the identity"; lowering.md section 8.

    kind      content                                             MX round trip
    exact     random 4-bit significands, 3 to 13 binades a block   identity (the default)
    pattern   upstream's v[(n*stride + offset) % 5]                identity
    random    general normal data, rounded once to BF16           changes the data: see `through_mx`

`exact` is the default because the pattern has at most 5 distinct rows, and just one when the row
length is a multiple of 5. Its rows and columns are checked to be distinct for every shape. The same
seed gives the same tensor under one NumPy version, which the project pins.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor, log2
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import Bf16Array, require_bf16, round_to_bf16
from sim.numerics.mx import BLOCK, round_trip
from testbench.reference.shared_expert import Biases

Kind = Literal["exact", "pattern", "random"]
PATTERN = (-1.0, -0.5, 0.0, 0.5, 1.0)
UPSTREAM_GATE_SCALE = 0.125
SHALLOW = (-3, -2, -1, 0)
ATTEMPTS = 16


@dataclass(frozen=True)
class IdentityRule:
    """When an MX dialect keeps a block of elements of at most 4 significant bits: none below the
    maximum / 2^`binades`, the maximum at least `least` with a significand of at most `significand`,
    and no -0 unless `minus_zero`. `deep` is the least exponent of test data whose largest is 0."""

    binades: int
    significand: float
    least: float
    minus_zero: bool
    deep: int


#: numerics.md has OCP's. In `plena` all below 2^-6 of the scale has fewer bits, 480 does not occur
#: (the scale is not made 2^8 smaller), a scale byte of 0 is zero, and zeros have no sign.
IDENTITY_RULES = {
    "ocp": IdentityRule(14, 1.75, 0.0, True, -12),
    "plena": IdentityRule(6, 1.875, 2.0**-126, False, -5),
}


class SaturatedGate(ValueError):
    """A gate is exactly 0 or 1 (or NaN): a test could not see that it is not applied."""


@dataclass(frozen=True, kw_only=True)
class SharedExpertData:
    """Operands of one shared expert in BF16: x [rows, H], w_gate and w_up [H, I], w_down [I, H].

    gate_weight is [1, H] or None; the biases are rows (see `Biases`).
    """

    x: Bf16Array
    w_gate: Bf16Array
    w_up: Bf16Array
    w_down: Bf16Array
    gate_weight: Bf16Array | None = None
    biases: Biases | None = None

    def through_mx(
        self,
        fields: tuple[str, ...] = ("x", "w_gate", "w_up", "w_down"),
        block: int = BLOCK,
        dialect: str = "ocp",
    ) -> "SharedExpertData":
        """Return the data with the named tensors as they read back from HBM, the others as is."""
        seen = {name: round_trip(getattr(self, name), block, dialect) for name in fields}
        return replace(self, **seen)


def pattern(shape: tuple[int, ...], stride: int, offset: int) -> Bf16Array:
    """Return v[(n*stride + offset) % 5] over the flattened index n, v = (-1, -0.5, 0, 0.5, 1).

    ValueError when stride is a multiple of 5: every element would be the same.
    """
    if stride % len(PATTERN) == 0:
        raise ValueError(f"pattern: stride {stride} is a multiple of 5: a constant tensor")
    index = np.arange(int(np.prod(shape)), dtype=np.int64)
    return round_to_bf16(np.array(PATTERN)[(index * stride + offset) % len(PATTERN)]).reshape(shape)


def obeys_mx_identity_rule(
    x: Bf16Array, block: int = BLOCK, dialect: str = "ocp"
) -> npt.NDArray[np.bool_]:
    """Return, per block, whether the dialect's `IdentityRule` promises that MX keeps it.

    The rule is sufficient, not necessary. Shape [..., n / block].
    """
    rule = IDENTITY_RULES[dialect]
    with np.errstate(all="ignore"):
        values = require_bf16(x, "x").astype(np.float64)
    blocks = np.abs(values).reshape(*values.shape[:-1], -1, block)
    significand, _ = np.frexp(blocks)  # in [0.5, 1), or 0
    four_bits = (significand * 16 == np.floor(significand * 16)).all(axis=-1)
    top = blocks.max(axis=-1)
    near = ((blocks == 0) | (blocks * 2.0**rule.binades >= top[..., None])).all(axis=-1)
    top_significand, _ = np.frexp(top)
    finite = np.isfinite(values.reshape(blocks.shape)).all(axis=-1)
    high = (top == 0) | (top >= rule.least)
    signed = rule.minus_zero | ~((values == 0) & np.signbit(values)).reshape(blocks.shape)
    high &= signed.all(axis=-1)
    return finite & four_bits & near & high & (2 * top_significand <= rule.significand)


def exact(
    shape: tuple[int, ...],
    *,
    seed: int,
    scale: float = 1.0,
    exponents: tuple[int, ...] = SHALLOW,
    deep_share: float = 0.125,
    block: int = BLOCK,
    dialect: str = "ocp",
) -> Bf16Array:
    """Return random values +-m * 2^e * scale with 4-bit m in [1, 2), on which MX is the identity.

    e is drawn from `exponents`, or, for `deep_share` of the elements, uniformly from the rule's
    `deep` to min(exponents); one element in 16 is zero. In a block whose maximum has significand
    1.875, that maximum becomes 1.75. `scale` must be a power of two. Rows and columns of a matrix
    are distinct; ValueError if the shape is too small for that, or the parameters leave the rule.
    """
    rule = IDENTITY_RULES[dialect]
    if 2.0 ** round(log2(scale)) != scale:
        raise ValueError(f"exact: scale {scale} must be a power of two, or significands change")
    if shape[-1] % block:
        raise ValueError(f"exact: the row length of {shape} is not a multiple of the block {block}")

    def draw(rng: np.random.Generator) -> Bf16Array:
        significand = rng.integers(8, 16, shape) / 8.0
        exponent = rng.choice(np.array(exponents), shape)
        deep = rng.integers(rule.deep, min(exponents) + 1, shape)
        exponent = np.where(rng.random(shape) < deep_share, deep, exponent)
        magnitude = np.where(rng.integers(0, 16, shape) == 0, 0.0, np.ldexp(significand, exponent))
        blocks = magnitude.reshape(-1, block)
        top = blocks.max(axis=-1, keepdims=True)
        too_wide = (blocks == top) & (np.frexp(top)[0] == 0.9375)
        magnitude = np.where(too_wide, blocks * (1.75 / 1.875), blocks).reshape(shape)
        signed = np.where(rng.integers(0, 2, shape) == 0, magnitude, -magnitude) * scale
        return round_to_bf16(signed if rule.minus_zero else signed + 0.0)

    tensor = _distinct(shape, seed, draw)
    if not obeys_mx_identity_rule(tensor, block, dialect).all():
        raise ValueError(f"exact: with exponents {exponents}, MX would not be the identity")
    return tensor


def random(shape: tuple[int, ...], *, seed: int, scale: float = 1.0) -> Bf16Array:
    """Return normal BF16 values of standard deviation `scale`; rows and columns distinct."""
    return _distinct(shape, seed, lambda rng: round_to_bf16(rng.standard_normal(shape) * scale))


def _distinct(
    shape: tuple[int, ...], seed: int, draw: Callable[[np.random.Generator], Bf16Array]
) -> Bf16Array:
    """Draw until no two rows, and no two columns of at least 8 elements, of a matrix are equal."""
    rng = np.random.default_rng(seed)
    for _ in range(ATTEMPTS):
        tensor = draw(rng)
        if tensor.ndim < 2:
            return tensor
        rows = tensor.reshape(-1, shape[-1])
        if all(_all_rows_differ(side) for side in (rows, rows.T) if side.shape[1] >= BLOCK):
            return tensor
    raise ValueError(f"data: no {shape} tensor with distinct rows and columns in {ATTEMPTS} draws")


def _all_rows_differ(matrix: Bf16Array) -> bool:
    return len({row.tobytes() for row in np.ascontiguousarray(matrix)}) == matrix.shape[0]


def gate_scale(hidden: int) -> float:
    """Return the power of two for the gate row: upstream's 0.125, lowered to at most 20/H."""
    return min(UPSTREAM_GATE_SCALE, 2.0 ** floor(log2(20 / hidden)))


def assert_not_saturated(gates: Bf16Array) -> None:
    """Raise SaturatedGate for the first of the gate scalars [rows] that is exactly 0, 1 or NaN."""
    with np.errstate(all="ignore"):
        values = require_bf16(gates, "gates").astype(np.float64)
    bad = np.flatnonzero(~((values > 0) & (values < 1)))
    if bad.size:
        token = int(bad[0])
        raise SaturatedGate(
            f"the sigmoid gate of token {token} is {values[token]}, so a gate that is not applied "
            f"would go unseen: scale the gate weight by a smaller power of two (not above 20/H), "
            f"or change the seed ({bad.size} of {values.size} gates)"
        )


def projection_scale(depth: int) -> float:
    """Return the power of two near 2/sqrt(K): pre-activations deviate by about 1 to 2."""
    return 2.0 ** (1 - round(log2(depth) / 2))


def shared_expert_data(
    rows: int,
    hidden: int,
    inter: int,
    *,
    kind: Kind = "exact",
    seed: int = 0,
    gated: bool = True,
    biased: bool = False,
    block: int = BLOCK,
    dialect: str = "ocp",
) -> SharedExpertData:
    """Return one data set for a shared expert of any shape whose H and I are multiples of `block`.

    Tensors draw from independent streams of `seed`, so a tensor does not change when an option is
    added. Gates are meant not to saturate; the caller asserts it on the result with
    `assert_not_saturated`.
    """
    stream = iter(int(s) for s in np.random.SeedSequence(seed).generate_state(8))

    def tensor(
        shape: tuple[int, ...], scale: float, upstream: tuple[int, int], **options: Any
    ) -> Bf16Array:
        own_seed = next(stream)
        if kind == "pattern":
            return round_to_bf16(pattern(shape, *upstream).astype(np.float32) * np.float32(scale))
        if kind == "random":
            return random(shape, seed=own_seed, scale=scale)
        return exact(shape, seed=own_seed, scale=scale, block=block, dialect=dialect, **options)

    into, out = projection_scale(hidden), projection_scale(inter)
    if kind == "pattern":
        into = out = 1.0
    x = tensor((rows, hidden), 1.0, (1, 0))
    w_gate = tensor((hidden, inter), into, (2, 1))
    w_up = tensor((hidden, inter), into, (3, 2))
    w_down = tensor((inter, hidden), out, (4, 3))
    # Larger elements than elsewhere: the scale alone pulls the gates of a wide x to one half.
    gate = tensor((1, hidden), gate_scale(hidden), (3, 1), exponents=(-1, 0))
    bias_rows = [
        tensor((width,), 0.5, (stride, 0))
        for width, stride in ((inter, 1), (inter, 2), (hidden, 3))
    ]
    return SharedExpertData(
        x=x,
        w_gate=w_gate,
        w_up=w_up,
        w_down=w_down,
        gate_weight=gate if gated else None,
        biases=Biases(gate=bias_rows[0], up=bias_rows[1], down=bias_rows[2]) if biased else None,
    )


def order_sensitive(
    rows: int, depth: int, cols: int, *, seed: int, pairs: int = 4
) -> tuple[Bf16Array, Bf16Array]:
    """Return act [rows, K] and weight [K, N] whose product shows the order of its additions.

    `pairs` couples of terms +-2^24 cancel across random places of K, and what was added to a large
    partial sum lost bits in between. MX is the identity on both. Exact and random data hardly ever
    show an order: BF16 hides it.
    """
    if depth < 2 * pairs:
        raise ValueError(f"order_sensitive: K = {depth} has no room for {pairs} pairs")
    act = exact((rows, depth), seed=seed, exponents=(-1, 0), deep_share=0.0).copy()
    weight = exact((depth, cols), seed=seed + 1, exponents=(-1, 0), deep_share=0.0).copy()
    rng = np.random.default_rng(seed)
    places = rng.permutation(depth)[: 2 * pairs]
    signs = round_to_bf16(np.where(rng.integers(0, 2, (pairs, cols)) == 0, 4096.0, -4096.0))
    act[:, places] = 4096.0
    weight[places[:pairs]] = signs
    weight[places[pairs:]] = -signs
    return act, weight
