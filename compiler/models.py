"""The mixture-of-experts layers of public models, as data.

A model's values are those of its public config.json; `sources` names the key of each. What the
configuration does not say is fixed by the model's modeling class (Hugging Face transformers), which
is then named instead.
"""

from collections.abc import Mapping

from compiler.errors import unknown_name
from compiler.moe_model import Activation, MoeModel, SharedBranch
from compiler.router_rule import GroupScore, RouterRule, Scores

_SIZES = {"top_k": "num_experts_per_tok", "hidden": "hidden_size"}
_SILU = {"activation": "hidden_act"}
_NO_BIASES = {"expert_biases": "none in the experts of the modeling class"}

_MIXTRAL = {
    **_SIZES,
    **_SILU,
    **_NO_BIASES,
    "experts": "num_local_experts",
    "intermediate": "intermediate_size",
    "rule": "MixtralSparseMoeBlock: softmax, top-k, divided by the sum",
    "shared": "none in MixtralSparseMoeBlock",
}
_GPT_OSS = {
    **_SIZES,
    "experts": "num_local_experts",
    "intermediate": "intermediate_size",
    "rule": "GptOssTopKRouter: biased logits, top-k, softmax over the selected",
    "activation": "swiglu_limit; alpha 1.702 in GptOssExperts",
    "expert_biases": "GptOssExperts: gate_up_proj_bias, down_proj_bias",
    "shared": "none in GptOssMLP",
}
_QWEN = {
    **_SIZES,
    **_SILU,
    **_NO_BIASES,
    "experts": "num_experts",
    "intermediate": "moe_intermediate_size",
    "rule": "norm_topk_prob, after a softmax over all",
}
_QWEN_SHARED = {
    **_QWEN,
    "shared": "shared_expert_intermediate_size; gate: shared_expert_gate in the sparse block",
}
_DEEPSEEK = {
    **_SIZES,
    **_SILU,
    **_NO_BIASES,
    "experts": "n_routed_experts",
    "intermediate": "moe_intermediate_size",
    "rule": "scoring_func, topk_method, norm_topk_prob, routed_scaling_factor, n_group, topk_group",
    "shared": "n_shared_experts; width moe_intermediate_size * n_shared_experts",
}
_GLM = {
    **_DEEPSEEK,
    "rule": "norm_topk_prob, routed_scaling_factor, n_group, topk_group; sigmoid and "
    "e_score_correction_bias: Glm4MoeTopkRouter",
}
_LLAMA4 = {
    **_NO_BIASES,
    "experts": "text_config.num_local_experts",
    "top_k": "text_config.num_experts_per_tok",
    "hidden": "text_config.hidden_size",
    "intermediate": "text_config.intermediate_size",
    "rule": "Llama4TextMoe: sigmoid of the selected logit times the expert's input",
    "activation": "text_config.hidden_act",
    "shared": "text_config.intermediate_size: the shared_expert of Llama4TextMoe",
}

_GPT_OSS_RULE = RouterRule(scores=Scores.SELECTED_SOFTMAX, bias=True)
_RENORMALISED = RouterRule(scores=Scores.SOFTMAX, renormalised=True)
_LLAMA4_RULE = RouterRule(scores=Scores.SIGMOID, on_input=True)


def _corrected(
    factor: float, groups: int = 1, kept: int = 1, score: GroupScore | None = None
) -> RouterRule:
    """Sigmoid scores, chosen with a correction bias, renormalised (topk_method noaux_tc)."""
    return RouterRule(
        scores=Scores.SIGMOID,
        renormalised=True,
        factor=factor,
        correction_bias=True,
        groups=groups,
        kept_groups=kept,
        group_score=score,
    )


_ROWS = (
    MoeModel(
        name="gpt-oss-20b",
        title="GPT-OSS 20b",
        checkpoint="openai/gpt-oss-20b",
        experts=32,
        top_k=4,
        hidden=2880,
        intermediate=2880,
        rule=_GPT_OSS_RULE,
        activation=Activation.GPT_OSS_CLAMP_GATED,
        expert_biases=True,
        sources=_GPT_OSS,
    ),
    MoeModel(
        name="gpt-oss-120b",
        title="GPT-OSS 120b",
        checkpoint="openai/gpt-oss-120b",
        experts=128,
        top_k=4,
        hidden=2880,
        intermediate=2880,
        rule=_GPT_OSS_RULE,
        activation=Activation.GPT_OSS_CLAMP_GATED,
        expert_biases=True,
        sources=_GPT_OSS,
    ),
    MoeModel(
        name="mixtral-8x7b",
        title="Mixtral 8x7B",
        checkpoint="mistralai/Mixtral-8x7B-v0.1",
        experts=8,
        top_k=2,
        hidden=4096,
        intermediate=14336,
        rule=_RENORMALISED,
        sources=_MIXTRAL,
    ),
    MoeModel(
        name="qwen3-30b-a3b",
        title="Qwen3-30B-A3B",
        checkpoint="Qwen/Qwen3-30B-A3B",
        experts=128,
        top_k=8,
        hidden=2048,
        intermediate=768,
        rule=_RENORMALISED,
        sources={**_QWEN, "shared": "none in Qwen3MoeSparseMoeBlock"},
    ),
    MoeModel(
        name="qwen3-next-80b-a3b",
        title="Qwen3-Next-80B-A3B",
        checkpoint="Qwen/Qwen3-Next-80B-A3B-Instruct",
        experts=512,
        top_k=10,
        hidden=2048,
        intermediate=512,
        rule=_RENORMALISED,
        shared=SharedBranch(count=1, width=512, gated=True),
        sources=_QWEN_SHARED,
    ),
    MoeModel(
        name="qwen2-moe-a14b",
        title="Qwen2-57B-A14B",
        checkpoint="Qwen/Qwen2-57B-A14B",
        experts=64,
        top_k=8,
        hidden=3584,
        intermediate=2560,
        rule=RouterRule(scores=Scores.SOFTMAX),
        shared=SharedBranch(count=1, width=20480, gated=True),
        sources=_QWEN_SHARED,
    ),
    MoeModel(
        name="deepseek-v2-lite",
        title="DeepSeek-V2-Lite",
        checkpoint="deepseek-ai/DeepSeek-V2-Lite",
        experts=64,
        top_k=6,
        hidden=2048,
        intermediate=1408,
        rule=RouterRule(scores=Scores.SOFTMAX),
        shared=SharedBranch(count=2, width=2 * 1408, gated=False),
        sources=_DEEPSEEK,
    ),
    MoeModel(
        name="deepseek-v2",
        title="DeepSeek-V2",
        checkpoint="deepseek-ai/DeepSeek-V2",
        experts=160,
        top_k=6,
        hidden=5120,
        intermediate=1536,
        rule=RouterRule(
            scores=Scores.SOFTMAX,
            factor=16.0,
            groups=8,
            kept_groups=3,
            group_score=GroupScore.MAXIMUM,
        ),
        shared=SharedBranch(count=2, width=2 * 1536, gated=False),
        sources=_DEEPSEEK,
    ),
    MoeModel(
        name="deepseek-v3",
        title="DeepSeek-V3",
        checkpoint="deepseek-ai/DeepSeek-V3",
        experts=256,
        top_k=8,
        hidden=7168,
        intermediate=2048,
        rule=_corrected(2.5, groups=8, kept=4, score=GroupScore.TOP_TWO_SUM),
        shared=SharedBranch(count=1, width=2048, gated=False),
        sources=_DEEPSEEK,
    ),
    MoeModel(
        name="kimi-k2",
        title="Kimi K2",
        checkpoint="moonshotai/Kimi-K2-Instruct",
        experts=384,
        top_k=8,
        hidden=7168,
        intermediate=2048,
        rule=_corrected(2.827),
        shared=SharedBranch(count=1, width=2048, gated=False),
        sources=_DEEPSEEK,
    ),
    MoeModel(
        name="glm-4.5",
        title="GLM-4.5",
        checkpoint="zai-org/GLM-4.5",
        experts=160,
        top_k=8,
        hidden=5120,
        intermediate=1536,
        rule=_corrected(2.5),
        shared=SharedBranch(count=1, width=1536, gated=False),
        sources=_GLM,
    ),
    MoeModel(
        name="glm-4.5-air",
        title="GLM-4.5-Air",
        checkpoint="zai-org/GLM-4.5-Air",
        experts=128,
        top_k=8,
        hidden=4096,
        intermediate=1408,
        rule=_corrected(1.0),
        shared=SharedBranch(count=1, width=1408, gated=False),
        sources=_GLM,
    ),
    MoeModel(
        name="llama4-scout",
        title="Llama-4 Scout",
        checkpoint="meta-llama/Llama-4-Scout-17B-16E",
        experts=16,
        top_k=1,
        hidden=5120,
        intermediate=8192,
        rule=_LLAMA4_RULE,
        shared=SharedBranch(count=1, width=8192, gated=False),
        sources=_LLAMA4,
    ),
    MoeModel(
        name="llama4-maverick",
        title="Llama-4 Maverick",
        checkpoint="meta-llama/Llama-4-Maverick-17B-128E",
        experts=128,
        top_k=1,
        hidden=5120,
        intermediate=8192,
        rule=_LLAMA4_RULE,
        shared=SharedBranch(count=1, width=8192, gated=False),
        sources=_LLAMA4,
    ),
)

#: By the name that `--model` takes.
MODELS: Mapping[str, MoeModel] = {model.name: model for model in _ROWS}


def find_model(name: str) -> MoeModel:
    """The row called `name`; CompileError names the nearest and all names when there is none."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name]
