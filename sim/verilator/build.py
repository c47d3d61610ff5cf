"""From a configuration to a Verilated machine in a shared library: out of the cache, or built."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from isa.config import PlenaConfig
from rtl.export import TOP_NAME, Design, export_machine
from rtl.top import PlenaTop
from sim.compiled import cache
from sim.compiled.host import host_source
from sim.compiled.paths import reachable
from sim.compiled.toolchain import Compiler, CompilerError, native_flags
from sim.probe import Probe
from sim.verilator.access import VerilatedAccessors
from sim.verilator.tool import Tool, find_cxx, find_verilator
from sim.verilator.visible import Visible

__all__ = ["entry_for"]

_HERE = Path(__file__).parent
_PREFIX = "Vplena"
#: Names of the parts of the build in the manifest, in seconds.
EXPORT, VERILATE, COMPILE = "elaborate and export", "verilate", "compile"
#: Of this engine, what the library follows from.
_SOURCES = tuple(
    f"sim/verilator/{name}" for name in ("access.py", "build.py", "glue.h", "visible.py")
)
_VERILATE = (
    "--cc",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-assert",
    "--no-timing",
    "-Wno-lint",
    "-Wno-style",
    "--top-module",
    TOP_NAME,
    "--prefix",
    _PREFIX,
)
_COMMON = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-w", "-DNDEBUG")
#: Every cycle, and once: as in Verilator's own makefiles, its OPT_FAST and OPT_SLOW.
_FAST, _SLOW = ("-O2",), ("-O0",)


def entry_for(config: PlenaConfig) -> tuple[cache.Entry, bool]:
    """The Verilated machine of a configuration, and whether it was there already.

    Raises:
        CompilerError: Verilator or a C++ compiler is missing (the message says what to install), or
            one of them failed.
    """
    tool, (command, version) = find_verilator(), find_cxx()
    compiler = Compiler((command,), version, (*_COMMON, *native_flags()))
    key = cache.source_key(
        config,
        compiler,
        tools=("verilator", tool.version, *_VERILATE, *_FAST, *_SLOW),
        sources=_SOURCES,
    )
    entry = cache.find(key)
    if entry is not None:
        return entry, True
    return cache.store(key, lambda folder: _build(config, tool, compiler, folder)), False


def _build(config: PlenaConfig, tool: Tool, compiler: Compiler, folder: Path) -> dict[str, Any]:
    times = [time.perf_counter()]
    probe = Probe(PlenaTop(config))
    known = reachable(probe)  # before elaboration, which replaces some of the ports
    accessors_of = _Interface(probe)
    text, design, _ = export_machine(probe.top)
    visible = Visible(design, known)
    loop = accessors_of.source(visible)
    description = {"signals": visible.signals(), "memories": visible.memories()}
    work = folder / "work"
    work.mkdir()
    (work / f"{TOP_NAME}.v").write_text(text, encoding="utf-8")
    (work / "control.vlt").write_text(visible.control(_apart(design)), encoding="utf-8")
    times.append(time.perf_counter())
    _verilate(tool, work)
    times.append(time.perf_counter())
    (work / "plena_host.cpp").write_text(_glue(visible, loop), encoding="utf-8")
    _compile(tool, compiler, work)
    os.replace(work / cache.LIBRARY, folder / cache.LIBRARY)
    shutil.rmtree(work)
    (folder / cache.DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
    times.append(time.perf_counter())
    return {
        "config": config.name,
        "digest": config.digest,
        "compiler": f"{tool.version} and {compiler.version}",
        "seconds": {
            name: times[i + 1] - times[i] for i, name in enumerate((EXPORT, VERILATE, COMPILE))
        },
    }


class _Interface:
    """The clock loop's source, for a probe that is elaborated meanwhile."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def source(self, visible: Visible) -> str:
        probe = self._probe
        definitions = {id(probe.flags): probe.flags_value}
        return host_source(probe, VerilatedAccessors(visible.find, definitions))


def _apart(design: Design) -> list[str]:
    """Modules that stay functions of their own: those with many instances are compiled once."""
    uses: dict[str, int] = {}
    for module in design.modules.values():
        for cell in module.cells:
            uses[cell.kind[1:]] = uses.get(cell.kind[1:], 0) + 1
    leaves = set(design.leaf_modules.values())
    return [
        name
        for name in design.modules
        if uses.get(name, 0) > 1 and (name in leaves or _has_leaves(design, name, leaves))
    ]


def _has_leaves(design: Design, name: str, leaves: set[str]) -> bool:
    return any(cell.kind[1:] in leaves for cell in design.modules[name].cells)


def _verilate(tool: Tool, folder: Path) -> None:
    sources = ("control.vlt", f"{TOP_NAME}.v")
    _run([*tool.command, *_VERILATE, "--Mdir", ".", *sources], folder, tool.environment)


def _glue(visible: Visible, loop: str) -> str:
    """C++ for the host: tables of addresses, the glue, the accessors, and the clock loop."""
    ports = sorted(visible.ports)
    rows = [
        f'  {{{ports.index(a.name)}, 0, "{a.name}"}},'
        if a.is_port
        else f'  {{-1, "TOP.{a.scope}", "{a.name}"}},'
        for a in visible.addresses
    ]
    cases = [
        f"  case {number}: return (void *)&top->{name.replace('__', '___05F')};"
        for number, name in enumerate(ports)
    ]
    prelude = (_HERE.parent / "compiled" / "prelude.h").read_text(encoding="utf-8")
    types = prelude[: prelude.index("#define L8")]
    return "\n".join(
        (
            f'#include "{_PREFIX}.h"',
            f'#include "{_PREFIX}___024root.h"',
            types,
            "typedef struct { int port; const char *scope, *name; } address_t;",
            f"#define ADDRESS_COUNT {len(rows)}",
            "static const address_t ADDRESSES[] = {",
            *rows,
            "};",
            f"static void *port_address({_PREFIX} *top, int number) {{",
            "  switch (number) {",
            *cases,
            "  }",
            "  return 0;",
            "}",
            (_HERE / "glue.h").read_text(encoding="utf-8"),
            loop,
            "",
        )
    )


def _compile(tool: Tool, compiler: Compiler, folder: Path) -> None:
    """Compiles everything that Verilator wrote, what it needs of its library, and the host."""
    makefile = (folder / f"{_PREFIX}_classes.mk").read_text(encoding="utf-8")
    slow = set(_files(makefile, "VM_CLASSES_SLOW") + _files(makefile, "VM_SUPPORT_SLOW"))
    fast = _files(makefile, "VM_CLASSES_FAST") + _files(makefile, "VM_SUPPORT_FAST")
    library = [tool.include / f"{name}.cpp" for name in _files(makefile, "VM_GLOBAL_FAST")]
    include = ("-I", ".", "-I", str(tool.include), "-I", str(tool.include / "vltstd"))
    headers = f"{_PREFIX}__pch.h.gch"
    (folder / headers).mkdir()
    base = (*compiler.command, *compiler.flags, *include)
    jobs = [
        [*base, *level, "-x", "c++-header", f"{_PREFIX}__pch.h", "-o", f"{headers}/{name}"]
        for name, level in (("fast", _FAST), ("slow", _SLOW))
    ]
    _run_all(jobs, folder)
    sources = [
        *((str(path), _FAST) for path in library),
        ("plena_host.cpp", _FAST),
        *((f"{name}.cpp", _FAST) for name in fast),
        *((f"{name}.cpp", _SLOW) for name in sorted(slow)),
    ]
    # The largest first, so that the last ones to finish are small.
    sources.sort(
        key=lambda item: -(folder / item[0]).stat().st_size * (4 if item[1] == _FAST else 1)
    )
    objects = [f"{Path(source).stem}.o" for source, _ in sources]
    jobs = [
        [*base, *level, "-c", source, "-o", target]
        for (source, level), target in zip(sources, objects, strict=True)
    ]
    _run_all(jobs, folder)
    _run([*compiler.command, *compiler.flags, "-shared", "-o", cache.LIBRARY, *objects], folder)


def _files(makefile: str, variable: str) -> list[str]:
    """The words of a variable in the makefile that Verilator writes."""
    found = re.search(rf"^{variable} \+= ((?:.*\\\n)*.*)", makefile, re.MULTILINE)
    return [] if found is None else found[1].replace("\\\n", " ").split()


def _run_all(jobs: Sequence[list[str]], folder: Path) -> None:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(lambda job: _run(job, folder), jobs):
            pass


def _run(command: Sequence[str], folder: Path, environment: Any = None) -> None:
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    output = run.stderr or run.stdout
    if run.returncode:
        raise CompilerError(f"{' '.join(command)} failed with {run.returncode}:\n{output[-4000:]}")
