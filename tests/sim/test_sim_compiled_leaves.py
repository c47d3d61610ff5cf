"""Every distinct leaf of the machine in C: against Amaranth's simulator, and turned into SIMD."""

import ctypes
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from isa.config import PRESETS
from rtl.top import PlenaTop
from sim.compiled.extract import extract
from sim.compiled.leaf import LANES, LeafFunction
from sim.compiled.program import PRELUDE
from sim.compiled.toolchain import Compiler, compile_library, find_compiler, native_flags
from tests.conftest import needs_compiler

pytestmark = needs_compiler

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


def computed(
    functions: dict[str, tuple[Any, LeafFunction]], compiler: Compiler, folder: Path
) -> Iterator[tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Key, operands and results of every leaf in C."""
    path = compile_library(compiler, {"leaves.c": source(functions)}, folder, "l.so")
    library = ctypes.CDLL(str(path))
    rng = np.random.default_rng(7)
    for key, (_, function) in functions.items():
        given = {port: aligned(operands(width, rng)) for port, width in function.inputs.items()}
        found = {
            port: aligned(np.zeros(COUNT, np.uint32 if width <= 32 else np.uint64))
            for port, width in function.outputs.items()
        }
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*given.values(), *found.values())]
        getattr(library, function.name)(ctypes.c_int(COUNT), *pointers)
        yield key, given, found


def test_every_leaf_agrees_with_amaranths_simulator(functions, tmp_path):
    assert COUNT % LANES == 0
    compiler = find_compiler()
    assert compiler is not None
    for key, given, found in computed(functions, compiler, tmp_path):
        leaf, _ = functions[key]
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


def test_every_leaf_is_the_same_without_the_processors_extensions(functions, tmp_path):
    compiler = find_compiler()
    assert compiler is not None
    native = set(native_flags(zig="ziglang" in compiler.command)) - {"-fno-sanitize=undefined"}
    kept = tuple(flag for flag in compiler.flags if flag not in native)
    if "ziglang" in compiler.command:  # which takes all of the processor unless told otherwise
        kept += ("-mcpu=baseline",)
    folders = tmp_path / "native", tmp_path / "plain"
    for folder in folders:
        folder.mkdir()
    plain = replace(compiler, flags=kept)
    pairs = zip(
        computed(functions, compiler, folders[0]),
        computed(functions, plain, folders[1]),
        strict=True,
    )
    for (key, _, results), (_, _, other) in pairs:
        for port, values in results.items():
            assert values.tolist() == other[port].tolist(), (key, port)
    if platform.machine().lower() in ("x86_64", "amd64"):
        uses = [
            _uses_avx(c, f / "leaves.c") for c, f in zip((compiler, plain), folders, strict=True)
        ]
        assert uses == ["avx2" in Path("/proc/cpuinfo").read_text().split(), False]


def _uses_avx(compiler: Compiler, source_file: Path) -> bool:
    """Whether the machine code names a register of 256 bits or more."""
    target = source_file.with_suffix(".s")
    flags = compiler.flags_of(source_file.name)
    command = [*compiler.command, *flags, "-S", str(source_file), "-o", str(target)]
    subprocess.run(command, check=True)
    text = target.read_text()
    return "ymm" in text or "zmm" in text


def simd_lines(compiler: Compiler, text: str, folder: Path) -> set[int]:
    """Lines of loops that the compiler says it has turned into SIMD."""
    path = folder / "leaves.c"
    path.write_text(text)
    tell = "-fopt-info-vec" if compiler.is_gcc else "-Rpass=loop-vectorize"
    command = [*compiler.command, *compiler.flags_of(path.name), tell, "-c", str(path)]
    report = subprocess.run(
        [*command, "-o", str(folder / "l.o")], capture_output=True, text=True, check=True
    ).stderr
    told = re.findall(r"leaves\.c:(\d+):\d+: .*(?:loop vectorized|vectorized loop)", report)
    return set(map(int, told))


def loops_of(text: str) -> dict[int, str]:
    """Line -> function, for the loops over leaves."""
    return {
        number: line.split("/* ")[1].removesuffix(" */")
        for number, line in enumerate(text.splitlines(), 1)
        if "i < count" in line
    }


def test_every_loop_over_leaves_becomes_simd(functions, tmp_path):
    compiler = find_compiler()
    assert compiler is not None
    text = source(functions)
    done = simd_lines(compiler, text, tmp_path)
    # One or two of a kind are not worth the name of a loop.
    repeated = Counter(c.leaf.key for c in extract(PlenaTop(PRESETS["default"])).leaves)
    many = {f.name for leaf, f in functions.values() if repeated[leaf.key] >= LANES // 4}
    assert len(many) >= 8
    titles = {f.name: f.title for _, f in functions.values()}
    loops = loops_of(text)
    scalar = [titles[name] for line, name in loops.items() if line not in done and name in many]
    assert not scalar, f"not SIMD any more: {scalar}"


def test_a_loop_that_is_not_simd_is_told_from_one_that_is(functions, tmp_path):
    compiler = find_compiler()
    assert compiler is not None
    text = source(functions)
    line, name = next(
        (n, f) for n, f in loops_of(text).items() if n in simd_lines(compiler, text, tmp_path)
    )
    # A result that the next turn of the loop reads.
    lines = text.splitlines()
    end = next(i for i in range(line, len(lines)) if lines[i] == "  }")
    store = lines[end - 1]
    target = store.split("[i]")[0].strip()
    lines[end - 1] = f"{store} {target}[i] += i ? {target}[i - 1] * 3 : 0;"
    assert line not in simd_lines(compiler, "\n".join(lines), tmp_path), name
