"""How many experts the V_TOPK at dispatch ranks, and how many it selects."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from isa.config import PlenaConfig
from isa.topk import EXPERTS_BITS, FIXED_SHAPES, FROM_REGISTER, POLICY_BITS, TOP_K_BITS


class TopkPolicy(wiring.Component):
    """Resolves and checks the policy, combinationally.

    Members (in): `wanted` (a V_TOPK is at dispatch; without it nothing moves), `rmask`, `register`,
    `register_valid`. Members (out): `policy`; `num_experts`, `top_k`, `rows` (of vector SRAM); and
    the verdicts `unset` (it reads a register that was never set) and `out_of_range`.
    """

    wanted: Any
    rmask: Any
    register: Any
    register_valid: Any
    policy: Any
    num_experts: Any
    top_k: Any
    rows: Any
    unset: Any
    out_of_range: Any

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        super().__init__(
            {
                "wanted": In(1),
                "rmask": In(4),
                "register": In(32),
                "register_valid": In(1),
                "policy": Out(32),
                "num_experts": Out(EXPERTS_BITS),
                "top_k": Out(TOP_K_BITS),
                "rows": Out(EXPERTS_BITS + 1 - ceil_log2(config.MLEN)),
                "unset": Out(1),
                "out_of_range": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        policy, experts, top_k = self.policy, self.num_experts, self.top_k
        full_rows = Signal(EXPERTS_BITS + 1)
        with m.If(self.wanted):
            with m.Switch(self.rmask):
                for rmask, (all_, some) in FIXED_SHAPES.items():
                    with m.Case(rmask):
                        m.d.comb += policy.eq(all_ << TOP_K_BITS | some)
                with m.Case(FROM_REGISTER):
                    m.d.comb += [policy.eq(self.register), self.unset.eq(~self.register_valid)]
            m.d.comb += [
                top_k.eq(policy[:TOP_K_BITS]),
                experts.eq(policy[TOP_K_BITS:POLICY_BITS]),
                full_rows.eq(experts + (self._config.MLEN - 1)),
                self.rows.eq(full_rows >> ceil_log2(self._config.MLEN)),
                self.out_of_range.eq(
                    (policy[POLICY_BITS:] != 0)
                    | (top_k == 0)
                    | (top_k > experts)
                    | (top_k > self._config.TOPK_MAX)
                ),
            ]
        return m
