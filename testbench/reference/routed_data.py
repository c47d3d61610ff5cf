"""Operands of routed experts, deterministic in their seed: tokens, experts' weights, routing.

The kinds are those of `testbench.reference.data`. Experts differ from each other, so that a wrong
expert, or a wrong token, shows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.numerics.bf16 import Bf16Array, round_to_bf16
from sim.numerics.mx import BLOCK, round_trip
from testbench.reference.data import exact, projection_scale, random
from testbench.reference.routed import ExpertWeights

Kind = Literal["exact", "random"]
#: How tokens choose experts: at random, all the same `top_k`, or all but the last expert at random.
ROUTINGS: dict[str, str] = {
    "random": "every expert as likely as any other",
    "one": "all tokens choose experts 0 to top_k - 1",
    "skewed": "lower numbers are likelier; the last expert has no token",
}


@dataclass(frozen=True, kw_only=True)
class RoutedData:
    """x [T, H], weights of the chosen experts, experts [T, k], route weights [T, k] in (0, 1)."""

    x: Bf16Array
    weights: ExpertWeights
    experts: npt.NDArray[np.int64]
    route_weights: Bf16Array

    def through_mx(self, *, x: bool, block: int = BLOCK, dialect: str = "ocp") -> "RoutedData":
        """The data with the weights, and x if it is loaded from HBM, as they read back."""
        w = self.weights
        seen = {
            name: {number: round_trip(t, block, dialect) for number, t in getattr(w, name).items()}
            for name in ("gate", "up", "down")
        }
        return replace(
            self,
            x=round_trip(self.x, block, dialect) if x else self.x,
            weights=replace(w, **seen),
        )


def expert_weights(
    experts: int,
    hidden: int,
    inter: int,
    *,
    used: Iterable[int],
    kind: Kind = "exact",
    seed: int = 0,
    biased: bool = False,
) -> ExpertWeights:
    """Weights of the experts `used`, and biases of all `experts` if `biased`.

    A tensor depends on its expert's number and the seed alone.
    """
    numbers = sorted(set(used))

    def seed_of(tensor: int, number: int) -> int:
        return int(np.random.SeedSequence((seed, tensor, number)).generate_state(1)[0])

    def tensors(tensor: int, shape: tuple[int, int]) -> dict[int, Bf16Array]:
        scale = projection_scale(shape[0])
        return {n: _tensor(kind, shape, seed_of(tensor, n), scale) for n in numbers}

    def bias(tensor: int, width: int) -> Bf16Array | None:
        if not biased:
            return None
        return random((experts, width), seed=seed_of(tensor, experts), scale=0.5)

    return ExpertWeights(
        gate=tensors(0, (hidden, inter)),
        up=tensors(1, (hidden, inter)),
        down=tensors(2, (inter, hidden)),
        bias_gate=bias(3, inter),
        bias_up=bias(4, inter),
        bias_down=bias(5, hidden),
    )


def _tensor(kind: Kind, shape: tuple[int, int], seed: int, scale: float) -> Bf16Array:
    make: Callable[..., Bf16Array] = random if kind == "random" else exact
    return make(shape, seed=seed, scale=scale)


def routing(
    name: str, tokens: int, experts: int, top_k: int, *, seed: int = 0
) -> npt.NDArray[np.int64]:
    """Experts [tokens, top_k] by a row of `ROUTINGS`; no token names an expert twice."""
    rng = np.random.default_rng(seed)
    if name == "one":
        return np.tile(np.arange(top_k, dtype=np.int64), (tokens, 1))
    likelihood = np.ones(experts)
    if name == "skewed" and experts > top_k:
        likelihood = np.arange(experts - 1, -1, -1.0) ** 2
    likelihood /= likelihood.sum()
    rows = [rng.choice(experts, top_k, replace=False, p=likelihood) for _ in range(tokens)]
    return np.array(rows, np.int64)


def routed_data(
    tokens: int,
    hidden: int,
    inter: int,
    *,
    experts: int,
    top_k: int,
    kind: Kind = "exact",
    seed: int = 0,
    biased: bool = False,
    choice: str = "random",
) -> RoutedData:
    """One data set; route weights are general BF16 values, as no rule of a router makes them."""
    rng = np.random.default_rng(seed + 1)
    chosen = routing(choice, tokens, experts, top_k, seed=seed + 3)
    used = chosen.reshape(-1).tolist()
    return RoutedData(
        x=_tensor(kind, (tokens, hidden), seed + 2, 1.0),
        weights=expert_weights(
            experts, hidden, inter, used=used, kind=kind, seed=seed, biased=biased
        ),
        experts=chosen,
        route_weights=round_to_bf16(rng.uniform(0.05, 1.0, (tokens, top_k))),
    )
