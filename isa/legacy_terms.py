"""The terms that the legacy rules look for in comments (attribution.md, "Legacy rules").

Data only, for reports on which terms a program uses; the rules combine them in ways that a list
cannot say.
"""

#: Lower case, unique, in the order in which the rules first name them.
LEGACY_TERMS: tuple[str, ...] = (
    "gpt-oss router",  # 1: router_topk
    "router token",
    "router dot token",
    "gpt-oss vram scatter-add",  # 2: scatter_combine
    "_scatter",
    "allocate vram matrix step6_pair",  # 3, 6, 8, 12
    "_route",  # 3: expert_route_weight
    "materialize route weight",  # 4: expert_route_weight
    "true-zero vram rows",  # 4, 5
    "step6_device_routing_acc",  # 5: accumulator_init
    "gpt-oss gather token rows",  # 6: gather
    "gather pair",
    "clear gather padding",
    "_gather",  # 6, 12
    "dynamic expert bias add",  # 7: expert_bias
    "_sigmoid",  # 8: expert_activation
    "tile row min fp",  # 9: expert_activation
    "tile row max fp",
    "vram fill zero",
    "vram matrix add",
    "vram matrix mul",
    "dynamic hbm weight prefetch",  # 10: expert_weight_address
    "expert_id_to_weight_base",
    "subblock [",  # 11: expert_weight_prefetch
    "sub projection",  # 12: expert_projection
    "vram block add",
    "vram block",
)
