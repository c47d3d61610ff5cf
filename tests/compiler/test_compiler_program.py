"""The program under construction: operands, registers, immediates, tracking, markers, the guide."""

import re
from pathlib import Path

import pytest

from compiler import CompileError, Program
from compiler.counts import count_issued
from compiler.immediates import (
    add_immediate,
    load_immediate,
    set_address,
    set_scale,
    set_stride,
)
from compiler.loops import loop
from compiler.registers import F0, GP0, Register
from isa import PRESETS, InstructionError, Stage
from isa.operands import Kind
from tests.compiler.interpreter import Interpreter

TINY = PRESETS["tiny"]


def lines(prog: Program) -> list[str]:
    return [line.strip() for line in prog.render().splitlines() if not line.startswith(";")]


def machine(prog: Program) -> Interpreter:
    interpreter = Interpreter(TINY, 64)
    interpreter.run(prog.build())
    return interpreter


# Operands.


def test_zero_operands_and_flags_are_filled_in() -> None:
    prog = Program(TINY, "p")
    with prog.gps("m", "v") as (m, v), prog.f("s") as s:
        prog.emit("M_MM", m, v)
        prog.emit("V_SUB_VF", m, v, s, rorder=1)
    assert lines(prog) == ["M_MM 0, gp1, gp2", "V_SUB_VF gp1, gp2, f1, 0, 1"]


def test_operands_are_typed() -> None:
    prog = Program(TINY, "p")
    with prog.gp("a") as a, prog.f("x") as x:
        for operands, flags, text in (
            (("V_EXP_V", a, x), {}, "operand rs1 must be a gp register, not f1"),
            (("V_EXP_V", a, 3), {}, "operand rs1 must be a gp register, not 3"),
            (("S_ADDI_INT", a, a, a), {}, "operand imm must be a number, not gp1"),
            (("V_EXP_V", a), {}, "operand rs1 is missing"),
            (("V_EXP_V", a, a, a), {}, "takes no operand or flag gp1"),
            (("V_EXP_V", a, a), {"rorder": 1}, "takes no operand or flag rorder"),
        ):
            with pytest.raises(CompileError, match=re.escape(text)):
                prog.emit(*operands, **flags)
        with pytest.raises(InstructionError, match="262144"):
            prog.emit("S_ADDI_INT", a, a, 262144)
        with pytest.raises(InstructionError, match="V_ADD_VV"):
            prog.emit("V_ADD_V", a, a)


# Registers.


def test_registers_return_to_the_pool_in_index_order() -> None:
    prog = Program(TINY, "p")
    with prog.gps("one", "two") as (one, two), prog.f("f") as f, prog.a("a") as a:
        assert [str(r) for r in (one, two, f, a)] == ["gp1", "gp2", "f1", "a0"]
    with prog.gp("three") as three:
        assert str(three) == "gp1"
    assert not prog.registers[Kind.GP].held


def test_running_out_names_every_holder() -> None:
    prog = Program(TINY, "p")
    names = [f"user {i}" for i in range(15)]
    with prog.gps(*names):
        with pytest.raises(CompileError) as error:
            with prog.gp("one more"):
                pass
    users = ", ".join(f"gp{i + 1} 'user {i}'" for i in range(15))
    assert str(error.value) == (
        f"gp register for 'one more': all 15 are held (release one first: {users})"
    )
    with pytest.raises(CompileError, match=r"f register for '7': all 7 are held"):
        with prog.fs(*map(str, range(8))):
            pass
    assert not prog.registers[Kind.F].held


def test_a_register_is_not_used_after_its_release() -> None:
    prog = Program(TINY, "p")
    with prog.gp("early") as early:
        pass
    with pytest.raises(CompileError, match=r"gp1 'early': used after its release; it is free"):
        prog.emit("S_ADDI_INT", early, GP0, 1)
    with prog.gp("late"):
        with pytest.raises(CompileError, match=r"it is held by 'late'"):
            prog.emit("S_ADDI_INT", early, GP0, 1)
    with pytest.raises(CompileError, match="used after its release"):
        prog.emit("S_ADDI_INT", Register(Kind.GP, 4, "made up"), GP0, 1)


def test_a_held_register_fails_the_build() -> None:
    prog = Program(TINY, "p")
    prog.registers[Kind.A].take("forgotten")
    with pytest.raises(CompileError, match=r"program 'p': registers still held: a0 'forgotten'"):
        prog.build()


# Immediates.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, ["S_ADDI_INT gp1, gp0, 0"]),
        (262143, ["S_ADDI_INT gp1, gp0, 262143"]),
        (262144, ["S_LUI_INT gp1, 64"]),
        (262145, ["S_LUI_INT gp1, 64", "S_ADDI_INT gp1, gp1, 1"]),
        (0xFFFFFFFF, ["S_LUI_INT gp1, 1048575", "S_ADDI_INT gp1, gp1, 4095"]),
    ],
)
def test_loading_a_constant(value: int, text: list[str]) -> None:
    prog = Program(TINY, "p")
    with prog.gp("r") as r:
        load_immediate(prog, r, value)
    assert lines(prog) == text
    assert machine(prog).gp[1] == value


def test_constants_out_of_range_are_refused() -> None:
    prog = Program(TINY, "p")
    with prog.gp("r") as r:
        for value in (-1, 1 << 32):
            with pytest.raises(CompileError, match=f"gp1 = {value}: a register holds 0 to"):
                load_immediate(prog, r, value)
        with pytest.raises(CompileError, match="immediates are unsigned"):
            add_immediate(prog, r, r, -4)


@pytest.mark.parametrize("value", [0, 1, 262143, 262144, 524287, 1 << 20])
@pytest.mark.parametrize("spare", ["named", "target", "free", "none"])
def test_adding_a_constant(value: int, spare: str) -> None:
    prog = Program(TINY, "p")
    with prog.gps("source", "other") as (source, other):
        load_immediate(prog, source, 1000)
        if spare == "named":
            add_immediate(prog, source, source, value, spare=other)
        elif spare == "target":
            add_immediate(prog, other, source, value)
        elif spare == "free":
            add_immediate(prog, source, source, value)
        else:
            with prog.gps(*(f"busy {i}" for i in range(13))):
                add_immediate(prog, source, source, value)
    text = lines(prog)[1:]
    assert machine(prog).gp[2 if spare == "target" else 1] == 1000 + value
    if value == 0:
        assert len(text) == (spare == "target")
    elif value < 1 << 18:
        assert len(text) == 1
    elif spare == "none":
        assert [t.split()[0] for t in text] == ["S_ADDI_INT"] * -(-value // 262143)
    else:
        assert text[-1].startswith("S_ADD_INT")


def test_the_spare_register_is_never_the_source() -> None:
    prog = Program(TINY, "p")
    with prog.gps("source", "target") as (source, target):
        with pytest.raises(CompileError, match="the spare register must not be the source gp1"):
            add_immediate(prog, target, source, 1 << 20, spare=source)


def test_addresses_have_both_words() -> None:
    prog = Program(TINY, "p")
    with prog.a("low") as low, prog.a("high") as high:
        set_address(prog, low, 64)
        set_address(prog, high, (3 << 32) + 128)
    assert lines(prog)[1] == "C_SET_ADDR_REG a0, gp0, gp1"
    assert machine(prog).a[:2] == [64, (3 << 32) + 128]


# Control registers and loops.


def test_control_registers_are_written_when_they_change() -> None:
    prog = Program(TINY, "p")
    set_scale(prog, 0)  # the reset value is not trusted: the program may run a second time
    set_scale(prog, 0)
    set_stride(prog, 8)
    set_scale(prog, 64)
    set_stride(prog, 8)
    names = [t.split()[0] for t in lines(prog) if t.startswith("C_")]
    assert names == ["C_SET_SCALE_REG", "C_SET_STRIDE_REG", "C_SET_SCALE_REG"]


def test_a_loop_restores_what_its_body_relied_on() -> None:
    prog = Program(TINY, "p")
    set_scale(prog, 1)
    set_stride(prog, 5)
    with prog.a("address") as address:
        set_address(prog, address, 64)
        with loop(prog, 3, "outer"):
            with loop(prog, 2, "inner"):
                set_scale(prog, 1)  # relied on from before both loops
                set_address(prog, address, 64)
                set_scale(prog, 2)
                set_address(prog, address, 128)
                set_stride(prog, 5)
            set_scale(prog, 1)
    text = [t for t in lines(prog) if not t.startswith("S_ADDI")]
    assert text == [
        "C_SET_SCALE_REG gp1",
        "C_SET_STRIDE_REG gp1",
        "C_SET_ADDR_REG a0, gp0, gp1",
        "C_LOOP_START gp1, 3",
        "C_LOOP_START gp2, 2",
        "C_SET_SCALE_REG gp3",
        "C_SET_ADDR_REG a0, gp0, gp3",
        "C_SET_SCALE_REG gp3",  # restored for the next iteration
        "C_SET_ADDR_REG a0, gp0, gp3",
        "C_LOOP_END gp2",
        "C_LOOP_END gp1",
    ]
    result = machine(prog)
    assert (result.scale, result.a[0], result.stride) == (1, 64, 5)


def test_an_address_register_is_unknown_to_its_next_holder() -> None:
    prog = Program(TINY, "p")
    for _ in range(2):
        with prog.a("address") as address:
            set_address(prog, address, 64)
    assert sum(t.startswith("C_SET_ADDR_REG") for t in lines(prog)) == 2


def test_loops_never_have_a_count_of_zero() -> None:
    prog = Program(TINY, "p")
    with pytest.raises(CompileError, match=r"loop 'rows': count 0 must be 1 to 4194303"):
        with loop(prog, 0, "rows"):
            pass
    with prog.gp("r") as r:
        with loop(prog, 1, "once"):
            prog.emit("S_ADDI_INT", r, r, 1)
        with loop(prog, 3, "outer"), loop(prog, 4, "inner"):
            prog.emit("S_ADDI_INT", r, r, 1)
    assert machine(prog).gp[1] == 13
    issued = count_issued(prog.build())
    assert issued.total == 1 + 1 + 3 * (1 + 4 * 2) + 3
    assert issued.of(label="other", mnemonic="C_LOOP_END") == 15


# Stages and accounting.


def test_markers_are_validated_when_they_are_emitted() -> None:
    prog = Program(TINY, "p")
    prog.stage("gather", "pair=3 from vector SRAM")
    prog.emit("C_BREAK")
    prog.stage(Stage.SHARED_EXPERT_GATE, "row=2")
    prog.emit("C_BREAK")
    prog.end_region()
    prog.emit("C_BREAK")
    image = prog.build()
    assert image.stage_counts() == {"gather": 1, "shared_expert_gate": 1, "non_moe": 1}
    assert image.pairs.tolist() == [3, -1, -1]
    with pytest.raises(CompileError, match="stage 'gahter' is not in the vocabulary"):
        prog.stage("gahter")
    for detail in ("pair=all", "two\nlines", "@stage=gather", "pair="):
        with pytest.raises(CompileError, match="one printable line"):
            prog.stage("gather", detail)
    with pytest.raises(CompileError, match="written by stage"):
        prog.comment("@stage=gather")


def test_woven_instructions_keep_their_order_and_their_stages() -> None:
    prog = Program(TINY, "woven")
    prog.stage("expert_projection", "outside")
    with prog.gp("a") as a:
        with prog.aside() as main:
            for number in range(6):
                prog.emit("S_ADDI_INT", a, GP0, number)
        with prog.aside() as side:
            prog.stage("expert_bias")
            prog.emit("S_ADDI_INT", a, GP0, 10)
            prog.stage("expert_activation", "inside")
            for number in range(11, 13):
                prog.emit("S_ADDI_INT", a, GP0, number)
        assert prog.instructions == ()
        prog.weave(main, side)
        prog.emit("S_ADDI_INT", a, GP0, 6)
    image = prog.build()
    stages = [image.vocabulary[stage] for stage in image.stages.tolist()]
    values = [int(instruction.value("imm")) for instruction in prog.instructions]
    assert values == [0, 1, 10, 2, 3, 11, 4, 5, 12, 6]
    assert dict(zip(values, stages, strict=True)) == {
        **dict.fromkeys(range(7), "expert_projection"),
        10: "expert_bias",
        11: "expert_activation",
        12: "expert_activation",
    }
    prog.weave([], side)
    assert [i.value("imm") for i in prog.instructions[-3:]] == [10, 11, 12]


def test_words_are_accounted_to_the_innermost_emitter() -> None:
    prog = Program(TINY.replace(IMEM_WORDS=4), "long")
    prog.comment("one of three emitters")
    with prog.emitter("outer"):
        prog.emit("C_BREAK")
        with prog.emitter("inner"):
            prog.emit("C_BREAK")
            prog.emit("C_BREAK")
    prog.emit("C_BREAK")
    assert prog.words_by_emitter == {"inner": 2, "outer": 1, "program": 1}
    assert prog.build().emitters == {"words": prog.words_by_emitter}
    prog.emit("S_ADD_FP", F0, F0, F0)
    with pytest.raises(CompileError) as error:
        prog.build()
    assert str(error.value) == (
        "program 'long': 5 words exceed IMEM_WORDS = 4; most words by emitter: "
        "inner 2, program 2, outer 1 (use fewer rows, or raise IMEM_WORDS)"
    )


def test_the_examples_of_the_guide_run() -> None:
    guide = (Path(__file__).parents[2] / "compiler" / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(examples) == 4
    for example in examples:
        exec(compile(example, "compiler/README.md", "exec"), {})
