"""What the routed experts of a layer are: shape, activation, biases, and where routing is kept."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from compiler.activation import activation_of
from compiler.arena import Interval
from compiler.errors import require, require_multiple
from compiler.program import Program
from isa import PlenaConfig


class Lowering(Enum):
    """How the routed experts are lowered."""

    PAIR = "pair"
    EXPERT = "expert"


@dataclass(frozen=True, kw_only=True)
class RoutedSpec:
    """The routed experts of one layer: `experts` MLPs [hidden, intermediate], `top_k` per token.

    `activation` is one of `compiler.activation.ACTIVATIONS`. `biases`: every projection of every
    expert has a bias row. `scale_input`: the route weight multiplies the expert's input, and its
    output is added as it is (Llama-4). Raises CompileError for values that make no layer.
    """

    experts: int
    top_k: int
    hidden: int
    intermediate: int
    activation: str = "standard_swiglu"
    biases: bool = False
    scale_input: bool = False

    def __post_init__(self) -> None:
        for name in ("experts", "top_k", "hidden", "intermediate"):
            value = getattr(self, name)
            require(value >= 1, f"{name} = {value}", "must be at least 1", "leave the layer out")
        require(
            self.top_k <= self.experts,
            f"top_k = {self.top_k}",
            f"must be at most experts = {self.experts}",
            "lower it",
        )
        activation_of(self.activation)

    def check(self, config: PlenaConfig, tokens: int) -> None:
        """CompileError unless the shape can be lowered for `config` and `tokens` tokens."""
        require(
            tokens >= 1,
            f"tokens = {tokens}",
            "must be at least 1",
            "leave the layer out of an empty batch",
        )
        require_multiple("hidden", self.hidden, config.MLEN, "MLEN")
        require_multiple("intermediate", self.intermediate, config.MLEN, "MLEN")


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Where the routing of `tokens` tokens is: pair p = token * top_k + rank.

    INT_MEM has the expert of pair p at `indices.start + p`, FP_MEM its weight at
    `weights.start + p`. Experts are the model's own numbers.
    """

    tokens: int
    top_k: int
    indices: Interval
    weights: Interval

    @classmethod
    def allocate(cls, prog: Program, tokens: int, top_k: int) -> "Routing":
        """Windows for `tokens` tokens; CompileError when a memory is too small."""
        pairs = tokens * top_k
        return cls(
            tokens=tokens,
            top_k=top_k,
            indices=prog.int_mem.window("route indices", pairs),
            weights=prog.fp_mem.window("route weights", pairs, spare=1),
        )

    def piece(self, first: int, tokens: int) -> "Routing":
        """The routing of tokens first .. first + tokens - 1 alone."""
        start, size = first * self.top_k, tokens * self.top_k
        return Routing(
            tokens=tokens,
            top_k=self.top_k,
            indices=Interval(self.indices.name, self.indices.start + start, size),
            weights=Interval(self.weights.name, self.weights.start + start, size),
        )

    @property
    def pairs(self) -> int:
        """(token, expert) pairs."""
        return self.tokens * self.top_k

    def token(self, pair: int) -> int:
        """The token of `pair`."""
        return pair // self.top_k

    def index_word(self, pair: int) -> int:
        """The INT_MEM word with the expert of `pair`."""
        return self.indices.start + pair

    def weight_slot(self, pair: int) -> int:
        """The FP_MEM slot with the route weight of `pair`."""
        return self.weights.start + pair


def check_known_routing(
    spec: RoutedSpec, tokens: int, experts: npt.NDArray[np.integer]
) -> npt.NDArray[np.int64]:
    """Experts [tokens, top_k] that are known when the program is compiled, as int64.

    CompileError names the first entry that is out of range or repeated in its row.
    """
    table = np.asarray(experts, np.int64)
    shape = (tokens, spec.top_k)
    require(table.shape == shape, f"routing {table.shape}", f"must be {shape}", "reshape it")
    for token, row in enumerate(table.tolist()):
        for rank, expert in enumerate(row):
            field = f"routing[{token}][{rank}] = {expert}"
            require(
                0 <= expert < spec.experts,
                field,
                f"must be 0 to {spec.experts - 1}",
                "use the model's own expert numbers",
            )
            require(
                expert not in row[:rank],
                field,
                f"token {token} already chose this expert",
                "name an expert once per token",
            )
    return table
