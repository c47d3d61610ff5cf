"""One router workload: its program, its data, what must come out, and the checks of a finished
run."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from compiler.router_program import RouterProgram, compile_router
from compiler.router_rule import RouterSpec
from isa.config import PlenaConfig
from sim.numerics import bf16
from testbench.reference.data import random
from testbench.reference.router import Routing, route, router_logits

#: Standard deviation of logits, biases, correction biases: experts differ, and none takes it all.
LOGIT_DEVIATION, BIAS_DEVIATION, CORRECTION_DEVIATION = 1.5, 0.5, 0.1


class RouterMemories(Protocol):
    """The memories of a simulation, or of the architectural machine."""

    def write_vector(self, first_row: int, values: npt.ArrayLike) -> None: ...
    def write_fp(self, first: int, values: npt.ArrayLike) -> None: ...
    def read_vector(self, first_row: int, count: int) -> npt.NDArray[np.uint16]: ...
    def read_fp(self) -> npt.NDArray[np.uint16]: ...
    def read_int(self) -> npt.NDArray[np.uint32]: ...


@dataclass(frozen=True, kw_only=True)
class RouterData:
    """Operands in BF16: x [T, H], weight [E, H]; bias, correction [E] where the rule has them."""

    x: npt.NDArray[Any]
    weight: npt.NDArray[Any]
    bias: npt.NDArray[Any] | None
    correction: npt.NDArray[Any] | None


def router_data(spec: RouterSpec, tokens: int, *, seed: int) -> RouterData:
    """Normal data for a router; independent streams of `seed`."""
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(4)]
    deviation = LOGIT_DEVIATION / spec.hidden**0.5
    rule, shape = spec.rule, (spec.experts,)
    return RouterData(
        x=random((tokens, spec.hidden), seed=seeds[0]),
        weight=random((spec.experts, spec.hidden), seed=seeds[1], scale=deviation),
        bias=random(shape, seed=seeds[2], scale=BIAS_DEVIATION) if rule.bias else None,
        correction=(
            random(shape, seed=seeds[3], scale=CORRECTION_DEVIATION)
            if rule.correction_bias
            else None
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RouterCase:
    """A program with operands and the golden routing."""

    program: RouterProgram
    data: RouterData
    golden: Routing

    def load(self, memories: RouterMemories) -> None:
        """Places constants and operands."""
        program, data = self.program, self.data
        memories.write_fp(0, program.fp_mem)
        memories.write_vector(program.x.first_row, program.x.place(data.x))
        for name in program.router.operands:
            in_fp, start, values = program.router.place(name, getattr(data, name))
            (memories.write_fp if in_fp else memories.write_vector)(start, values)

    def results(self, memories: RouterMemories) -> dict[str, npt.NDArray[Any]]:
        """Logits [T, E] and weights [T, k] as patterns, indices [T, k]."""
        program, router = self.program, self.program.router
        spec, tokens = program.spec, program.tokens
        rows = memories.read_vector(router.logits.first_row, router.logits.memory_rows)
        logits = router.logits.gather(rows).reshape(tokens, -1)[:, : spec.experts]
        indices, weights = router.indices, router.weights
        shape = (tokens, spec.top_k)
        return {
            "logits": logits,
            "indices": memories.read_int()[indices.start : indices.end].reshape(shape),
            "weights": memories.read_fp()[weights.start : weights.end].reshape(shape),
        }

    @property
    def wanted(self) -> dict[str, npt.NDArray[Any]]:
        """What `results` must be."""
        golden = self.golden
        return {
            "logits": bf16.to_bits(golden.logits),
            "indices": golden.indices.astype(np.uint32),
            "weights": bf16.to_bits(golden.weights),
        }


def golden_routing(spec: RouterSpec, data: RouterData, mlen: int) -> Routing:
    """What the router of `spec` must decide on `data`, bit for bit."""
    logits = router_logits(data.x, data.weight, mlen)
    if data.bias is not None:
        logits = bf16.add(logits, data.bias)
    return route(spec, logits, mlen=mlen, correction=data.correction)


def build_router_case(
    config: PlenaConfig, spec: RouterSpec, *, tokens: int, seed: int = 0
) -> RouterCase:
    """Compiles the program, makes the data, and computes what must come out.

    Raises CompileError for a shape that cannot be lowered.
    """
    program = compile_router(config, spec, tokens=tokens)
    data = router_data(spec, tokens, seed=seed)
    return RouterCase(program=program, data=data, golden=golden_routing(spec, data, config.MLEN))
