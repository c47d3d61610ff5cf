"""The policy of V_TOPK: how many experts there are, and how many of them it selects (isa.md)."""

#: rmask -> (num_experts, top_k) of the shapes that need no register.
FIXED_SHAPES: dict[int, tuple[int, int]] = {0: (32, 4), 1: (128, 8)}
#: The rmask that reads the policy register.
FROM_REGISTER = 15

TOP_K_BITS = 8
EXPERTS_BITS = 14
#: Bits of a policy; a register with more of them set is out of range.
POLICY_BITS = TOP_K_BITS + EXPERTS_BITS
#: The most experts that a policy can name.
EXPERTS_LIMIT = (1 << EXPERTS_BITS) - 1


def pack_policy(experts: int, top_k: int) -> int:
    """The policy word of a shape, as C_SET_TOPK_REG takes it."""
    return experts << TOP_K_BITS | top_k
