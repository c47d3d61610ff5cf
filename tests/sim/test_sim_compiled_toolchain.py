"""Which compiler is taken, and with what flags; the compiler of a Python package is the last
resort."""

import ctypes
import shutil
import sys
from pathlib import Path

import pytest

from sim.compiled import toolchain
from sim.compiled.toolchain import Compiler, compile_library, find_compiler
from tests.conftest import needs_compiler

#: What `python -m ziglang cc` is, with the machine's own compiler behind it.
ZIGLANG = """
import subprocess, sys
assert sys.argv[1] == "cc", sys.argv
given = [a for a in sys.argv[2:] if a not in ("-mcpu=native", "-fno-sanitize=undefined")]
if given == ["--version"]:
    sys.exit(print("clang version 19, from ziglang"))
sys.exit(subprocess.run([{compiler!r}, *given]).returncode)
"""


def fresh() -> Compiler | None:
    """The search, without what an earlier one found."""
    return find_compiler.__wrapped__()


def hide_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda _: None)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, compiler: str) -> None:
    """A package ziglang, found by this interpreter and those that it starts."""
    package = folder / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(ZIGLANG.format(compiler=compiler))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@needs_compiler
def test_ziglang_compiles_where_there_is_no_other_compiler(monkeypatch, tmp_path):
    real = find_compiler()
    assert real is not None
    install(monkeypatch, tmp_path, real.command[0])
    hide_compilers(monkeypatch)
    compiler = fresh()
    assert compiler is not None
    assert compiler.command == (sys.executable, "-m", "ziglang", "cc")
    assert not compiler.is_gcc
    assert {"-mcpu=native", "-fno-sanitize=undefined"} <= set(compiler.flags)
    text = '__attribute__((visibility("default"))) int seven(void) { return 7; }'
    library = compile_library(compiler, {"design.c": text, "leaves.c": ""}, tmp_path, "l.so")
    assert ctypes.CDLL(str(library)).seven() == 7


@needs_compiler
def test_a_compiler_of_the_machine_comes_first(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "unused")
    compiler = fresh()
    assert compiler is not None
    assert compiler.command[0] in {shutil.which(name) for name in ("gcc", "clang", "cc")}


def test_without_any_there_is_none(monkeypatch):
    hide_compilers(monkeypatch)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda _: None)
    assert fresh() is None


def test_only_gcc_gets_the_flag_that_only_gcc_has():
    gcc = Compiler(("gcc",), "gcc 12\nFree Software Foundation", ("-x",))
    clang = Compiler(("clang",), "clang version 19", ("-x",))
    assert "-fno-thread-jumps" in gcc.flags_of("leaves.c")
    assert "-fno-thread-jumps" not in clang.flags_of("leaves.c")
    assert gcc.flags_of("design.c") == clang.flags_of("design.c") == ("-O3", "-x")
