"""Shared experts that cannot be lowered: each error names field, value, rule and way out."""

import dataclasses

import numpy as np
import pytest

from compiler import (
    CompileError,
    Program,
    SharedExpertSpec,
    compile_shared_expert,
)
from compiler.gate import sigmoid_gate
from compiler.shared_expert import SharedExpertParameters
from isa import PRESETS, PlenaConfig
from tests.compiler.test_compiler_shared_expert import check, data_for, spec_of

TINY, SMALL, DEFAULT = PRESETS["tiny"], PRESETS["small"], PRESETS["default"]


def refused(config: PlenaConfig, spec: SharedExpertSpec, rows: int, **options) -> str:
    with pytest.raises(CompileError) as error:
        compile_shared_expert(config, spec, rows=rows, **options)
    return str(error.value)


def test_shape_errors_name_field_value_rule_and_way_out() -> None:
    good = spec_of(DEFAULT, "kimi", 1, 1)
    assert refused(DEFAULT, dataclasses.replace(good, hidden=100), 4) == (
        "hidden = 100: must be a positive multiple of MLEN = 64 "
        "(pad the tensors with zeros to 128, or use a configuration with another MLEN)"
    )
    assert refused(DEFAULT, dataclasses.replace(good, intermediate=65), 4).startswith(
        "intermediate = 65: must be a positive multiple of MLEN = 64"
    )
    fused = SharedExpertSpec.of("deepseek", hidden=64, intermediate=48)
    assert refused(DEFAULT, fused, 4).startswith(
        "intermediate * n_shared (2) = 96: must be a positive multiple of MLEN = 64"
    )
    assert refused(DEFAULT, good, 0) == (
        "rows = 0: must be at least 1 (leave the layer out of an empty batch)"
    )
    with pytest.raises(CompileError, match=r"intermediate = 0: must be at least 1"):
        dataclasses.replace(good, intermediate=0)


def test_half_width_experts_fuse_to_a_whole_tile() -> None:
    spec = SharedExpertSpec.of("deepseek", hidden=16, intermediate=8)
    assert spec.width == 16
    check(compile_shared_expert(SMALL, spec, rows=3), data_for(spec, 3))


def test_an_unknown_architecture_names_the_nearest() -> None:
    with pytest.raises(CompileError) as error:
        SharedExpertSpec.of("quen2", hidden=64, intermediate=64)
    assert str(error.value) == (
        "arch 'quen2': unknown; did you mean qwen2? (known: deepseek, qwen2, llama4, glm4, kimi)"
    )


def test_rows_beyond_vector_sram_name_both_numbers() -> None:
    assert refused(DEFAULT, spec_of(DEFAULT, "kimi", 1, 1), 1000) == (
        "vector SRAM: 'sigmoid' needs 1000 rows; 96 of 4096 are free, at most 96 in one run; "
        "held by: x 1000, accumulator 1000, gate 1000, activation 1000 "
        "(lower rows, or raise VRAM_ROWS)"
    )


def test_rows_beyond_fp_mem_name_both_numbers() -> None:
    config = DEFAULT.replace(FP_MEM_WORDS=128)
    assert refused(config, spec_of(config, "qwen2", 1, 1), 57) == (
        "FP_MEM: 'gate scalars' needs 57 slots; 56 of 128 are free, at most 56 in one run; "
        "held by: zero 1, one 1, minus_one 1, minus_infinity 1, clamp_limit 1, "
        "minus_clamp_limit 1, minus_alpha 1, alpha 1, zero row 64 "
        "(lower rows, or raise FP_MEM_WORDS)"
    )
    compile_shared_expert(config, spec_of(config, "qwen2", 1, 1), rows=56)


def test_a_program_beyond_instruction_memory_names_its_largest_emitters() -> None:
    config = DEFAULT.replace(IMEM_WORDS=500)
    text = refused(config, spec_of(config, "qwen2", 1, 1), 64)
    assert text == (
        "program 'shared_expert_qwen2_64x64x64': 602 words exceed IMEM_WORDS = 500; most words by "
        "emitter: standard_swiglu activation 143, zero_rows accumulator 83, "
        "linear_projection w_gate 67, linear_projection w_up 62, sigmoid_gate 58 "
        "(use fewer rows, or raise IMEM_WORDS)"
    )


def test_panel_and_prefetch_limits() -> None:
    spec = spec_of(DEFAULT, "kimi", 1, 1)
    assert refused(DEFAULT, spec, 4, cap=9) == (
        "cap = 9: two panels of cap tiles must fit MRAM_TILES = 16 (use 1 to 8)"
    )
    assert refused(DEFAULT.replace(HBM_M_PREFETCH=32), spec, 4) == (
        "HBM_M_PREFETCH = 32: must be MLEN = 64: H_PREFETCH_M starts at a tile, "
        "fewer rows leave a part (leave it out of the configuration)"
    )


def test_a_float16_array_is_refused_where_bf16_is_meant() -> None:
    program = compile_shared_expert(TINY, spec_of(TINY, "qwen2", 1, 1), rows=4)
    with pytest.raises(CompileError) as error:
        program.preload("gate_row", np.zeros((1, 8), np.float16))
    assert str(error.value) == (
        "gate_row of dtype float16: must be bfloat16, or uint16 patterns of it "
        "(round the values to BF16 first)"
    )


def test_a_gate_row_of_another_width_is_refused() -> None:
    prog = Program(TINY, "p")
    x, output = prog.vram.matrix("x", 4, 16), prog.vram.matrix("output", 4, 16)
    narrow = prog.vram.matrix("gate_row", 1, 8)
    with pytest.raises(CompileError) as error:
        sigmoid_gate(prog, x=x, gate_row=narrow, target=output, rows=4)
    assert str(error.value) == (
        "sigmoid gate: gate row gate_row is 8 wide, x x 16, output output 16: all must be H, or "
        "the gate would see a part of the logit (pass the [1, H] gate row of this layer)"
    )
    assert not prog.instructions


def test_parameters_are_those_that_the_spec_has() -> None:
    prog = Program(TINY, "p")
    weight = prog.hbm.tensor("w", 8, 8)
    parameters = SharedExpertParameters(w_gate=weight, w_up=weight, w_down=weight)
    parameters.check(spec_of(TINY, "kimi", 1, 1))
    with pytest.raises(CompileError, match="gated = True, biases = False, but gate_row given = F"):
        parameters.check(spec_of(TINY, "qwen2", 1, 1))
    with pytest.raises(CompileError, match="biases = True, but gate_row given = False, biases giv"):
        parameters.check(spec_of(TINY, "kimi", 1, 1, biases=True))
