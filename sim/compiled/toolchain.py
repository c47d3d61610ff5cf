"""The C compiler of this machine, and the compilation of a program's sources to a shared
library."""

import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "Compiler",
    "CompilerError",
    "compile_library",
    "find_compiler",
    "machine_identity",
    "native_flags",
]

INSTALL_HINT = (
    "engine compiled needs a C compiler: install gcc or clang "
    "(Debian: apt install gcc; macOS: xcode-select --install), "
    "or, without administrator rights, pip install ziglang"
)
_COMMON = ("-std=gnu11", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-fwrapv", "-w")


class CompilerError(RuntimeError):
    """There is no C compiler, or it failed; the message has its output."""


@dataclass(frozen=True)
class Compiler:
    """A command with its flags; `version` tells one build of it from another."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]

    @property
    def identity(self) -> str:
        """For a cache key."""
        return "\n".join((*self.command, self.version, *self.flags))

    @property
    def is_gcc(self) -> bool:
        """Whether it is gcc, rather than clang by whatever name."""
        return "Free Software Foundation" in self.version

    def flags_of(self, file: str) -> tuple[str, ...]:
        """The flags for a source file: `leaves.c` has the loops that must become SIMD."""
        # Threaded jumps would give the loops a control flow that gcc does not vectorise.
        loops = file == "leaves.c" and self.is_gcc
        return ("-O3", *(("-fno-thread-jumps",) if loops else ()), *self.flags)


def native_flags(*, zig: bool = False) -> tuple[str, ...]:
    """What makes the compiler use all of this processor."""
    machine = platform.machine().lower()
    if zig:
        return ("-mcpu=native", "-fno-sanitize=undefined")
    if machine in ("x86_64", "amd64"):
        return ("-march=native",)
    return ("-mcpu=native",) if machine in ("arm64", "aarch64") else ()


@cache
def find_compiler() -> Compiler | None:
    """gcc, clang or cc of the search path, else the one in the Python package ziglang; None if
    there is none."""
    candidates: list[tuple[tuple[str, ...], bool]] = [
        ((path,), False) for name in ("gcc", "clang", "cc") if (path := shutil.which(name))
    ]
    if importlib.util.find_spec("ziglang") is not None:
        candidates.append(((sys.executable, "-m", "ziglang", "cc"), True))
    for command, zig in candidates:
        result = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=False
        )
        if result.returncode == 0:
            return Compiler(command, result.stdout.strip(), (*_COMMON, *native_flags(zig=zig)))
    return None


def machine_identity() -> str:
    """The processor, since libraries are compiled for it."""
    parts = [platform.system(), platform.machine(), platform.processor()]
    info = Path("/proc/cpuinfo")
    if info.is_file():
        head = info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        parts += [
            line
            for line in head.splitlines()
            if line.startswith(("model name", "flags", "Features"))
        ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def compile_library(
    compiler: Compiler, sources: Mapping[str, str], folder: Path, name: str
) -> Path:
    """Compiles sources, each on a core of its own, to `folder/name`.

    Raises:
        CompilerError: with the compiler's output.
    """
    running: list[tuple[list[str], subprocess.Popen[str]]] = []
    objects: list[str] = []
    for file, text in sources.items():
        source, target = folder / file, folder / f"{file}.o"
        source.write_text(text, encoding="utf-8")
        command = [
            *compiler.command,
            *compiler.flags_of(file),
            "-c",
            str(source),
            "-o",
            str(target),
        ]
        objects.append(str(target))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        running.append((command, process))
    outcomes = [(command, process, process.communicate()[0]) for command, process in running]
    for command, process, output in outcomes:
        if process.returncode:
            raise CompilerError(
                f"{' '.join(command)} failed with {process.returncode}:\n{output[-4000:]}"
            )
    target = folder / name
    command = [*compiler.command, *compiler.flags, "-shared", "-o", str(target), *objects]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CompilerError(
            f"{' '.join(command)} failed with {result.returncode}:\n{result.stderr[-4000:]}"
        )
    return target
