"""Built engines on disk: one folder per key, complete or not there."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isa.config import PlenaConfig
from sim.compiled.toolchain import Compiler, machine_identity

try:
    import fcntl
except ImportError:  # Windows: two builds at once both finish, and one of them is kept
    fcntl = None

__all__ = ["Entry", "cache_root", "entries", "find", "remove", "source_key", "store"]

LIBRARY, DESCRIPTION, MANIFEST = "model.so", "model.json", "manifest.json"
_FORMAT = 1
_REPOSITORY = Path(__file__).resolve().parents[2]
#: What a built engine follows from, besides the configuration and the versions: every source that
#: is elaborated, and
#: every source that turns it into C.
_SOURCES = ("rtl", "isa", "sim/compiled", "sim/probe.py", "sim/private.py")


def cache_root() -> Path:
    """The folder of all built engines: below XDG_CACHE_HOME, or where the system keeps caches."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "plena-sim" / "engines"


def source_key(
    config: PlenaConfig,
    compiler: Compiler,
    *,
    tools: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> str:
    """Equal if and only if a built engine may be used again; nothing is elaborated for it.

    A hash of: all source files that the design and its C follow from, the configuration's digest,
    the versions of Python, Amaranth and NumPy, the compiler with its flags, and the processor. An
    engine that is built on this one adds its own tools and source folders.
    """
    digest = hashlib.sha256()
    for part in (
        str(_FORMAT),
        config.digest,
        platform.python_version(),
        importlib.metadata.version("amaranth"),
        np.__version__,
        compiler.identity,
        machine_identity(),
        *tools,
    ):
        digest.update(part.encode() + b"\0")
    for source in (*_SOURCES, *sources):
        path = _REPOSITORY / source
        for file in sorted((*path.rglob("*.py"), *path.rglob("*.h"))) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(_REPOSITORY)).encode() + b"\0")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """A built engine."""

    key: str
    folder: Path
    manifest: dict[str, Any]

    @property
    def library(self) -> Path:
        """The shared library."""
        return self.folder / LIBRARY

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(f.stat().st_size for f in self.folder.iterdir())

    def description(self) -> dict[str, Any]:
        """The description for `Model`, and the paths of signals."""
        return json.loads((self.folder / DESCRIPTION).read_text(encoding="utf-8"))


def find(key: str, root: Path | None = None) -> Entry | None:
    """The complete entry with this key; one with a damaged file does not count."""
    folder = (root or cache_root()) / key
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        whole = manifest["format"] == _FORMAT and all(
            hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest
            for file, digest in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Entry(key, folder, manifest) if whole else None


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time, and given up when that process ends, however it does."""
    with path.open("a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def store(key: str, build: Callable[[Path], dict[str, Any]], root: Path | None = None) -> Entry:
    """The entry with this key, made by `build` unless another process has made it meanwhile.

    `build` fills an empty folder with LIBRARY and DESCRIPTION and returns facts for the manifest.
    The folder gets
    its name when it is complete; one that a killed build leaves is removed by the next build of the
    same key.
    """
    root = root or cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with _lock(root / f"{key}.lock"):
        entry = find(key, root)
        if entry is not None:
            return entry
        for leftover in root.glob(f".{key}.*"):
            if fcntl is not None:
                shutil.rmtree(leftover, ignore_errors=True)
        shutil.rmtree(root / key, ignore_errors=True)  # damaged
        folder = root / f".{key}.{os.getpid()}"
        folder.mkdir()
        try:
            manifest = build(folder)
            for file in folder.iterdir():
                if file.name not in (LIBRARY, DESCRIPTION):
                    file.unlink()
            files = {
                f: hashlib.sha256((folder / f).read_bytes()).hexdigest()
                for f in (LIBRARY, DESCRIPTION)
            }
            manifest |= {"format": _FORMAT, "files": files, "created": time.time()}
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            os.replace(folder, root / key)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    entry = find(key, root)
    assert entry is not None
    return entry


def entries(root: Path | None = None) -> list[Entry]:
    """All complete entries, the newest first."""
    root = root or cache_root()
    if not root.is_dir():
        return []
    found = [
        e
        for f in root.iterdir()
        if not f.name.startswith(".") and f.is_dir() and (e := find(f.name, root))
    ]
    return sorted(found, key=lambda e: -e.manifest["created"])


def remove(root: Path | None = None) -> int:
    """Removes everything in the cache; returns the number of complete entries that were there."""
    root = root or cache_root()
    count = len(entries(root))
    if root.is_dir():
        for item in root.iterdir():
            if item.is_dir():
                shutil.rmtree(item, ignore_errors=True)
            else:
                item.unlink(missing_ok=True)
    return count
