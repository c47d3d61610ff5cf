"""The command `python -m testbench.run`: forms of a program, loads and dumps, stops, outputs."""

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from isa.assembler import assemble
from isa.config import PRESETS
from isa.image import ProgramImage
from isa.opcodes import BY_MNEMONIC
from sim.hbm import HbmMemory
from sim.machine.registry import BUILDERS
from sim.profile import read_profile
from testbench import run as command
from testbench.session.program import form_of
from testbench.session.values import hex_text, read_values

TINY = PRESETS["tiny"]


@pytest.fixture(autouse=True)
def _shared_engine(one_engine):
    """See `one_engine`."""


def run(program: str, *arguments: str, config: str | None = "tiny") -> int:
    return command.main([program, *(("--config", config) if config else ()), *arguments])


def test_a_program_runs_to_its_end_with_loads_and_dumps(asm, tmp_path, capsys):
    ones = np.ones((2, 8), ml_dtypes.bfloat16)
    np.save(tmp_path / "ones.npy", ones)
    (tmp_path / "fp.hex").write_text("0000 3F80 4000 ; one comment\n4040 // 3.0 at 3\n")
    dumps = ["vram:1:1=" + str(tmp_path / "row.npy"), "gp=" + str(tmp_path / "gp.npy"), "f:1"]
    code = run(
        asm(),
        *("--load", f"vram:0={tmp_path}/ones.npy", "--load", f"fp:0={tmp_path}/fp.hex"),
        *(part for dump in dumps for part in ("--dump", dump)),
    )
    assert code == 0
    text = capsys.readouterr().out
    assert "DONE after" in text
    assert "13 instructions dispatched, 13 completed" in text
    assert "4040  ; f1" in text
    row = np.load(tmp_path / "row.npy")
    assert row.dtype == np.uint16
    assert row.tolist() == [[0x4080] * 8]  # 1 + 3 times 1
    assert np.load(tmp_path / "gp.npy")[:5].tolist() == [0, 8, 3, 0, 7]


def test_every_form_of_a_program_runs_alike(asm, tmp_path, capsys):
    image = assemble(Path(asm()).read_text(), config=TINY)
    image.save(tmp_path / "image.json")
    words = [int(word) for word in image.words]
    (tmp_path / "words.hex").write_text("# machine code\n" + "".join(f"{w:08X}\n" for w in words))
    (tmp_path / "words.bin").write_bytes(struct.pack(f"<{len(words)}I", *words))
    (tmp_path / "plain").write_bytes(struct.pack(f"<{len(words)}I", *words))
    (tmp_path / "plainhex").write_text("".join(f"{w:08x}\n" for w in words))
    ends = set()
    for name in (asm(), *(str(tmp_path / n) for n in ("image.json", "words.hex", "words.bin"))):
        assert run(name) == 0
        ends.add(capsys.readouterr().out)
    for name in ("plain", "plainhex"):
        assert run(str(tmp_path / name)) == 0
        ends.add(capsys.readouterr().out)
    assert len(ends) == 1
    assert form_of(tmp_path / "x", b"S_ADDI_INT gp1, gp0, 1\n") == "asm"


def test_an_image_brings_its_configuration(tmp_path, capsys):
    assemble("S_ADDI_INT gp1, gp0, 1\n", config=TINY).save(tmp_path / "image.json")
    assert run(str(tmp_path / "image.json"), config=None) == 0
    assert "configuration tiny" in capsys.readouterr().out


def test_all_memories_round_trip_through_files(asm, tmp_path):
    rng = np.random.default_rng(1)
    values = {
        "vram:5:2": rng.integers(0, 1 << 16, (2, 8), np.uint16),
        "mram:3:2": rng.integers(0, 1 << 16, (2, 8, 8), np.uint16),
        "fp:9:20": rng.integers(0, 1 << 16, 20, np.uint16),
        "int:1000:24": rng.integers(0, 1 << 32, 24, np.uint32),
        "hbm:0x12345:100": rng.integers(0, 256, 100, np.uint8),
    }
    for suffix in (".npy", ".hex"):
        arguments = []
        for place, array in values.items():
            name = place.split(":")[0]
            source, target = tmp_path / f"in_{name}.npy", tmp_path / f"out_{name}{suffix}"
            np.save(source, array)
            arguments += ["--load", f"{place.rsplit(':', 1)[0]}={source}"]
            arguments += ["--dump", f"{place}={target}"]
        assert run(asm("S_ADDI_INT gp1, gp0, 1\n"), *arguments) == 0
        for place, array in values.items():
            name = place.split(":")[0]
            store = command.STORES[name]
            found = read_values("", tmp_path / f"out_{name}{suffix}", store, TINY)
            assert found.tolist() == array.tolist(), (name, suffix)


def test_hbm_takes_the_bytes_of_any_array_and_an_image(asm, tmp_path):
    np.save(tmp_path / "b.npy", np.array([0x3F80, 0x1234], ">u2"))
    (tmp_path / "c.bin").write_bytes(b"\x01\x02")
    (tmp_path / "d.hex").write_text("0x0A 0b0C # bytes in order\n")
    memory = HbmMemory(TINY.HBM_BYTES)
    memory.write(0x20000, b"image")
    memory.save(tmp_path / "e.npz")
    loads = {"0x100": "b.npy", "0x200": "c.bin", "0x300": "d.hex", "0": "e.npz"}
    arguments = [f"hbm:{address}={tmp_path / name}" for address, name in loads.items()]
    places = {"0x100:4": "803f3412", "0x200:2": "0102", "0x300:3": "0a0b0c", "0x20000:5": b"image"}
    for number, (place, want) in enumerate(places.items()):
        out = tmp_path / f"{number}.npy"
        flags = [part for load in arguments for part in ("--load", load)]
        assert run(asm("S_ADDI_INT gp1, gp0, 1\n"), *flags, "--dump", f"hbm:{place}={out}") == 0
        data = np.load(out).tobytes()
        assert data == (bytes.fromhex(want) if isinstance(want, str) else want)


@pytest.mark.parametrize("suffix", [".npy", ".hex"])
def test_a_dump_of_hbm_names_its_mx_dialect(asm, tmp_path, suffix):
    np.save(tmp_path / "codes.npy", np.array([0x78, 0x07], np.uint8))
    (tmp_path / "plena.toml").write_text('base = "tiny"\nmx_dialect = "plena"\n')
    dumped = str(tmp_path / f"dumped{suffix}")
    program, plena = asm("S_ADDI_INT gp1, gp0, 1\n"), str(tmp_path / "plena.toml")
    loads = ["--load", f"hbm:0={tmp_path}/codes.npy", "--dump", f"hbm:0:2={dumped}"]
    assert run(program, *loads, config=plena) == 0
    assert b"mx_dialect = plena" in Path(dumped).read_bytes()
    if suffix == ".npy":
        assert np.load(dumped).tolist() == [0x78, 0x07]
    again = ["--load", f"hbm:0={dumped}", "--dump", f"hbm:0:2={tmp_path}/again.npy"]
    assert run(program, *again, config="tiny") == 2
    assert not (tmp_path / "again.npy").exists()
    assert run(program, *again, config=plena) == 0
    assert np.load(tmp_path / "again.npy").tolist() == [0x78, 0x07]


def test_hex_text_names_the_place_of_each_line():
    vram = command.STORES["vram"]
    text = hex_text(np.arange(16, dtype=np.uint16).reshape(2, 8), vram, 5)
    assert text.splitlines()[1].endswith("; vram[6]")
    assert text.startswith("0000 0001 ")


def test_a_breakpoint_stops_before_its_instruction(asm, capsys):
    assert run(asm(), "--break", "body", "--issue", "serial", "--dump", "gp:2") == 0
    text = capsys.readouterr().out
    assert "--break body, before pc 2 (line 4, stage gather): V_ADD_VV gp1, gp0, gp1" in text
    assert "program.asm:4: body:" in text
    assert "2 instructions dispatched, 2 completed" in text
    assert "every instruction before it has completed" in text
    assert "00000000  ; gp2" in text


@pytest.mark.parametrize(
    ("arguments", "where", "done"),
    [
        (["--break", "2", "--skip", "2"], "before pc 2 ", 8),
        (["--break", "0"], "before pc 0 ", 0),
        (["--break", "0x6"], "before pc 6 ", 12),
        (["--break", "stage=non_moe"], "before pc 5 ", 11),
        (["--break", "stage=gather"], "before pc 0 ", 0),
        (["--break", "end", "--break", "body"], "before pc 2 ", 2),
        (["--step", "4"], "after 4 steps, before pc 4 ", 4),
        (["--break", "end", "--step", "1"], "after 1 steps, before pc 6 ", 12),
    ],
)
def test_where_a_run_stops(asm, capsys, arguments, where, done):
    assert run(asm(), *arguments) == 0
    text = capsys.readouterr().out
    assert where in text
    assert f"{done} instructions dispatched" in text


def test_steps_show_what_was_dispatched_and_the_registers(asm, capsys):
    assert run(asm(), "--break", "end", "--step", "1") == 0
    text = capsys.readouterr().out
    traced = [line for line in text.splitlines() if "S_ADDI_INT gp4" in line]
    assert len(traced) == 1
    assert "C_LOOP_END" not in text
    assert "gp: gp1=00000008 gp2=00000003 gp4=00000007" in text
    assert "STRIDE=1" in text


def test_steps_beyond_the_end_end_with_the_program(asm, capsys):
    assert run(asm(), "--step", "99") == 0
    assert "DONE after" in capsys.readouterr().out


def test_a_breakpoint_that_was_not_met_is_named(asm, capsys):
    source = "C_LOOP_START gp1, 1\nC_LOOP_END gp1\nC_BREAK\nlast: S_ADDI_INT gp1, gp0, 1\n"
    assert run(asm(source), "--break", "last") == 0
    text = capsys.readouterr().out
    assert "BREAK at cycle" in text
    assert "--break last was not met" in text


def test_work_under_way_at_a_stop_is_listed(asm, capsys):
    source = "V_EXP_V gp0, gp0\nS_ADDI_INT gp1, gp0, 1\nS_ADDI_INT gp2, gp0, 1\n"
    assert run(asm(source), "--break", "2") == 0
    text = capsys.readouterr().out
    assert "under way" in text
    assert "pc 0 since cycle 0: V_EXP_V gp0, gp0" in text


def test_the_trace_has_a_line_per_dispatch_and_completion(asm, tmp_path, capsys):
    assert run(asm(), "--trace") == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if "gather  " in line]
    assert run(asm(), "--trace", str(tmp_path / "trace.txt")) == 0
    lines = (tmp_path / "trace.txt").read_text().splitlines()
    assert lines[0].split() == ["cycle", "pc", "stage", "event"]
    assert [line for line in lines if "gather  " in line] == printed
    assert len(lines) == 1 + 2 * 13
    assert lines[1].split() == ["0", "0", "gather", "S_ADDI_INT", "gp1,", "gp0,", "8"]
    assert sum("done (vector)" in line for line in lines) == 3


def test_listing_profile_and_waveforms(asm, tmp_path, capsys):
    profile, vcd = tmp_path / "profile.json", tmp_path / "waves.vcd"
    assert run(asm(), "--listing", "--profile", str(profile), "--vcd", str(vcd)) == 0
    assert "word" in capsys.readouterr().out.splitlines()[0]
    found = read_profile(profile)
    assert found["stages"]["gather"]["instructions"] == 11
    assert found["dispatch"]["engine"] == "pysim"
    assert vcd.read_text().startswith("$")
    assert {p.suffix for p in tmp_path.glob("waves.*")} == {".vcd", ".gtkw", ".sucl"}


def test_a_trap_leaves_a_whole_profile_and_the_state(asm, tmp_path, capsys):
    source = "; @stage=expert_bias\nS_ADDI_INT gp1, gp0, 4\nV_EXP_V gp0, gp1  ; oops\n"
    profile = tmp_path / "profile.json"
    assert run(asm(source), "--profile", str(profile), "--dump", "gp:1") == 1
    assert read_profile(profile)["stages"]["expert_bias"]["instructions"] == 1
    note = json.loads(profile.read_text())["classification"]["attribution_notes"]
    assert "not known here" in note["shared_vs_routed"]
    assert "00000004  ; gp1" in capsys.readouterr().out


def test_unknown_stages_can_be_let_pass(asm, tmp_path, capsys):
    source = asm("; @stage=gathre\nS_ADDI_INT gp1, gp0, 1\n")
    assert run(source) == 2
    assert run(source, "--no-strict") == 0
    capsys.readouterr()
    image = assemble("S_ADDI_INT gp1, gp0, 1\n", config=TINY)
    other = ProgramImage(
        words=image.words,
        stages=image.stages,
        pairs=image.pairs,
        lines=image.lines,
        source=image.source,
        vocabulary=(*image.vocabulary[:-1], "attention"),
    )
    other.save(tmp_path / "other.json")
    assert run(str(tmp_path / "other.json")) == 2
    error = capsys.readouterr().err
    assert "attention" in error
    assert "--no-strict" in error
    assert run(str(tmp_path / "other.json"), "--no-strict") == 0


def test_an_interrupt_leaves_a_whole_trace(asm, tmp_path, monkeypatch):
    class Interrupting(command.InFlight):
        def completed(self, event):
            if event.pc == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(command, "InFlight", Interrupting)
    trace = tmp_path / "trace.txt"
    assert run(asm(), "--trace", str(trace), "--dump", f"gp={tmp_path}/gp.npy") == 130
    assert trace.read_text().splitlines()[-1] == "; the run was cut off here: KeyboardInterrupt"
    assert {p.name for p in tmp_path.iterdir()} == {"program.asm", "trace.txt"}


def test_costs_name_the_instructions_that_own_the_cycles(asm, capsys):
    assert run(asm(), "--costs") == 0
    text = capsys.readouterr().out
    total = int(text.split("DONE after ")[1].split()[0])
    assert f"own the most of {total} cycles" in text
    rows = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()]
    rows = [row for row in rows if len(row) > 8 and row[3].endswith("%")]
    cycles = [int(row[2]) for row in rows]
    assert cycles == sorted(cycles, reverse=True)
    assert sum(cycles) == total  # fewer than twenty instructions, so all of them
    assert run(asm(), "--costs", "1") == 0
    text = capsys.readouterr().out
    assert sum(row.split()[2:4] == [str(cycles[0]), rows[0][3]] for row in text.splitlines()) == 1
    assert text.count("%") == 1


def test_lockstep_compares_also_across_a_pause(asm, monkeypatch, capsys):
    assert run(asm(), "--lockstep") == 0
    assert "DONE" in capsys.readouterr().out
    assert run(asm(), "--lockstep", "--step", "3") == 0
    code = BY_MNEMONIC["S_ADDI_INT"].code
    original = BUILDERS[code]

    def off_by_one(state, instruction, pc):
        step = original(state, instruction, pc)

        def wrong():
            step()
            state.gp[1] += 1

        return wrong

    monkeypatch.setitem(BUILDERS, code, off_by_one)
    assert run(asm(), "--lockstep") == 1
    assert "FAIL: " in capsys.readouterr().err
