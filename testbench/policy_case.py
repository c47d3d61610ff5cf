"""V_TOPK of one shape: logits that tell its mistakes apart, the words that must be emitted, and
what must come out."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from compiler.models import MODELS
from compiler.router_program import SelectionProgram, compile_selection
from isa.config import PlenaConfig
from isa.instruction import Instruction
from isa.operands import FIELDS
from isa.topk import FIXED_SHAPES, FROM_REGISTER, pack_policy
from sim.numerics import bf16
from sim.numerics.bf16 import Bf16Array
from sim.numerics.topk import rank, topk_weights

#: What every expert but the winners has, the best winner, and the step between winners.
LOSER, BEST, STEP = -100.0, 8.0, 0.5
#: Winners for which BEST is high enough to keep all of them above LOSER.
WINNERS_BELOW_BEST = 200
#: Tokens of a workload: the tie is between the last chosen and the first refused, between the two
#: best, and between the two refused.
TOKENS = 3


@dataclass(frozen=True)
class Shape:
    """A router's shape by name, and where it is from."""

    experts: int
    top_k: int
    source: str

    @classmethod
    def of(cls, model: str) -> "Shape":
        """The shape of a row of the model table."""
        row = MODELS[model]
        return cls(row.experts, row.top_k, row.checkpoint)


#: The shapes of lowering.md section 3, "Router test shapes". Qwen2-MoE's is that of the first model
#: of its kind (num_experts, num_experts_per_tok); it leaves lanes of a row without an expert.
POLICIES: Mapping[str, Shape] = {
    "gpt_oss": Shape.of("gpt-oss-20b"),
    "qwen3_moe": Shape.of("qwen3-30b-a3b"),
    "llama4_scout": Shape.of("llama4-scout"),
    "qwen2_moe": Shape(60, 4, "Qwen/Qwen1.5-MoE-A2.7B"),
    "deepseek_v2_lite": Shape.of("deepseek-v2-lite"),
    "deepseek_v3": Shape.of("deepseek-v3"),
}


@dataclass(frozen=True, kw_only=True)
class PolicyData:
    """logits [tokens, blocks * MLEN] with garbage past the last expert; indices and weights
    [tokens, k] that must come out."""

    logits: Bf16Array
    indices: np.ndarray
    weights: Bf16Array


def policy_data(config: PlenaConfig, experts: int, top_k: int, *, seed: int = 0) -> PolicyData:
    """Make logits and results; every token has k + 2 winners (or all experts) with one exact tie.

    Winners are spread from expert 0 to the last one, which wins the first token (all but the first
    of a tie). Lanes past the last expert hold NaN, infinity and numbers above every winner.
    """
    rng = np.random.default_rng(seed)
    padded = -(-experts // config.MLEN) * config.MLEN
    count = min(experts, top_k + 2)
    values = np.full((TOKENS, padded), LOSER)
    best = BEST + STEP * max(0, count - WINNERS_BELOW_BEST)
    places = np.unique(np.linspace(0, experts - 1, count).round().astype(int))
    for token, tie in enumerate((top_k - 1 if top_k > 1 else 1, 0, top_k)):
        levels = best - STEP * np.arange(count)
        if tie + 1 < count:
            levels[tie + 1] = levels[tie]
        order = rng.permutation(places[:-1])
        # The last expert is the best of the first token, anywhere in the others.
        at = 0 if token == 0 else int(rng.integers(count))
        values[token, np.insert(order, at, places[-1])] = levels
    logits = bf16.round_to_bf16(values)
    garbage = bf16.round_to_bf16(np.array([np.nan, np.inf, 1000.0, 9.0]))
    logits[:, experts:] = np.resize(garbage, padded - experts)
    indices = np.array([rank(row[:experts], top_k) for row in logits])
    weights = [topk_weights(row[chosen]) for row, chosen in zip(logits, indices, strict=True)]
    return PolicyData(logits=logits, indices=indices, weights=np.array(weights, bf16.BF16))


def softmax_problems(data: PolicyData) -> list[str]:
    """Weights that are further than one BF16 ulp from the softmax in float64 (numerics.md)."""
    chosen = np.take_along_axis(data.logits, data.indices, axis=1).astype(np.float64)
    terms = np.exp(chosen - chosen.max(axis=1, keepdims=True))
    exact = terms / terms.sum(axis=1, keepdims=True)
    ulps = np.abs(data.weights.astype(np.float64) - exact) / np.exp2(np.floor(np.log2(exact)) - 7)
    return [
        f"token {token}, rank {rank}: weight {ulps[token, rank]:.2f} ulp from the softmax"
        for token, rank in np.argwhere(ulps > 1).tolist()
    ]


def encoding_problems(program: SelectionProgram) -> list[str]:
    """What is wrong with the words: which encoding was emitted, and every word of the selection.

    Written from isa.md: rmask 0 is exactly 32/4 and rmask 1 exactly 128/8, without a policy
    register, so that programs of these shapes stay byte-identical; every other shape loads the
    packed policy once and uses rmask 15.
    """
    wanted = _wanted(program)
    got = [Instruction.decode(word).text() for word in program.image.words.tolist()]
    if got == wanted:
        return []
    differences = [
        f"word {pc}: {a} instead of {b}"
        for pc, (a, b) in enumerate(zip(got, wanted, strict=False))
        if a != b
    ]
    if len(got) != len(wanted):
        differences.append(f"{len(got)} words instead of {len(wanted)}")
    shape = f"{program.top_k} of {program.experts}"
    return [f"encoding of {shape}: {difference}" for difference in differences[:5]]


def _wanted(program: SelectionProgram) -> list[str]:
    weight, row, index, policy = 1, 2, 3, 4
    experts, top_k, mlen = program.experts, program.top_k, program.config.MLEN
    fixed = {shape: rmask for rmask, shape in FIXED_SHAPES.items()}
    rmask = fixed.get((experts, top_k), FROM_REGISTER)
    lines: list[Instruction] = []
    for token in range(program.tokens):
        first_row = program.logits.base + token * program.blocks * mlen
        lines += _loaded(weight, program.weights.start + token * top_k)
        lines += _loaded(row, first_row)
        lines += _loaded(index, program.indices.start + token * top_k)
        if token == 0 and rmask == FROM_REGISTER:
            lines += _loaded(policy, pack_policy(experts, top_k))
            lines.append(Instruction.make("C_SET_TOPK_REG", policy))
        lines.append(Instruction.make("V_TOPK", weight, row, index, rmask))
    return [line.text() for line in lines]


def _loaded(register: int, value: int) -> list[Instruction]:
    """A constant in a register: one S_ADDI_INT up to its limit, else S_LUI_INT and the rest."""
    if value <= FIELDS["imm18"].limit:
        return [Instruction.make("S_ADDI_INT", register, 0, value)]
    upper, lower = divmod(value, 1 << 12)
    rest = [Instruction.make("S_ADDI_INT", register, register, lower)] if lower else []
    return [Instruction.make("S_LUI_INT", register, upper), *rest]


def policy_program(config: PlenaConfig, experts: int, top_k: int) -> SelectionProgram:
    """The selection of all tokens of a workload; CompileError for a shape that cannot be."""
    return compile_selection(config, experts, top_k, tokens=TOKENS)
