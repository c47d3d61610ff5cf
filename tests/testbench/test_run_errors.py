"""What goes wrong with `python -m testbench.run`: each error names the thing and the way out, gives
an exit code that is not 0, and leaves no file behind that is not whole."""

import dataclasses
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from isa.assembler import assemble
from isa.config import PRESETS, PlenaConfig
from isa.image import write_atomically
from isa.image_schema import pack
from sim.hbm import HbmDevice, HbmMemory
from sim.profile import read_profile
from testbench import run as command
from testbench.session.dialect import noted_npy
from testbench.session.values import npy_bytes

TINY = PRESETS["tiny"]
PLENA = TINY.replace(mx_dialect="plena")
ONE = "S_ADDI_INT gp1, gp0, 1\n"


@pytest.fixture(autouse=True)
def _shared_engine(one_engine):
    """See `one_engine`."""


def image(folder: Path, source: str = ONE, name: str = "image.json", **changes: object) -> Path:
    whole = assemble(source, config=TINY)
    dataclasses.replace(whole, **changes).save(folder / name)
    return folder / name


def image_for(folder: Path, config: PlenaConfig) -> str:
    assemble(ONE, config=config).save(folder / "image.json")
    return str(folder / "image.json")


def hbm_image(folder: Path) -> list[str]:
    memory = HbmMemory(TINY.HBM_BYTES, "plena")
    memory.write(0, b"x")
    memory.save(folder / "x.npz")
    return source(folder, "--load", f"hbm={folder}/x.npz")


def foreign_vocabulary(folder: Path) -> list[str]:
    names = assemble(ONE).vocabulary
    return [str(image(folder, vocabulary=(*names[:-1], "attention_scores")))]


def truncated(folder: Path) -> list[str]:
    path = image(folder)
    path.write_bytes(path.read_bytes()[:-40])
    return [str(path)]


def edited(folder: Path) -> list[str]:
    path = image(folder)
    document = json.loads(path.read_text())
    document["content"]["words"][0] += 64
    path.write_text(json.dumps(document))
    return [str(path)]


def other_machine(folder: Path) -> list[str]:
    return [str(image(folder)), "--config", "small"]


def unknown_fields(folder: Path) -> list[str]:
    content = json.loads(image(folder).read_text())["content"]
    content["config"]["SPARSITY"] = 2
    write_atomically(folder / "image.json", pack(content))
    return [str(folder / "image.json")]


def file(folder: Path, name: str, data: bytes | str | np.ndarray) -> str:
    path = folder / name
    if isinstance(data, np.ndarray):
        np.save(path, data)
    else:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def source(folder: Path, *arguments: str, text: str = ONE) -> list[str]:
    return [file(folder, "p.asm", text), "--config", "tiny", *arguments]


def load(memory: str, name: str, data: bytes | str | np.ndarray):
    def request(folder: Path) -> list[str]:
        return source(folder, "--load", f"{memory}={file(folder, name, data)}")

    return request


#: Requests that cannot be run: exit code 2, and what the message must say.
REQUESTS = {
    "image from another vocabulary": (foreign_vocabulary, ["attention_scores", "--no-strict"]),
    "image cut short": (truncated, ["image.json", "cut short", "assemble the program again"]),
    "image edited": (edited, ["image.json", "checksum", "assemble the program again"]),
    "image for another machine": (other_machine, ["made for 8", "tiny", "has 16", "small"]),
    "image of a configuration with more fields": (unknown_fields, ["SPARSITY", "--config"]),
    "no such program": (lambda _: ["nowhere.asm"], ["nowhere.asm", "No such file"]),
    "empty program": (lambda d: source(d, text="; nothing\n"), ["no instruction", "--form"]),
    "bad source": (lambda d: source(d, text="V_AD_VV gp1\n"), ["p.asm:1", "did you mean V_ADD_VV"]),
    "unknown stage": (
        lambda d: source(d, text="; @stage=gathre\n" + ONE),
        ["gathre", "did you mean gather"],
    ),
    "bad hex word": (lambda d: [file(d, "p.hex", "00000034\nxyz\n")], ["p.hex", "line 2", "xyz"]),
    "cut binary": (lambda d: [file(d, "p.bin", b"12345")], ["p.bin", "5 bytes", "cut short"]),
    "no text": (lambda d: [file(d, "p.asm", b"\xff\xfe")], ["p.asm", "UTF-8", "--form bin"]),
    "unknown configuration": (
        lambda d: [file(d, "p.asm", ONE), "--config", "big"],
        ["big", "tiny"],
    ),
    "load past the end": (
        load("vram:1023", "x.npy", np.zeros((2, 8), np.uint16)),
        ["--load vram:1023", "rows 0 to 1023", "tiny", "VRAM_ROWS"],
    ),
    "load of floats": (
        load("vram:0", "x.npy", np.zeros((1, 8), np.float16)),
        ["x.npy", "float16", "BF16", "astype(ml_dtypes.bfloat16)"],
    ),
    "load of rows of another width": (
        load("mram:0", "x.npy", np.zeros((16, 16), np.uint16)),
        ["[16, 16]", "MLEN = 8"],
    ),
    "load of a part of a row": (
        load("vram:0", "x.hex", "1 2 3\n"),
        ["3 elements", "rows of 8"],
    ),
    "load of nothing": (load("fp:0", "x.hex", "; empty\n"), ["x.hex", "nothing"]),
    "load of a wide integer": (
        load("int:0", "x.npy", np.array([1 << 32])),
        ["4294967296", "32 bits"],
    ),
    "load of no array": (load("fp:0", "x.npy", b"\x93NUMPY"), ["x.npy", "np.save"]),
    "load of no hex": (load("fp:0", "x.hex", "12345\n"), ["line 1", "12345", "1 to 4 digits"]),
    "load of half bytes": (load("hbm:0", "x.hex", "123\n"), ["123", "2 digits"]),
    "load of a bad HBM image": (load("hbm", "x.npz", b"PK\x03\x04"), ["x.npz", "HBM image"]),
    "load of an HBM image of another MX dialect": (
        hbm_image,
        ["x.npz", "dialect plena", "machine's is ocp", "mx_dialect = 'plena'"],
    ),
    "load of an array of another MX dialect": (
        load("hbm:0", "x.npy", noted_npy(npy_bytes(np.zeros(4, np.uint8)), PLENA)),
        ["x.npy", "dialect plena", "machine's is ocp", "mx_dialect = 'plena'"],
    ),
    "load of text of another MX dialect": (
        load("hbm:0", "x.hex", "; mx_dialect = plena\n00 01\n"),
        ["x.hex", "dialect plena", "machine's is ocp", "mx_dialect = 'plena'"],
    ),
    "an image for another MX dialect": (
        lambda d: [image_for(d, PLENA), "--config", "tiny"],
        ["mx_dialect", "made for plena", "machine has ocp"],
    ),
    "load of registers": (load("gp:0", "x.hex", "1\n"), ["gp registers", "vram, mram, fp"]),
    "load past HBM": (
        load(f"hbm:{TINY.HBM_BYTES - 1}", "x.hex", "0102\n"),
        ["HBM", "HBM_BYTES"],
    ),
    "load without a file": (lambda d: source(d, "--load", "vram:0"), ["MEMORY:FIRST=FILE"]),
    "load with a count": (load("vram:0:1", "x.hex", "1\n"), ["leave COUNT out"]),
    "load of a missing file": (
        lambda d: source(d, "--load", f"vram:0={d}/no.npy"),
        ["no.npy", "No such file"],
    ),
    "unknown memory": (lambda d: source(d, "--dump", "vrom:0"), ["vrom", "did you mean vram"]),
    "bad number": (lambda d: source(d, "--dump", "vram:one"), ["'one'", "hexadecimal"]),
    "HBM dump out of range": (
        lambda d: source(d, "--dump", f"hbm:{TINY.HBM_BYTES}:4"),
        ["HBM", f"0 to {TINY.HBM_BYTES - 1}", "HBM_BYTES"],
    ),
    "HBM dump of everything": (lambda d: source(d, "--dump", "hbm"), ["hbm:ADDRESS:COUNT"]),
    "dump of no rows": (lambda d: source(d, "--dump", "vram:0:0"), ["at least 1 row"]),
    "dump in an unknown form": (
        lambda d: source(d, "--dump", f"vram={d}/x.csv"),
        [".npy or .hex"],
    ),
    "dump into a missing folder": (
        lambda d: source(d, "--dump", f"gp={d}/no/x.npy"),
        ["does not exist", "make it first"],
    ),
    "two outputs in one file": (
        lambda d: source(d, "--dump", f"gp={d}/x.npy", "--dump", f"f={d}/x.npy"),
        ["x.npy", "name two files"],
    ),
    "output over the program": (
        lambda d: source(d, "--trace", f"{d}/p.asm"),
        ["--trace", "the program", "overwritten"],
    ),
    "waveform in a viewer's file": (
        lambda d: source(d, "--vcd", f"{d}/x.gtkw"),
        ["x.gtkw", "use .vcd"],
    ),
    "break at no instruction": (lambda d: source(d, "--break", "1"), ["pc 1", "pc 0 to 0"]),
    "break at no label": (
        lambda d: source(d, "--break", "lop", text="loop: " + ONE),
        ["lop", "did you mean loop", "stage=NAME"],
    ),
    "break at no stage": (
        lambda d: source(d, "--break", "stage=gathre"),
        ["gathre", "did you mean gather"],
    ),
    "break at an absent stage": (
        lambda d: source(d, "--break", "stage=gather"),
        ["no instruction has this stage", "other"],
    ),
    "skip without break": (lambda d: source(d, "--skip", "1"), ["--skip", "--break"]),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_cannot_run_says_why_and_writes_nothing(tmp_path, capsys, name):
    request, words = REQUESTS[name]
    arguments = request(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert command.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    for word in words:
        assert word in captured.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


#: Programs that the machine stops: exit code 1, and what the report must say.
TRAPS = {
    "illegal opcode": (
        ".word 0x3F\n",
        ["ILLEGAL_OPCODE", "pc 1 (line 2", "p.asm:2: .word 0x3F", "image is corrupt"],
    ),
    "HBM read out of range": (
        "S_ADDI_INT gp1, gp0, 4\nC_SET_ADDR_REG a1, gp1, gp0\nH_PREFETCH_V gp0, gp0, a1 ; far\n",
        ["HBM_ADDRESS", "operand 0x400000000", "p.asm:4: H_PREFETCH_V", "; far", "--dump a"],
    ),
    "misaligned address": (
        "S_ADDI_INT gp1, gp0, 4\nV_EXP_V gp0, gp1\n",
        ["VECTOR_ADDRESS", "operand 0x4 (4)", "not aligned to a row", "p.asm:3", "--break"],
    ),
    "watchdog": (
        "; @stage=gather\nC_LOOP_START gp1, 4000000\nV_ADD_VF gp0, gp0, f0\nC_LOOP_END gp1\n",
        [
            "WATCHDOG at cycle 200",
            "VECTOR: pc 2 (line 4, stage gather)",
            "--max-cycles",
            "not completed:",
        ],
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_reported_with_its_source_and_leaves_whole_files(tmp_path, capsys, name):
    text, words = TRAPS[name]
    arguments = ["--max-cycles", "200", "--profile", f"{tmp_path}/profile.json"]
    arguments += ["--trace", f"{tmp_path}/trace.txt", "--dump", f"gp={tmp_path}/gp.npy"]
    arguments += ["--vcd", f"{tmp_path}/waves.vcd"]
    assert command.main(source(tmp_path, *arguments, text=ONE + text)) == 1
    captured = capsys.readouterr()
    for word in words:
        assert word in captured.out
    assert "Traceback" not in captured.err
    assert read_profile(tmp_path / "profile.json")["stages"]
    assert len(np.load(tmp_path / "gp.npy")) == 16
    assert (tmp_path / "trace.txt").read_text().endswith("\n")
    assert (tmp_path / "waves.vcd").read_text().endswith("\n")
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_a_deadlock_is_reported_and_has_its_own_exit_code(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(HbmDevice, "response", lambda *_: None)
    text = "S_ADDI_INT gp1, gp0, 8\nH_PREFETCH_V gp1, gp0, a0, 0, 0\nV_EXP_V gp0, gp1, 0\n"
    arguments = ["--max-idle", "70", "--dump", f"gp={tmp_path}/gp.npy"]
    assert command.main(source(tmp_path, *arguments, text=text)) == 3
    captured = capsys.readouterr()
    for words in (
        "for 71 cycles",
        "dispatch: pc 2 (line 3",
        "it waits for an unfinished H_* instruction",
        "slot 0, HBM: pc 1 (line 2",
        "2 requests without an answer",
        "the limit is --max-idle",
    ):
        assert words in captured.out
    assert "--max-cycles" not in captured.out
    assert captured.err == ""
    assert np.load(tmp_path / "gp.npy")[1] == 8
    limits = ["--max-cycles", "60", "--max-idle", "70"]
    assert command.main(source(tmp_path, *limits, text=text)) == 1
    assert "the limit is --max-cycles" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5", ""])
def test_nonsense_for_max_idle_is_refused(tmp_path, capsys, value):
    with pytest.raises(SystemExit) as stop:
        command.main(source(tmp_path, f"--max-idle={value}"))
    assert stop.value.code == 2
    assert "argument --max-idle: " in capsys.readouterr().err


def test_words_without_source_say_so(tmp_path, capsys):
    assert command.main([file(tmp_path, "p.hex", "0000003F\n"), "--config", "tiny"]) == 1
    assert "words without source" in capsys.readouterr().out


def test_a_corrupt_bfloat16_file_is_no_other_type(tmp_path, capsys):
    rows = np.ones((1, 8), ml_dtypes.bfloat16)
    path = file(tmp_path, "x.npy", rows)
    assert command.main(source(tmp_path, "--load", f"vram:0={path}", "--dump", "vram:0")) == 0
    assert "3F80 3F80" in capsys.readouterr().out


def test_a_failed_write_leaves_the_old_file(tmp_path, capsys, monkeypatch):
    target = tmp_path / "gp.npy"
    target.write_bytes(b"old")

    def full(path, _):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(command, "write_atomically", full)
    assert command.main(source(tmp_path, "--dump", f"gp={target}")) == 2
    assert "gp.npy: No space left on device" in capsys.readouterr().err
    assert target.read_bytes() == b"old"


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for word in ("examples:", "exit code:", "vram", "--break", "has not begun"):
        assert word in text
