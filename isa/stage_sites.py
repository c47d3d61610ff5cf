"""Where stages are marked: the call sites of stage-taking emitters, by file and number.

`isa.stage_lint` compares it with the source, so that a site that is lost is noticed, and a search
that finds nothing too. `python -m isa.stage_lint --pins` prints the table of today's source.
"""

#: Path relative to the root of the project, and calls in that file.
SITES: dict[str, int] = {
    "compiler/activation.py": 1,
    "compiler/elementwise.py": 2,
    "compiler/expert_table.py": 2,
    "compiler/gate.py": 2,
    "compiler/moe_layer.py": 3,
    "compiler/program.py": 1,
    "compiler/routed_device.py": 16,
    "compiler/routed_expert.py": 10,
    "compiler/routed_experts.py": 7,
    "compiler/routed_pairs.py": 5,
    "compiler/routed_program.py": 1,
    "compiler/router.py": 1,
    "compiler/router_program.py": 1,
    "compiler/shared_expert.py": 3,
    "compiler/shared_program.py": 2,
    "testbench/routed_parts.py": 6,
}
