"""A leaf as machine code, and loops in C that hold it against the host's floating-point unit.

The leaf comes from its netlist through the compiled engine (`sim.compiled.leaf`); what it must give
is in native.h, written from numerics.md in terms of the host's `float` and `double`.
"""

import ctypes
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Fragment

from rtl.leaves import Leaf
from sim.compiled.leaf import LANES, LeafFunction
from sim.compiled.program import PRELUDE
from sim.compiled.toolchain import INSTALL_HINT, CompilerError, compile_library, find_compiler

Words = npt.NDArray[np.uint32]
Progress = Callable[[float], None]

#: Operands of one call of the leaf.
BLOCK = 2048

_OPERAND, _IN_BLOCK = re.compile(r"\b[xy]\b"), r"\g<0>_block[i]"
_LOOPS = (Path(__file__).parent / "native.h").read_text(encoding="utf-8")


class Counterexample(Exception):
    """Operands for which a leaf is wrong; the message has them, in hexadecimal."""


class NativeLeaf:
    """One leaf, compiled; a context manager, since the library lives in a temporary folder.

    Args:
        leaf: without latency.
        wanted: a C expression of the result for operands `x` and `y` (u32 each), in terms of
            native.h.
        operands: what each input port gets, as a C expression of `x` and `y`; none if only
            `evaluate` is used.

    Raises:
        CompilerError: there is no C compiler, or it failed.
    """

    def __init__(
        self, leaf: Leaf, wanted: str = "0", operands: dict[str, str] | None = None
    ) -> None:
        compiler = find_compiler()
        if compiler is None:
            raise CompilerError(INSTALL_HINT)
        Fragment.get(leaf, None)  # Amaranth warns of hardware that nobody elaborates
        self._function = LeafFunction(leaf, "leaf")
        self._folder = tempfile.TemporaryDirectory(prefix="plena-leaf-")
        sources = {"leaves.c": self._source(wanted, operands or {})}
        library = compile_library(compiler, sources, Path(self._folder.name), "leaf.so")
        self._library = ctypes.CDLL(str(library))

    def _source(self, wanted: str, operands: dict[str, str]) -> str:
        function = self._function
        lines = [
            PRELUDE,
            '#define EXPORT __attribute__((visibility("default")))',
            f"EXPORT {function.prototype};",
            function.emit(),
        ]
        if operands:
            assert operands.keys() == function.inputs.keys()
            arrays = [f"{port}_block" for port in (*operands, "o")]
            fills = [
                f"{port}_block[i] = {_OPERAND.sub(_IN_BLOCK, source)};"
                for port, source in operands.items()
            ]
            lines += [
                f"#define BLOCK {BLOCK}",
                "#define ALIGNED __attribute__((aligned(64)))",
                f"static u32 {', '.join(f'{a}[BLOCK] ALIGNED' for a in arrays)};",
                f"#define OPERANDS(i) {' '.join(fills)}",
                f"#define CALL leaf(BLOCK, {', '.join(arrays)})",
                f"#define WANTED(x, y) ({wanted})",
                _LOOPS,
            ]
        return "\n".join(lines)

    def __enter__(self) -> "NativeLeaf":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def evaluate(self, **operands: npt.ArrayLike) -> Words:
        """The output for every element of the operand arrays, which are broadcast."""
        names = list(self._function.inputs)
        columns = np.broadcast_arrays(*(np.asarray(operands[n], np.uint32) for n in names))
        shape, count = columns[0].shape, columns[0].size
        padded = -(-count // LANES) * LANES
        given = [_aligned(padded) for _ in names]
        for room, column in zip(given, columns, strict=True):
            room[:count] = column.ravel()
        result = _aligned(padded)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*given, result)]
        self._library.leaf(ctypes.c_int(padded), *pointers)
        return result[:count].reshape(shape)

    def all_pairs(self, progress: Progress, first: int = 0) -> int:
        """Every pair of 16-bit words with `x` from `first` on; returns their number.

        Raises:
            Counterexample: the leaf is wrong for one.
        """
        whole, step = 1 << 16, 1 << 10
        for start in range(first, whole, step):
            stop = min(start + step, whole)
            self._call("all_pairs", ctypes.c_uint32(start), ctypes.c_uint32(stop))
            progress(stop / whole)
        return (whole - first) * whole

    def all_words(self, progress: Progress) -> int:
        """Every 32-bit word as `x`; else as `all_pairs`."""
        step = 1 << 26
        for first in range(0, 1 << 32, step):
            self._call("all_words", ctypes.c_uint64(first), ctypes.c_uint64(first + step))
            progress((first + step) / (1 << 32))
        return 1 << 32

    def these_pairs(self, x: Words, y: Words) -> int:
        """The pairs of two arrays; else as `all_pairs`."""
        given = [np.ascontiguousarray(a, np.uint32) for a in (x, y)]
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in given]
        self._call("these_pairs", ctypes.c_uint64(len(x)), *pointers)
        return len(x)

    def random_pairs(self, count: int, seed: int, progress: Progress) -> int:
        """`count` pairs, rounded up to whole blocks, that follow from `seed`; else as
        `all_pairs`."""
        total = -(-count // BLOCK) * BLOCK
        step = BLOCK << 12
        for first in range(0, total, step):
            last = min(first + step, total)
            self._call("random_pairs", *(ctypes.c_uint64(n) for n in (first, last, seed)))
            progress(last / total)
        return total

    def _call(self, name: str, *arguments: Any) -> None:
        found = (ctypes.c_uint32 * 4)()
        if getattr(self._library, name)(*arguments, found):
            x, y, got, want = found
            raise Counterexample(f"x {x:X}, y {y:X}: got {got:X}, wanted {want:X}")


def _aligned(count: int) -> Words:
    room = np.zeros(4 * count + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + 4 * count].view(np.uint32)
