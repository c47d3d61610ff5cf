"""The injected defects, as data: what each breaks, and the test that must notice."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """In `path`, `old`, which occurs exactly once, becomes `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Defect:
    """One defect: the edits that make it, and the smallest test that should notice (a pytest node
    id)."""

    name: str
    summary: str
    edits: tuple[Edit, ...]
    check: str


_SHARED = "tests/testbench/test_shared_moe.py::"
_DISPATCHER = "rtl/dispatch/dispatcher.py"
_LINT = "tests/isa/test_isa_stage_lint.py::test_the_project_names_every_stage"

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "markers_not_emitted",
        "the compiler writes no stage markers; the program falls back to the legacy rules",
        (
            Edit(
                "compiler/program.py",
                '_MARKER = "; @stage="',
                '_MARKER = "; "',
            ),
        ),
        f"{_SHARED}test_on_top_of_a_routed_accumulator[deepseek]",
    ),
    Defect(
        "gate_multiply_dropped",
        "the sigmoid gate is computed but never applied to the shared output",
        (Edit("compiler/gate.py", "        self._multiply(gates)\n", ""),),
        f"{_SHARED}test_on_top_of_a_routed_accumulator[qwen2]",
    ),
    Defect(
        "shared_marked_as_routed",
        "the down projection of the shared expert is marked as a routed projection",
        (
            Edit(
                "compiler/shared_expert.py",
                'prog.stage("shared_expert_projection", "down")',
                'prog.stage("expert_projection", "down")',
            ),
        ),
        f"{_SHARED}test_on_top_of_a_routed_accumulator[deepseek]",
    ),
    Defect(
        "stage_typo",
        "a stage name is misspelt where it is emitted",
        (
            Edit(
                "compiler/elementwise.py",
                'prog.stage("scatter_combine",',
                'prog.stage("scater_combine",',
            ),
        ),
        f"{_SHARED}test_on_top_of_a_routed_accumulator[deepseek]",
    ),
    Defect(
        "stage_typo_in_argument",
        "a stage name is misspelt where a helper is told its stage",
        (
            Edit(
                "compiler/shared_program.py",
                'stage="accumulator_init"',
                'stage="acumulator_init"',
            ),
        ),
        _LINT,
    ),
    Defect(
        "call_site_removed",
        "the marker above the down projection is gone: it stays in the activation's stage",
        (
            Edit(
                "compiler/shared_expert.py",
                '    prog.stage("shared_expert_projection", "down")\n',
                "",
            ),
        ),
        _LINT,
    ),
    Defect(
        "stage_default",
        "a helper marks a stage that its caller did not name",
        (
            Edit(
                "compiler/elementwise.py",
                "target: VramMatrix, *, stage: Stage | str, rows: int) -> None:",
                'target: VramMatrix, *, stage: Stage | str = "gather", rows: int) -> None:',
            ),
        ),
        _LINT,
    ),
    Defect(
        "topk_packing_shift",
        "the number of experts is packed at bit 7 of the policy instead of bit 8",
        (Edit("isa/topk.py", "TOP_K_BITS = 8\n", "TOP_K_BITS = 7\n"),),
        "tests/sim/test_machine_topk.py::test_shapes",
    ),
    Defect(
        "topk_reads_128",
        "V_TOPK reads at most 128 logits, however many experts there are",
        (
            Edit(
                "rtl/topk/unit.py",
                "final_expert.eq(expert + 1 == job.num_experts),",
                "final_expert.eq((expert + 1 == job.num_experts) | (expert == 127)),",
            ),
        ),
        "tests/rtl/test_unit_topk.py::test_shapes[256-8]",
    ),
    Defect(
        "guard_unwired",
        "continuous integration no longer checks types",
        (Edit(".ci/run", "make types\n", ""),),
        "tests/isa/test_isa_guards.py::test_continuous_integration_runs_every_guard",
    ),
    Defect(
        "lint_unwired",
        "make lint no longer looks at the stage arguments",
        (Edit("Makefile", "\t$(RUN) -m isa.stage_lint\n", ""),),
        "tests/isa/test_isa_guards.py::test_continuous_integration_runs_every_guard",
    ),
    Defect(
        "legacy_clause_lost",
        "zeroing in the route weight's stage is taken for the accumulator's",
        (
            Edit(
                "isa/legacy_rules.py",
                "            *_any(_TRUE_ZERO, within=Stage.EXPERT_ROUTE_WEIGHT),\n",
                "",
            ),
        ),
        "tests/isa/test_isa_legacy_rules.py",
    ),
    Defect(
        "unclassified_stage",
        "a stage of the vocabulary belongs to no branch",
        (Edit("isa/stages.py", "    Stage.SHARED_EXPERT_GATE: Branch.SHARED,\n", ""),),
        "tests/isa/test_isa_stages.py",
    ),
    Defect(
        "tag_dropped_in_dispatcher",
        "the dispatcher loses the tag: every instruction is `other`",
        (Edit(_DISPATCHER, "stage.eq(fetched.stage),", "stage.eq(Stage.OTHER),"),),
        f"{_SHARED}test_on_top_of_a_routed_accumulator[deepseek]",
    ),
    Defect(
        "tag_off_by_one",
        "every instruction carries the tag of the one before it",
        (
            Edit(_DISPATCHER, "stage.eq(fetched.stage),", "stage.eq(late_stage),"),
            Edit(
                _DISPATCHER,
                "        front = Front(self.pc, word, stage,",
                "        late_stage = Signal(Stage)\n"
                "        m.d.sync += late_stage.eq(fetched.stage)\n"
                "        front = Front(self.pc, word, stage,",
            ),
        ),
        f"{_SHARED}test_on_top_of_a_routed_accumulator[deepseek]",
    ),
    Defect(
        "counter_counts_issue",
        "the completion counters count instructions when they are issued",
        (
            Edit(
                "rtl/top.py",
                'events[f"completed_{name}"] = (done[name].valid, done[name].tag.stage)',
                'events[f"completed_{name}"] = '
                '(self.hbm.issue.valid if name == "hbm" else done[name].valid, dispatch.stage)',
            ),
        ),
        "tests/sim/test_machine_control.py::test_a_memory_error_stops_the_machine_and_says_whether_it_is_precise",
    ),
    Defect(
        "completion_lost",
        "the vector unit never reports a completion, and the machine comes to a stand",
        (
            Edit(
                "rtl/vector/unit.py",
                "self.done.valid.eq(self.write.en),",
                "self.done.valid.eq(0),",
            ),
        ),
        "tests/sim/test_sim_deadlock.py::test_no_unit_keeps_an_instruction",
    ),
)
