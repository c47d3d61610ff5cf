"""The assembler: syntax, tags, symbols, and errors that say what to do."""

import subprocess
import sys
from pathlib import Path

import pytest

from isa.assembler import AssemblyError, assemble, main
from isa.config import PRESETS
from isa.image import ProgramImage
from isa.instruction import Instruction
from isa.stages import Stage

TINY = PRESETS["tiny"]


def words(text: str) -> list[int]:
    """The assembled words."""
    return assemble(text).words.tolist()


def error_of(text: str, **options: object) -> str:
    """The text of the assembly error."""
    with pytest.raises(AssemblyError) as caught:
        assemble(text, source_name="p.asm", **options)  # type: ignore[arg-type]
    return str(caught.value)


def tags(image: ProgramImage) -> list[tuple[str, int]]:
    """Stage name and pair of every instruction."""
    names = [image.vocabulary[s] for s in image.stages]
    return list(zip(names, image.pairs.tolist(), strict=True))


@pytest.mark.parametrize(
    ("statement", "commented"),
    [
        ("C_BREAK", "C_BREAK ; stop"),
        ("M_MM 0, gp2, gp4", "M_MM 0, gp2, gp4 // a; b"),
        ("M_MM 0, gp2, gp4", "M_MM 0, gp2, gp4 ; a // b"),
        ("M_MM 0, gp2, gp4", "\tM_MM\t0,\tgp2 ,gp4\t;\ttabs"),
        ("M_MM 0, gp2, gp4", "M_MM 0,gp2,gp4//tight"),
        ("M_MM 0, gp2, gp4\nC_BREAK", "M_MM 0, gp2, gp4\r\nC_BREAK\r\n"),
        ("M_MM 0, gp2, gp4\nC_BREAK", "; first\n\nM_MM 0, gp2, gp4\n\n  \nC_BREAK\n// last"),
        ("S_ADDI_INT gp1, gp0, 16", "S_ADDI_INT gp1, gp0, 0x10"),
        ("S_ADDI_INT gp1, gp0, 171", "S_ADDI_INT gp1, gp0, 0XaB"),
        ("S_ADDI_INT gp1, gp0, 10", "S_ADDI_INT gp1, gp0, 010"),
        ("C_BREAK", "\ufeffC_BREAK"),
        ("C_BREAK", ".word 0x34"),
        ("C_BREAK", ".word 52 ; raw"),
        (".word 0xFFFFFFFF", "a: b:\nc: .word 4294967295"),
    ],
)
def test_white_space_comments_and_notation_change_no_word(statement: str, commented: str) -> None:
    assert words(commented) == words(statement) != []


@pytest.mark.parametrize("text", ["", "\n", "; only\n// comments", "\r\n\r\n", "here:"])
def test_a_program_may_have_no_instruction(text: str) -> None:
    assert words(text) == []


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("V_RED_SUM f1, gp2", "V_RED_SUM f1, gp2, 0"),
        ("V_RED_SUM f1, gp2, 0, 0", "V_RED_SUM f1, gp2, 0"),
        ("V_RED_SUM f1, gp2, 1, 0", "V_RED_SUM f1, gp2, 1"),
        ("S_EXP_FP f1, f2, 0", "S_EXP_FP f1, f2"),
        ("S_EXP_FP f1, f2, f0", "S_EXP_FP f1, f2"),
        ("V_EXP_V gp1, gp2, 1, gp0", "V_EXP_V gp1, gp2, 1"),
        ("H_PREFETCH_V gp1, gp2, a3, 1, 0, 0", "H_PREFETCH_V gp1, gp2, a3, 1, 0"),
        ("H_PREFETCH_V gp1, gp2, a3", "H_PREFETCH_V gp1, gp2, a3, 0, 0"),
        ("C_BREAK 0, 0x0", "C_BREAK"),
        ("M_MM_WO gp1, 0, 5", "M_MM_WO gp1, gp0, 5"),
        ("M_MM gp0, gp1, gp2", "M_MM 0, gp1, gp2"),
        ("M_BTMM 0, gp1, gp2", "M_BTMM gp0, gp1, gp2"),
        ("S_LD_INT gp1, 0, 5", "S_LD_INT gp1, gp0, 5"),
        ("C_SET_ADDR_REG a1, 0, gp3", "C_SET_ADDR_REG a1, gp0, gp3"),
        ("C_SET_SCALE_REG 0", "C_SET_SCALE_REG gp0"),
    ],
)
def test_left_out_surplus_and_bare_zeros(given: str, canonical: str) -> None:
    (word,) = words(given)
    assert Instruction.decode(word).text() == canonical


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "S_ADDI_INT gp1, gp0, 262144",
            "'262144': operand imm of S_ADDI_INT: must be 0 to 262143; "
            "build a larger value in a register with S_LUI_INT and S_ADDI_INT",
        ),
        (
            "S_ADDI_INT gp16, gp0, 1",
            "'gp16': operand rd of S_ADDI_INT: gp registers are numbered 0 to 15",
        ),
        ("S_ADD_FP f1, f8, f0", "'f8': operand rs1 of S_ADD_FP: f registers are numbered 0 to 7"),
        (
            "H_STORE_V gp1, gp2, a8",
            "'a8': operand rs2 of H_STORE_V: a registers are numbered 0 to 7",
        ),
        (
            "S_LUI_INT gp1, 1048576",
            "'1048576': operand imm of S_LUI_INT: must be 0 to 1048575: the value leaves 32 bits",
        ),
        ("S_LUI_INT gp1, 99999999999999999999", "must be 0 to 1048575: the value leaves 32 bits"),
        ("S_ADDI_INT gp1, gp0, -1", "'-1': operand imm of S_ADDI_INT is an unsigned number"),
        ("S_ADDI_INT gp1, gp0, gp2", "'gp2': operand imm of S_ADDI_INT is an unsigned number"),
        ("S_ADDI_INT gp1, gp0, 0x", "'0x': operand imm of S_ADDI_INT is an unsigned number"),
        ("S_ADDI_INT gp1, gp0, \u0663", "operand imm of S_ADDI_INT is an unsigned number"),
        ("S_ADD_INT gp1, gp2, f3", "'f3': operand rs2 of S_ADD_INT is a register, gp0 to gp15"),
        ("S_ADD_INT gp1, gp2, gp03", "'gp03': operand rs2 of S_ADD_INT is a register, gp0 to gp15"),
        ("S_ADD_INT 0, gp2, gp3", "'0': operand rd of S_ADD_INT is a register, gp0 to gp15"),
        ("V_ADD_VV gp1, gp2, 0", "'0': operand rs2 of V_ADD_VV is a register, gp0 to gp15"),
        ("S_ADD_FP f1, f2, 0", "'0': operand rs2 of S_ADD_FP is a register, f0 to f7"),
        ("M_MM gp1, gp2, gp4", "'gp1': operand 0 of M_MM is the literal 0"),
        ("M_MM 1, gp2, gp4", "'1': operand 0 of M_MM: must be the literal 0"),
        ("V_TOPK gp1, gp2, gp3, 2", "'2': operand rmask of V_TOPK: must be one of 0, 1, 15"),
        ("V_TOPK gp1, gp2, gp3, gp4", "'gp4': operand rmask of V_TOPK is a small number, mostly 0"),
        ("V_ADD_VV gp1, gp2", "'V_ADD_VV': 2 operands given, takes 3 to 4: rd, rs1, rs2, rmask"),
        (
            "V_RED_SUM f1, gp2, 0, 1",
            "'1': V_RED_SUM: 4 operands given, takes 2 to 3: rd, rs1, rmask; only zeros",
        ),
        (
            "S_EXP_FP f1, f2, f3",
            "'f3': S_EXP_FP: 3 operands given, takes 2: rd, rs1; only zeros may follow",
        ),
        ("S_EXP_FP f1, f2, a0", "'a0': S_EXP_FP: 3 operands given"),
        ("M_MM 0 gp2, gp4", "'0 gp2': operands are separated by commas"),
        ("M_MM 0, gp2,, gp4", "'M_MM 0, gp2,, gp4': an operand is missing beside a comma"),
        ("C_BREAK ,", "an operand is missing beside a comma"),
        ("M_MM_W0 gp2, gp0, 0", "'M_MM_W0': unknown mnemonic; did you mean M_MM_WO?"),
        ("v_topk gp1, gp2, gp3", "'v_topk': unknown mnemonic; did you mean V_TOPK?"),
        ("@!", "'@!': unknown mnemonic; python -m isa.reference_table lists them"),
        (".word", "'.word': .word takes one number, 0 to 0xFFFFFFFF"),
        (".word 0x100000000", ".word takes one number, 0 to 0xFFFFFFFF"),
        (".word 1, 2", ".word takes one number, 0 to 0xFFFFFFFF"),
    ],
)
def test_errors_name_line_token_and_rule(statement: str, message: str) -> None:
    text = error_of(f"C_BREAK\r\n; comment\r\n{statement}\r\n")
    assert text.startswith("p.asm:3: ")
    assert message in text
    assert "\n" not in text


def test_all_errors_of_a_file_come_together() -> None:
    source = "\n".join(["C_BREAK", "FOO", "M_MM 0, gp2", *["S_ADDI_INT gp16, gp0, 0"] * 30])
    with pytest.raises(AssemblyError) as caught:
        assemble(source, source_name="p.asm")
    assert [e.line for e in caught.value.errors] == list(range(2, 34))
    assert caught.value.errors[1].token == "M_MM"
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("p.asm:2: 'FOO': ")
    assert lines[-1] == "... and 12 more errors"


def test_labels_become_symbols() -> None:
    source = "start: C_BREAK\nloop:\n  // body\n.inner : next: C_BREAK\nend:"
    assert assemble(source).symbols == {"start": 0, "loop": 1, ".inner": 1, "next": 1, "end": 2}
    assert error_of("a: C_BREAK\nb:\na: C_BREAK") == (
        "p.asm:3: 'a': the label is defined twice; rename one"
    )


def test_lines_and_source_are_kept() -> None:
    image = assemble("; one\r\n\r\nC_BREAK ; \u00e9\x0b\u2028\r\n\tC_BREAK")
    assert image.lines.tolist() == [3, 4]
    assert image.source == ("; one", "", "C_BREAK ; \u00e9\x0b\u2028", "\tC_BREAK")
    assert image.config is None


MARKED = """\
C_BREAK                                ; nobody said
; @stage=gather pair=0
C_BREAK
C_BREAK ; @stage=expert_projection pair=1
C_BREAK // row=5
; @stage=scatter_combine
C_BREAK
; @stage=non_moe the layer is over
C_BREAK
"""


def test_markers_tag_what_follows_them() -> None:
    image = assemble(MARKED)
    assert tags(image) == [
        ("other", -1),
        ("gather", 0),
        ("gather", 0),
        ("expert_projection", 1),
        ("scatter_combine", 1),
        ("non_moe", -1),
    ]
    assert image.tag_origin == "explicit_stage_markers"
    assert image.unresolved_stage_markers == ()
    assert image.stages.tolist() == [Stage[name.upper()].value for name, _ in tags(image)]


def test_a_program_without_markers_is_all_other() -> None:
    image = assemble("; allocate step6_pair4\nC_BREAK ; gpt-oss\nC_BREAK")
    assert tags(image) == [("other", 4), ("other", 4)]
    assert image.tag_origin == "legacy_comment_substrings"


def test_an_unknown_stage_is_an_error_or_keeps_the_stage_before() -> None:
    source = "; @stage=gather\nC_BREAK\n; @stage=gathr pair=2\nC_BREAK\nC_BREAK ; @stage=gathr"
    text = error_of(source)
    assert "p.asm:3: 'gathr': not a stage name; did you mean gather?; use one of: " in text
    assert "residual_setup, router_topk" in text
    assert "p.asm:5: 'gathr'" in text
    image = assemble(source, strict=False)
    assert tags(image) == [("gather", -1), ("gather", 2), ("gather", 2)]
    assert image.unresolved_stage_markers == ("gathr",)
    assert image.tag_origin == "explicit_stage_markers"


def test_a_pair_number_out_of_range_is_an_error() -> None:
    assert "p.asm:1: 'pair=4294967296': pair label" in error_of("; pair=4294967296")


def test_a_program_longer_than_the_instruction_memory() -> None:
    config = TINY.replace(IMEM_WORDS=4)
    exact = "; @stage=gather\nC_BREAK\n; @stage=expert_bias\n" + "C_BREAK\n" * 3
    image = assemble(exact, config=config)
    assert len(image) == 4
    assert image.config is not None
    assert (image.config["MLEN"], image.config["IMEM_WORDS"]) == (8, 4)
    assert error_of(exact + "\nC_BREAK", config=config) == (
        "p.asm:8: the program has 5 words, configuration 'tiny' has IMEM_WORDS = 4; roll loops or "
        "raise it; most words by stage: expert_bias 4, gather 1"
    )


def test_the_length_is_reported_among_the_other_errors_in_line_order() -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble("FOO\nC_BREAK\nC_BREAK\nBAR", config=TINY.replace(IMEM_WORDS=2))
    assert [e.line for e in caught.value.errors] == [1, 3, 4]


def test_command_line_writes_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, image = tmp_path / "p.asm", tmp_path / "p.json"
    source.write_text(MARKED, encoding="utf-8")
    assert main([str(source), "-o", str(image), "--config", "tiny"]) == 0
    loaded = ProgramImage.load(image)
    assert loaded == assemble(MARKED, config=TINY)
    assert capsys.readouterr().out == (
        "6 words, tags from explicit_stage_markers: gather 2, expert_projection 1, "
        "scatter_combine 1, non_moe 1, other 1\n"
    )
    assert main([str(source), "--listing"]) == 0
    assert "expert_projection" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"C_BREK", [], "did you mean C_BREAK?"),
        (b"; @stage=gathr", [], "did you mean gather?"),
        (b"C_BREAK ; \xff", [], "not UTF-8 text"),
        (b"C_BREAK", ["--config", "huge"], "configuration 'huge': neither a preset"),
        (None, [], "No such file or directory"),
    ],
)
def test_command_line_errors_write_nothing(
    content: bytes | None,
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, image = tmp_path / "p.asm", tmp_path / "p.json"
    if content is not None:
        source.write_bytes(content)
    image.write_text("old", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    assert main([str(source), "-o", str(image), *options]) == 2
    streams = capsys.readouterr()
    assert message in streams.err
    assert streams.err.startswith("error: ")
    assert streams.out == ""
    assert sorted(tmp_path.iterdir()) == before
    assert image.read_text(encoding="utf-8") == "old"


def test_command_line_does_not_overwrite_its_source_and_names_a_bad_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "p.asm"
    source.write_text("C_BREAK", encoding="utf-8")
    assert main([str(source), "-o", str(source)]) == 2
    assert "would overwrite its source" in capsys.readouterr().err
    assert source.read_text(encoding="utf-8") == "C_BREAK"
    assert main([str(source), "-o", str(tmp_path / "no" / "p.json")]) == 2
    assert f"{tmp_path}/no/p.json: No such file" in capsys.readouterr().err


def test_unknown_stages_pass_the_command_line_on_request(tmp_path: Path) -> None:
    source, image = tmp_path / "p.asm", tmp_path / "p.json"
    source.write_text("; @stage=gathr\nC_BREAK", encoding="utf-8")
    assert main([str(source), "-o", str(image), "--no-strict"]) == 0
    assert ProgramImage.load(image, strict=False).unresolved_stage_markers == ("gathr",)


def test_module_runs_without_warnings_and_help_teaches() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "isa.assembler", "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (run.returncode, run.stderr) == (0, "")
    for part in ("examples:", "@stage=gather pair=3", "exit code:", "--no-strict"):
        assert part in run.stdout
