"""The cache of built engines: what it trusts, two builds at once, and the choice of `auto`."""

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

import sim.cache
from isa.assembler import assemble
from isa.config import PRESETS
from isa.image import ProgramImage
from sim import engines
from sim.compiled import build, cache, toolchain
from sim.compiled.toolchain import Compiler, CompilerError


def fill(folder: Path) -> dict[str, Any]:
    """A build that takes a moment."""
    (folder / "scratch.c").write_text("x")
    (folder / cache.LIBRARY).write_bytes(b"library")
    time.sleep(0.2)
    (folder / cache.DESCRIPTION).write_text(json.dumps({"made by": os.getpid()}))
    return {"config": "tiny", "compiler": "cc", "seconds": {"all": 1.0}}


def test_an_entry_is_complete_or_not_there(tmp_path):
    assert cache.find("key", tmp_path) is None
    entry = cache.store("key", fill, tmp_path)
    assert {f.name for f in entry.folder.iterdir()} == {
        cache.LIBRARY,
        cache.DESCRIPTION,
        cache.MANIFEST,
    }
    assert cache.find("key", tmp_path) == entry
    assert [e.key for e in cache.entries(tmp_path)] == ["key"]


def test_a_failed_or_killed_build_leaves_nothing_that_is_trusted(tmp_path):
    def fail(folder: Path) -> dict[str, Any]:
        fill(folder)
        raise CompilerError("no")

    with pytest.raises(CompilerError):
        cache.store("key", fail, tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["key.lock"]
    leftover = tmp_path / ".key.1"  # as a kill leaves it
    leftover.mkdir()
    fill(leftover)
    assert cache.find("key", tmp_path) is None
    assert cache.entries(tmp_path) == []
    cache.store("key", fill, tmp_path)
    assert not leftover.exists()


@pytest.mark.parametrize("file", [cache.LIBRARY, cache.DESCRIPTION, cache.MANIFEST])
def test_a_damaged_entry_is_built_again(tmp_path, file):
    entry = cache.store("key", fill, tmp_path)
    (entry.folder / file).write_bytes((entry.folder / file).read_bytes()[:-1])
    assert cache.find("key", tmp_path) is None
    assert cache.store("key", fill, tmp_path).library.read_bytes() == b"library"


def _store(root: Path, queue: Any) -> None:
    queue.put(cache.store("key", fill, root).description())


def test_two_processes_that_build_at_once_share_one_build(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_store, args=(tmp_path, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    first, second = queue.get(timeout=60), queue.get(timeout=60)
    for process in processes:
        process.join()
    assert first == second


def test_the_key_follows_configuration_compiler_flags_and_sources(monkeypatch, tmp_path):
    gcc = Compiler(("gcc",), "12.2", ("-O2",))
    keys = {
        cache.source_key(PRESETS["tiny"], gcc),
        cache.source_key(PRESETS["small"], gcc),
        cache.source_key(PRESETS["tiny"], Compiler(("gcc",), "13.1", ("-O2",))),
        cache.source_key(PRESETS["tiny"], Compiler(("gcc",), "12.2", ("-O3",))),
    }
    assert len(keys) == 4
    assert cache.source_key(PRESETS["tiny"].replace(name="other"), gcc) in keys
    for folder in ("rtl", "isa", "sim/compiled"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("sim/probe.py", "sim/private.py"):
        (tmp_path / file).write_text("")
    monkeypatch.setattr(cache, "_REPOSITORY", tmp_path)
    empty = cache.source_key(PRESETS["tiny"], gcc)
    (tmp_path / "rtl" / "top.py").write_text("x = 1")
    changed = cache.source_key(PRESETS["tiny"], gcc)
    assert changed != empty
    (tmp_path / "rtl" / "top.py").write_text("x = 2")
    assert cache.source_key(PRESETS["tiny"], gcc) not in (empty, changed)


def test_list_and_clear(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cache, "cache_root", lambda: tmp_path)
    cache.store("0123456789abcdef", fill)
    assert sim.cache.main(["list"]) == 0
    assert "1 built engine\n0123456789ab  tiny" in capsys.readouterr().out
    assert sim.cache.main(["clear"]) == 0
    assert "removed 1 built engine from" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_the_engine_says_what_to_install_and_auto_takes_pysim(monkeypatch):
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    monkeypatch.setattr(engines, "find_compiler", lambda: None)
    with pytest.raises(CompilerError, match=r"install gcc or clang .* pip install ziglang"):
        build.entry_for(PRESETS["tiny"])
    name, reason = engines.choose_engine(PRESETS["tiny"])
    assert name == "pysim"
    assert "there is no C compiler" in reason


def loop_of(turns: int) -> ProgramImage:
    source = f"C_LOOP_START gp1, {turns}\nS_ADDI_INT gp2, gp2, 1\nC_LOOP_END gp1\n"
    return assemble(source, config=PRESETS["tiny"])


def test_auto_takes_what_is_built_or_what_a_long_program_repays(monkeypatch):
    tiny, small = PRESETS["tiny"], PRESETS["small"]
    monkeypatch.setattr(engines, "find_compiler", lambda: Compiler(("cc",), "1", ()))
    monkeypatch.setattr(engines, "cached_entry", lambda _: None)
    name, reason = engines.choose_engine(tiny, loop_of(3))
    assert name == "pysim"
    assert "7 instructions" in reason
    assert engines.choose_engine(tiny, loop_of(2000))[0] == "compiled"
    assert engines.choose_engine(small, loop_of(3))[0] == "compiled"
    assert engines.choose_engine(tiny)[0] == "compiled"
    monkeypatch.setattr(engines, "cached_entry", lambda _: object())
    assert engines.choose_engine(tiny, loop_of(3))[0] == "compiled"


def test_auto_goes_on_without_a_compiler_that_fails(monkeypatch):
    def broken(*_: object) -> None:
        raise CompilerError("cc: internal error\nmore")

    monkeypatch.setattr(engines, "find_compiler", lambda: Compiler(("cc",), "1", ()))
    monkeypatch.setitem(engines.ENGINES, "compiled", broken)
    engine = engines.make_engine("auto", PRESETS["tiny"])
    assert engine.name == "pysim"
    assert engine.reason == "auto: engine compiled cannot be built: cc: internal error"
    with pytest.raises(CompilerError, match="internal error"):
        engines.make_engine("compiled", PRESETS["tiny"])


def test_a_compiler_error_is_shown(tmp_path):
    compiler = toolchain.find_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler")
    with pytest.raises(CompilerError, match="nonsense"):
        toolchain.compile_library(compiler, {"design.c": "nonsense"}, tmp_path, "x.so")
