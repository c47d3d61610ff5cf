"""Every distinct leaf of the machine in C: against Amaranth's simulator, and turned into SIMD."""

import ctypes
import os
import subprocess
from collections import Counter
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from isa.config import PRESETS
from rtl.top import PlenaTop
from sim.compiled.extract import extract
from sim.compiled.leaf import LANES, LeafFunction
from sim.compiled.program import PRELUDE
from sim.compiled.toolchain import compile_library, find_compiler

# Continuous integration must have a compiler: there the tests fail instead of passing by absence.
pytestmark = pytest.mark.skipif(
    find_compiler() is None and "CI" not in os.environ, reason="there is no C compiler"
)

COUNT = 320


def distinct_leaves() -> dict[str, Any]:
    cells = extract(PlenaTop(PRESETS["tiny"])).leaves
    return {str(key): leaf for key, leaf in {c.leaf.key: c.leaf for c in cells}.items()}


@pytest.fixture(scope="module")
def functions() -> dict[str, tuple[Any, LeafFunction]]:
    leaves = distinct_leaves()
    return {
        key: (leaf, LeafFunction(leaf, f"leaf_{i}")) for i, (key, leaf) in enumerate(leaves.items())
    }


def source(functions: dict[str, tuple[Any, LeafFunction]]) -> str:
    public = '__attribute__((visibility("default"))) '
    return PRELUDE + "".join(f"{public}{f.prototype};\n{f.emit()}" for _, f in functions.values())


def operands(width: int, rng: np.random.Generator) -> np.ndarray:
    """Random numbers; the first ones are zeros, ones, and words around the limits of exponents."""
    values = rng.integers(0, 1 << width, COUNT, dtype=np.uint64)
    sign = 1 << (width - 1)
    special = [0, sign, (1 << width) - 1, 1, sign | 1, sign - 1]
    if width in (16, 32):
        for exponent in (0, 1, 2, 127, 150, 254, 255):
            base = exponent << (width - 9)
            special += [base, base | 1, base | sign, base | ((1 << (width - 9)) - 1)]
    picks = rng.choice(np.array(special, np.uint64), COUNT // 2)
    values[: COUNT // 2] = picks
    return values.astype(np.uint32 if width <= 32 else np.uint64)


def aligned(values: np.ndarray) -> np.ndarray:
    room = np.zeros(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    view = room[start : start + values.nbytes].view(values.dtype)
    view[:] = values
    return view


def test_every_leaf_agrees_with_amaranths_simulator(functions, tmp_path):
    assert COUNT % LANES == 0
    compiler = find_compiler()
    assert compiler is not None
    library = ctypes.CDLL(
        str(compile_library(compiler, {"leaves.c": source(functions)}, tmp_path, "l.so"))
    )
    rng = np.random.default_rng(7)
    for key, (leaf, function) in functions.items():
        given = {port: aligned(operands(width, rng)) for port, width in function.inputs.items()}
        found = {
            port: aligned(np.zeros(COUNT, np.uint32 if width <= 32 else np.uint64))
            for port, width in function.outputs.items()
        }
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*given.values(), *found.values())]
        getattr(library, function.name)(ctypes.c_int(COUNT), *pointers)
        _, parameters, _ = leaf.key
        own = type(leaf)(**dict(parameters))

        async def bench(
            ctx: Any, own: Any = own, given: Any = given, found: Any = found, key: str = key
        ) -> None:
            for i in range(COUNT):
                for port, values in given.items():
                    ctx.set(getattr(own, port), int(values[i]))
                for port, values in found.items():
                    inputs = {p: hex(v[i]) for p, v in given.items()}
                    assert ctx.get(getattr(own, port)) == values[i], (key, port, inputs)

        simulator = Simulator(own)
        simulator.add_testbench(bench)
        simulator.run()


def test_every_loop_over_leaves_becomes_simd(functions, tmp_path):
    compiler = find_compiler()
    assert compiler is not None
    if "clang" in compiler.version or "Free Software Foundation" not in compiler.version:
        pytest.skip("the report is gcc's")
    path = tmp_path / "leaves.c"
    path.write_text(source(functions))
    command = [
        *compiler.command,
        "-O3",
        "-fno-thread-jumps",
        *compiler.flags,
        "-fopt-info-vec",
        "-c",
        str(path),
    ]
    report = subprocess.run(
        [*command, "-o", str(tmp_path / "l.o")], capture_output=True, text=True, check=True
    ).stderr
    done = {int(line.split(":")[1]) for line in report.splitlines() if "loop vectorized" in line}
    loops = {
        number: text.split("/* ")[1].removesuffix(" */")
        for number, text in enumerate(path.read_text().splitlines(), 1)
        if "i < count" in text
    }
    # One or two of a kind are not worth the name of a loop.
    repeated = Counter(c.leaf.key for c in extract(PlenaTop(PRESETS["default"])).leaves)
    many = {f.name for leaf, f in functions.values() if repeated[leaf.key] >= LANES // 4}
    assert len(many) >= 8
    titles = {f.name: f.title for _, f in functions.values()}
    scalar = [titles[name] for line, name in loops.items() if line not in done and name in many]
    assert not scalar, f"not SIMD any more: {scalar}"
