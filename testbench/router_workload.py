"""A router as a workload of the commands: its case, and the comparison with the definition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.moe_model import MoeModel
from isa.config import PlenaConfig
from isa.image import ProgramImage
from sim.mismatch import Comparison, compare, compare_words
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.router_agreement import Agreement, compare_with_definition
from testbench.router_case import RouterCase, build_router_case
from testbench.routing_workload import RoutingWorkload
from testbench.workload import Bits


@dataclass(frozen=True, kw_only=True)
class RouterWorkload(RoutingWorkload):
    """The routing of one model; its result is the route weights [tokens, top_k].

    A difference from the model's definition that rounding does not explain is one of the problems.
    """

    model: MoeModel
    router: RouterCase
    agreement: Agreement

    @property
    def config(self) -> PlenaConfig:
        """The machine."""
        return self.router.program.config

    @property
    def image(self) -> ProgramImage:
        """The program."""
        return self.router.program.image

    @property
    def title(self) -> str:
        """Model, rule, sizes and machine."""
        model, config = self.model, self.config
        return (
            f"{model.title}: {model.top_k} of {model.experts} experts, {model.rule.scores.value} "
            f"(V_TOPK alone: {model.rule.topk_gives.value}); {self.router.program.tokens} tokens, "
            f"hidden {model.hidden}; configuration {config.name} (MLEN {config.MLEN})"
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """The same, the routing, and the comparison with the definition."""
        model, golden = self.model, self.router.golden
        return {
            "model": model.name,
            "experts": model.experts,
            "top_k": model.top_k,
            "hidden": model.hidden,
            "tokens": self.router.program.tokens,
            "scores": model.rule.scores.value,
            "v_topk_alone": model.rule.topk_gives.value,
            "definition": self.agreement.summary(),
            "indices": golden.indices.tolist(),
            "weights": golden.weights.astype(float).tolist(),
        }

    def load(self, simulation: Simulation) -> None:
        """Places constants and operands."""
        self.router.load(simulation.memories)

    def check(self, simulation: Simulation) -> list[Comparison]:
        """Logits, indices and weights, in the order of the data flow."""
        got, want = self.router.results(simulation.memories), self.router.wanted
        program, mlen = self.router.program, self.config.MLEN
        blocks, first = program.spec.blocks(mlen), program.router.logits.first_row

        def locate(row: int, column: int) -> tuple[int, int]:
            return first + row * blocks + column // mlen, column % mlen

        logits = compare(
            "logits",
            got["logits"],
            want["logits"],
            locate=locate,
            writers=simulation.last_writer,
            image=simulation.image,
        )
        words = [
            compare_words(name, got[name].reshape(-1), want[name].reshape(-1))
            for name in ("indices", "weights")
        ]
        return [logits, *words]

    def check_stages(self, result: RunResult) -> list[str]:
        """What is wrong with the stages, and what rounding does not explain."""
        return super().check_stages(result) + self.agreement.problems

    def result(self, simulation: Simulation) -> Bits:
        """The route weights, bit patterns."""
        return self.router.results(simulation.memories)["weights"]

    @property
    def reference(self) -> Bits:
        """What they must be."""
        return self.router.wanted["weights"]


def router_workload(
    config: PlenaConfig, model: MoeModel, *, tokens: int, seed: int = 0
) -> RouterWorkload:
    """The routing of `tokens` random tokens by the router of `model`.

    Raises CompileError for a shape that cannot be lowered.
    """
    router = build_router_case(config, model.router, tokens=tokens, seed=seed)
    data = router.data
    agreement = compare_with_definition(
        model.router,
        router.golden,
        x=data.x,
        weight=data.weight,
        bias=data.bias,
        correction=data.correction,
        mlen=config.MLEN,
    )
    return RouterWorkload(model=model, router=router, agreement=agreement)
