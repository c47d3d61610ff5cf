"""The disassembler, its command line, and the generated reference."""

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.assembler import assemble
from isa.disassembler import disassemble, main, read_hex_words
from isa.image import ProgramImage
from isa.opcodes import OPCODES
from isa.operands import Kind
from isa.reference_table import reference

ROOT = Path(__file__).parents[2]


def every_extreme() -> list[int]:
    """Every opcode with every operand at the ends of its field, legal or not."""
    words: list[int] = []
    for row in OPCODES.values():
        fields = [o.field for o in row.operands if o.kind is not Kind.ZERO]
        for values in product(*((0, 1, 7, 8, f.limit) for f in fields)):
            words.append(row.code | sum(f.put(v) for f, v in zip(fields, values, strict=True)))
    return words


def test_every_opcode_reassembles() -> None:
    words = every_extreme()
    assert assemble(disassemble(words)).words.tolist() == words


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=40))
def test_any_words_reassemble(words: list[int]) -> None:
    assert assemble(disassemble(np.array(words, np.uint32))).words.tolist() == words


def test_illegal_words_say_why() -> None:
    assert disassemble([0x34, 0x00, 0x0015 | 1 << 31, 0x15 | 8 << 6, 0xFFFFFFE5]).splitlines() == [
        "C_BREAK",
        ".word 0x00000000 ; ILLEGAL_OPCODE",
        ".word 0x80000015 ; ILLEGAL_ENCODING",
        ".word 0x00000215 ; REGISTER_INDEX",
        ".word 0xFFFFFFE5",
    ]
    assert disassemble([]) == ""


def test_hex_words() -> None:
    assert read_hex_words("# head\nFFFFC062 ; x\n\n 0x34\r\n0X1 // y") == [0xFFFFC062, 0x34, 1]
    with pytest.raises(ValueError, match="line 2: '123456789' is not a word of 1 to 8"):
        read_hex_words("1\n123456789")


def test_command_line_reads_images_and_hex(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "; @stage=gather\nM_MM 0, gp1, gp2\nC_BREAK\n"
    image, words, output = tmp_path / "p.json", tmp_path / "p.hex", tmp_path / "p.asm"
    assemble(source).save(image)
    words.write_text("00008401\n34\n", encoding="utf-8")
    plain = "M_MM 0, gp1, gp2\nC_BREAK\n"
    assert main([str(image)]) == 0
    assert capsys.readouterr().out == plain
    assert main([str(words), "-o", str(output)]) == 0
    assert output.read_text(encoding="utf-8") == plain
    assert main([str(image), "--listing"]) == 0
    assert capsys.readouterr().out == ProgramImage.load(image).listing()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"{}", [], "p.json: $: 'format' is a required property"),
        (b"M_MM 0, gp1, gp2", [], "p.json: line 1: 'M_MM 0, gp1, gp2' is not a word"),
        (b"\xff", [], "neither an image nor text"),
        (b"34", ["--listing"], "p.json: not an image; --listing needs one"),
        (None, [], "No such file or directory"),
    ],
)
def test_command_line_errors(
    content: bytes | None,
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "p.json"
    if content is not None:
        path.write_bytes(content)
    output = tmp_path / "out.asm"
    assert main([str(path), "-o", str(output), *options]) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith("error: ")
    assert message in streams.err
    assert streams.err.count(str(path)) == 1
    assert streams.out == ""
    assert not output.exists()


def test_command_line_does_not_overwrite_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.hex"
    path.write_text("34", encoding="utf-8")
    assert main([str(path), "-o", str(path)]) == 2
    assert "would overwrite" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "34"


@pytest.mark.parametrize("module", ["isa.disassembler", "isa.reference_table"])
def test_modules_run_without_warnings(module: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, *["--help"][: module == "isa.disassembler"]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == reference() or "examples:" in run.stdout


def test_reference_has_a_row_for_every_opcode_and_every_table_is_regular() -> None:
    page = reference()
    for row in OPCODES.values():
        assert re.search(rf"^\| 0x{row.code:02X} \| {row.mnemonic} \|", page, re.MULTILINE)
    assert "Not defined: 0x00, 0x31, 0x33, 0x39, 0x3A, 0x3B, 0x3C, 0x3D, 0x3E, 0x3F." in page
    assert "| imm18 | 31:14 | 18 | 262143 |" in page
    assert "| 0x25 | S_LUI_INT | gp rd, imm22 <= 1048575 |" in page
    assert "| H_STORE_V | gp rd, gp rs1, a rs2, [rstride], [precision] |" in page
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
