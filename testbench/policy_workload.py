"""V_TOPK of one shape as a workload of the commands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.router_program import SelectionProgram
from isa.config import PlenaConfig
from isa.image import ProgramImage
from sim.mismatch import Comparison, compare_words
from sim.numerics import bf16
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.policy_case import (
    PolicyData,
    encoding_problems,
    policy_data,
    policy_program,
    softmax_problems,
)
from testbench.routing_workload import RoutingWorkload
from testbench.workload import Bits


@dataclass(frozen=True, kw_only=True)
class PolicyWorkload(RoutingWorkload):
    """The selection of a few tokens; its result is the weights [tokens, top_k]."""

    name: str | None
    program: SelectionProgram
    data: PolicyData

    @property
    def config(self) -> PlenaConfig:
        """The machine."""
        return self.program.config

    @property
    def image(self) -> ProgramImage:
        """The program."""
        return self.program.image

    @property
    def encoding(self) -> str:
        """How the shape is told to V_TOPK."""
        encoding = self.program.encoding
        if encoding.policy is None:
            return f"fixed, rmask {encoding.rmask}"
        return f"register, policy {encoding.policy}"

    @property
    def title(self) -> str:
        """Shape, encoding and machine."""
        program, config = self.program, self.config
        name = "" if self.name is None else f"{self.name}: "
        return (
            f"{name}V_TOPK, {program.top_k} of {program.experts} experts, {self.encoding}; "
            f"{program.tokens} tokens; configuration {config.name} (MLEN {config.MLEN})"
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """The same, and the chosen experts."""
        program = self.program
        return {
            "policy": self.name,
            "experts": program.experts,
            "top_k": program.top_k,
            "tokens": program.tokens,
            "rows_per_token": program.blocks,
            "encoding": self.encoding,
            "indices": self.data.indices.tolist(),
            "weights": self.data.weights.astype(float).tolist(),
        }

    def load(self, simulation: Simulation) -> None:
        """Places the logits."""
        logits = self.program.logits
        rows = self.data.logits.reshape(-1, self.config.MLEN)
        simulation.memories.write_vector(logits.first_row, logits.place(rows))

    def check(self, simulation: Simulation) -> list[Comparison]:
        """Indices and weights."""
        indices, weights = self.program.indices, self.program.weights
        return [
            compare_words(
                "indices",
                simulation.memories.read_int()[indices.start : indices.end],
                self.data.indices.astype(np.uint32).reshape(-1),
            ),
            compare_words(
                "weights",
                simulation.memories.read_fp()[weights.start : weights.end],
                bf16.to_bits(self.data.weights).reshape(-1),
            ),
        ]

    def check_stages(self, result: RunResult) -> list[str]:
        """What is wrong with the stages, the encoding, or the expected weights themselves."""
        return (
            super().check_stages(result)
            + encoding_problems(self.program)
            + softmax_problems(self.data)
        )

    def result(self, simulation: Simulation) -> Bits:
        """The weights, bit patterns."""
        weights = self.program.weights
        words = simulation.memories.read_fp()[weights.start : weights.end]
        return words.reshape(self.program.tokens, self.program.top_k)

    @property
    def reference(self) -> Bits:
        """What they must be."""
        return bf16.to_bits(self.data.weights)


def policy_workload(
    config: PlenaConfig, experts: int, top_k: int, *, name: str | None = None, seed: int = 0
) -> PolicyWorkload:
    """The workload of a shape; CompileError for one that V_TOPK cannot select."""
    return PolicyWorkload(
        name=name,
        program=policy_program(config, experts, top_k),
        data=policy_data(config, experts, top_k, seed=seed),
    )
