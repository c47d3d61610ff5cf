"""The shared-expert program against the bit-exact reference, run by a small interpreter."""

import itertools

import numpy as np
import pytest

from compiler import (
    ARCHITECTURES,
    CompileError,
    Order,
    SharedExpertProgram,
    SharedExpertSpec,
    compile_shared_expert,
    fuse_weights,
)
from isa import BRANCH_OF, PRESETS, Branch, PlenaConfig, Stage, assemble
from sim.numerics import bf16, mx
from testbench.reference.data import SharedExpertData, assert_not_saturated, shared_expert_data
from testbench.reference.shared_expert import SharedExpertResult, combine, shared_expert
from tests.compiler.host import UNTOUCHED, read_matrix, read_tensor, run_shared
from tests.compiler.interpreter import Interpreter

TINY, SMALL, DEFAULT = PRESETS["tiny"], PRESETS["small"], PRESETS["default"]
ROWS = (1, 3, 4, 5, 8, 12)
SHAPES = tuple(itertools.product((1, 2, 3), repeat=2))


def spec_of(config: PlenaConfig, arch: str, hidden: int, inter: int, **options) -> SharedExpertSpec:
    mlen = config.MLEN
    return SharedExpertSpec.of(arch, hidden=hidden * mlen, intermediate=inter * mlen, **options)


def data_for(spec: SharedExpertSpec, rows: int, **options) -> SharedExpertData:
    return shared_expert_data(
        rows, spec.hidden, spec.width, gated=spec.gated, biased=spec.biases, seed=rows, **options
    )


def expected(program: SharedExpertProgram, data: SharedExpertData) -> SharedExpertResult:
    seen = data.through_mx()
    return shared_expert(
        seen.x,
        seen.w_gate,
        seen.w_up,
        seen.w_down,
        mlen=program.config.MLEN,
        k_chunk_tiles=program.k_chunk_tiles,
        biases=seen.biases,
        gate_weight=seen.gate_weight,
    )


def equal(got: np.ndarray, want: np.ndarray) -> bool:
    return np.array_equal(bf16.canonical_bits(got), bf16.canonical_bits(want))


def check(program: SharedExpertProgram, data: SharedExpertData) -> Interpreter:
    """Run from a true-zero accumulator and compare every value that is left, bit for bit."""
    machine = run_shared(program, data)
    want = expected(program, data)
    assert equal(read_matrix(machine, program.vram["activation"]), want.activation)
    assert equal(read_matrix(machine, program.vram["output"]), want.output)
    total = combine(bf16.round_to_bf16(np.zeros(want.output.shape)), want.output)
    assert equal(read_matrix(machine, program.vram["accumulator"]), total)
    assert equal(read_tensor(machine, program.hbm["out"]), mx.round_trip(total))
    if program.gate_scalars is not None:
        slots = program.gate_scalars
        assert equal(machine.fp_mem[slots.start : slots.end], want.gate_scalars)
        assert_not_saturated(want.gate_scalars)
    assert machine.issued == program.issued.by_stage_and_mnemonic
    return machine


def balanced(arch: str) -> list[tuple[str, str, int, tuple[int, int]]]:
    """Both configurations with all row counts; every shape occurs for every architecture."""
    start = list(ARCHITECTURES).index(arch)
    cases = itertools.product((TINY, SMALL), ROWS)
    return [
        (arch, config.name, rows, SHAPES[(start + 2 * i) % len(SHAPES)])
        for i, (config, rows) in enumerate(cases)
    ]


@pytest.mark.parametrize(
    ("arch", "config", "rows", "shape"), [c for arch in ARCHITECTURES for c in balanced(arch)]
)
def test_every_architecture_is_bit_exact(
    arch: str, config: str, rows: int, shape: tuple[int, int]
) -> None:
    spec = spec_of(PRESETS[config], arch, *shape)
    check(compile_shared_expert(PRESETS[config], spec, rows=rows), data_for(spec, rows))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", ROWS)
def test_gate_biases_and_k_split_together(rows: int, shape: tuple[int, int]) -> None:
    spec = spec_of(TINY, "qwen2", *shape, biases=True)
    program = compile_shared_expert(TINY, spec, rows=rows, cap=1 + rows % 2)
    assert program.k_chunk_tiles == 1 + rows % 2
    check(program, data_for(spec, rows))


@pytest.mark.parametrize("arch", ["qwen2", "kimi"])
def test_default_preset_and_row_major_weights(arch: str) -> None:
    spec = spec_of(DEFAULT, arch, 1, 1)
    for rows, order in ((8, Order.ROWS), (23, Order.TILES)):
        program = compile_shared_expert(DEFAULT, spec, rows=rows, weight_order=order)
        check(program, data_for(spec, rows))


def test_general_random_data_goes_through_the_mx_conversion() -> None:
    spec = spec_of(TINY, "qwen2", 2, 3)
    program = compile_shared_expert(TINY, spec, rows=5)
    check(program, data_for(spec, 5, kind="random"))


@pytest.mark.parametrize(
    "amounts", [(1, 1), (2, 8), (3, 3), (8, 2), (8, 5), (6, 1)], ids=lambda a: f"{a[0]}in{a[1]}out"
)
@pytest.mark.parametrize("rows", [1, 5, 13])
def test_prefetch_and_writeback_amounts(amounts: tuple[int, int], rows: int) -> None:
    config = TINY.replace(HBM_V_PREFETCH=amounts[0], HBM_V_WRITEBACK=amounts[1])
    spec = spec_of(config, "llama4", 3, 1)
    check(compile_shared_expert(config, spec, rows=rows), data_for(spec, rows))


@pytest.mark.parametrize("rows", [4, 5, 7, 9])
def test_rows_past_the_last_one_are_untouched(rows: int) -> None:
    spec = spec_of(TINY, "qwen2", 2, 1)
    program = compile_shared_expert(TINY, spec, rows=rows)
    machine = check(program, data_for(spec, rows))
    out = program.hbm["out"]
    start, scale = rows * out.cols, out.cols // out.block
    elements = machine.hbm[out.base + start : out.base + out.elements]
    scales = machine.hbm[out.base + out.scale_offset + rows * scale : out.base + out.extent]
    assert set(elements) | set(scales) <= {UNTOUCHED}
    accumulator = program.vram["accumulator"]
    padded = range(rows, accumulator.physical_rows)
    pads = [accumulator.row_address(r) // TINY.MLEN for r in padded]
    assert all(not bf16.to_bits(machine.vram[row]).any() for row in pads)


def test_one_row_stores_its_pad_rows_as_zeros() -> None:
    spec = spec_of(TINY, "kimi", 1, 1)
    program = compile_shared_expert(TINY, spec, rows=1)
    machine = check(program, data_for(spec, 1))
    out = program.hbm["out"]
    assert not any(machine.hbm[out.base + out.cols : out.base + out.elements])


def test_routed_accumulator_is_added_to_and_never_cleared() -> None:
    spec = spec_of(TINY, "qwen2", 2, 2)
    program = compile_shared_expert(TINY, spec, rows=5, routed_accumulator=True)
    data = data_for(spec, 5)
    routed = data_for(spec, 5, kind="random").x
    machine = run_shared(program, data, routed)
    total = combine(routed, expected(program, data).output)
    assert equal(read_matrix(machine, program.vram["accumulator"]), total)
    assert equal(read_tensor(machine, program.hbm["out"]), mx.round_trip(total))
    assert "accumulator_init" not in program.image.stage_counts()
    assert program.preloaded == ("accumulator", "gate_row")


def test_the_same_program_twice_gives_the_same() -> None:
    spec = spec_of(TINY, "qwen2", 2, 3)
    program = compile_shared_expert(TINY, spec, rows=5, cap=1)
    data = data_for(spec, 5)
    machine = run_shared(program, data)
    first = read_tensor(machine, program.hbm["out"])
    machine.scale, machine.stride, machine.a = 12345, 7, [99] * 8
    machine.run(program.image)
    assert equal(read_tensor(machine, program.hbm["out"]), first)


def test_combine_with_true_zero_is_the_shared_output() -> None:
    spec = spec_of(SMALL, "deepseek", 1, 1)
    program = compile_shared_expert(SMALL, spec, rows=8)
    machine = run_shared(program, data_for(spec, 8))
    out, acc = (read_matrix(machine, program.vram[n]) for n in ("output", "accumulator"))
    positive_zero = np.where(out == 0, bf16.round_to_bf16(0.0), out)
    assert equal(acc, positive_zero)


def test_fusion_is_columns_for_gate_and_up_and_rows_for_down() -> None:
    rng = np.random.default_rng(0)
    gates, ups = rng.normal(size=(2, 2, 8, 16))
    downs = rng.normal(size=(2, 16, 8))
    gate, up, down = fuse_weights(list(gates), list(ups), list(downs))
    assert (gate.shape, up.shape, down.shape) == ((8, 32), (8, 32), (32, 8))
    x = rng.normal(size=(3, 8))
    one_by_one = sum((x @ g * (x @ u)) @ d for g, u, d in zip(gates, ups, downs, strict=True))
    np.testing.assert_allclose((x @ gate * (x @ up)) @ down, one_by_one)
    with pytest.raises(CompileError, match=r"fuse_weights: gates \[\(8, 16\)\], ups .* must be n"):
        fuse_weights([gates[0]], [ups[0]], [gates[0]])


# Stages.


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("routed", [False, True])
def test_exactly_the_declared_stages_have_instructions(arch: str, routed: bool) -> None:
    spec = spec_of(TINY, arch, 1, 1)
    program = compile_shared_expert(TINY, spec, rows=5, routed_accumulator=routed)
    counts = program.image.stage_counts()
    assert list(counts) == [stage.label for stage in program.stages_present]
    assert ("shared_expert_gate" in counts) == (arch == "qwen2")
    routed_stages = {s.label for s in Stage if BRANCH_OF[s] is Branch.ROUTED}
    assert not routed_stages & counts.keys()
    assert (program.image.pairs == -1).all()
    assert not program.image.unresolved_stage_markers


def test_markers_follow_the_emit_order_of_the_page() -> None:
    program = compile_shared_expert(TINY, spec_of(TINY, "qwen2", 1, 1), rows=5)
    markers = [line[9:] for line in program.image.source if line.startswith("; @stage=")]
    assert markers == [
        "residual_setup load x",
        "accumulator_init zero accumulator",
        "shared_expert_projection gate and up",
        "shared_expert_activation standard_swiglu activation",
        "shared_expert_projection down",
        "shared_expert_gate row=0 and up to row 3, 4 at a time",
        "shared_expert_gate row=4 and up to row 4",
        "scatter_combine accumulator += output",
        "non_moe end of the MoE region",
    ]


def test_the_marker_above_each_instruction() -> None:
    program = compile_shared_expert(
        SMALL, spec_of(SMALL, "qwen2", 3, 3, biases=True), rows=12, cap=2
    )
    by_mnemonic: dict[str, set[str]] = {}
    for stage, mnemonic in program.issued.by_stage_and_mnemonic:
        by_mnemonic.setdefault(mnemonic, set()).add(stage)
    assert by_mnemonic["M_MM"] == by_mnemonic["M_MM_WO"] == {"shared_expert_projection"}
    assert by_mnemonic["H_PREFETCH_M"] == {"shared_expert_projection"}
    assert by_mnemonic["H_PREFETCH_V"] == {"residual_setup"}
    assert by_mnemonic["H_STORE_V"] == {"non_moe"}
    assert by_mnemonic["V_RED_SUM"] == {"shared_expert_gate"}
    assert by_mnemonic["V_RECI_V"] == {"shared_expert_activation"}
    assert by_mnemonic["S_MAP_V_FP"] == {"accumulator_init"}


@pytest.mark.parametrize("rows", [1, 4, 5, 8])
def test_the_gate_bills_nothing_to_other_stages(rows: int) -> None:
    gated = compile_shared_expert(TINY, spec_of(TINY, "qwen2", 2, 1), rows=rows).issued
    plain = compile_shared_expert(TINY, spec_of(TINY, "kimi", 2, 1), rows=rows).issued
    gate = gated.of(label="shared_expert_gate")
    assert gate > 0
    assert gated.by_stage == plain.by_stage | {"shared_expert_gate": gate}


# Size and speed.


@pytest.mark.parametrize("arch", ["qwen2", "deepseek"])
def test_text_is_deterministic_and_assembles_to_the_same_image(arch: str) -> None:
    spec = spec_of(TINY, arch, 2, 1)
    one, two = (compile_shared_expert(TINY, spec, rows=5) for _ in range(2))
    assert one.image == two.image
    again = assemble("\n".join(one.image.source), config=TINY)
    assert again.words.tolist() == one.image.words.tolist()
    assert again.stages.tolist() == one.image.stages.tolist()
    one.image.check_config(TINY)


@pytest.mark.parametrize(("rows", "products", "slots"), [(64, 768, 3.25), (8, 96, 3.2)])
def test_the_multipliers_stay_busy(rows: int, products: int, slots: float) -> None:
    program = compile_shared_expert(DEFAULT, spec_of(DEFAULT, "qwen2", 1, 1), rows=rows)
    stage = "shared_expert_projection"
    assert program.issued.of(label=stage, mnemonic="M_MM") == products
    assert program.issued.of(label=stage, mnemonic="H_PREFETCH_M") == 3
    assert program.issued.of(label=stage) <= slots * products


@pytest.mark.parametrize("rows", [1, 4, 5, 8, 12, 16, 24, 64])
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5, 8, 9])
def test_issue_slots_per_product_stay_below_the_matrix_unit(rows: int, tiles: int) -> None:
    config = DEFAULT.replace(VRAM_ROWS=8192)
    program = compile_shared_expert(config, spec_of(config, "kimi", tiles, 1), rows=rows)
    stage = "shared_expert_projection"
    products = program.issued.of(label=stage, mnemonic="M_MM")
    assert program.issued.of(label=stage) < DEFAULT.BLEN * products


def test_code_size_does_not_follow_the_width() -> None:
    config = DEFAULT.replace(VRAM_ROWS=16384)
    qwen = SharedExpertSpec.of("qwen2", hidden=2048, intermediate=5632)
    program = compile_shared_expert(config, qwen, rows=4)
    assert len(program.image) < 16384
    assert program.issued.of(mnemonic="M_MM") == 3 * 32 * 88 * 16
    assert program.issued.of(mnemonic="H_PREFETCH_M") == 3 * 32 * 88
