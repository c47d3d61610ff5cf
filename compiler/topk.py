"""V_TOPK for any shape: a fixed encoding where one exists, else the policy register."""

from dataclasses import dataclass

from compiler.errors import require
from compiler.immediates import set_topk_policy
from compiler.program import Program
from compiler.registers import Register
from isa import PlenaConfig
from isa.topk import EXPERTS_LIMIT, FIXED_SHAPES, FROM_REGISTER, pack_policy


@dataclass(frozen=True)
class TopkEncoding:
    """How a shape is told to V_TOPK: rmask, and the policy word if the register holds it."""

    rmask: int
    policy: int | None


def topk_encoding(config: PlenaConfig, experts: int, top_k: int) -> TopkEncoding:
    """The encoding of `top_k` of `experts`: the fixed one exactly for the shapes that have one.

    Raises:
        CompileError: top_k not 1 to experts, above TOPK_MAX of the configuration, or more experts
            than the 14 bits of a policy can say.
    """
    require(
        1 <= top_k <= experts,
        f"top_k = {top_k}",
        f"must be 1 to experts = {experts}",
        "select fewer experts",
    )
    require(
        experts <= EXPERTS_LIMIT,
        f"experts = {experts}",
        f"a V_TOPK policy names at most {EXPERTS_LIMIT}",
        "split the experts into groups",
    )
    require(
        top_k <= config.TOPK_MAX,
        f"top_k = {top_k}",
        f"must be at most TOPK_MAX = {config.TOPK_MAX} of configuration {config.name!r}",
        "raise TOPK_MAX, or select fewer experts",
    )
    for rmask, shape in FIXED_SHAPES.items():
        if shape == (experts, top_k):
            return TopkEncoding(rmask, None)
    return TopkEncoding(FROM_REGISTER, pack_policy(experts, top_k))


def set_shape(prog: Program, experts: int, top_k: int) -> int:
    """The rmask of a shape, with its policy in the register where it has no fixed encoding."""
    encoding = topk_encoding(prog.config, experts, top_k)
    if encoding.policy is not None:
        set_topk_policy(prog, encoding.policy)
    return encoding.rmask


def emit_topk(
    prog: Program,
    experts: int,
    top_k: int,
    *,
    logits: Register,
    indices: Register,
    weights: Register,
) -> None:
    """Select `top_k` of the `experts` lanes from row `logits`, over consecutive rows.

    INT_MEM from `indices` gets the indices, FP_MEM from `weights` the softmax over the selected,
    largest first. The policy register is written only if it does not hold the shape already.
    """
    rmask = set_shape(prog, experts, top_k)
    prog.emit("V_TOPK", weights, logits, indices, rmask=rmask)
