"""The pysim-fast engine: Amaranth's simulator, with what it generates changed while it is made.

Not the default and not the reference: it rests on private parts of one release of Amaranth, which
is checked. The changes:

- In a combinational process, a signal that the process drives alone and has assigned already is
  read from its new value, so that a chain of signals takes one pass, not one per link. A row of
  equal leaves is one process.
- Parts of signals that a combinational process reads are taken out once, at its beginning.
- A write that no bit takes is not queued.
"""

import importlib
import importlib.metadata
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.sim import Simulator

from sim.private import ast, pyrtl, pysim
from sim.probe import Probe
from sim.pysim import PysimEngine
from sim.pysim_masks import MaskedEngine
from sim.pysim_merge import merged
from sim.pysim_split import split

__all__ = ["PysimFastEngine", "single_pass"]

SUPPORTED = "0.5.10"
_LOCK = threading.Lock()


class PysimFastEngine(PysimEngine):
    """`PysimEngine` with the changes above; the results are the same.

    Raises:
        RuntimeError: another release of Amaranth is installed.
    """

    name = "pysim-fast"

    def make_simulator(self, probe: Probe) -> Simulator:
        design = merged(probe, whole=True)
        split(design)
        with single_pass():
            return Simulator(design, engine=MaskedEngine)


@contextmanager
def single_pass() -> Iterator[None]:
    """Within this, a `Simulator` is made with the changes; it keeps them.

    Raises:
        RuntimeError: another release of Amaranth is installed.
    """
    version = importlib.metadata.version("amaranth")
    if version != SUPPORTED:
        raise RuntimeError(
            f"engine pysim-fast changes private parts of amaranth {SUPPORTED}; {version} is "
            "installed; use engine pysim"
        )
    replaced = {
        (pyrtl._RHSValueCompiler, "on_Signal"): _on_signal,
        (pyrtl._RHSValueCompiler, "on_Slice"): _on_slice,
        (pyrtl._StatementCompiler, "on_statements"): _on_statements,
        (pysim, "_PyMemoryState"): _MemoryState,
    }
    with _LOCK:
        before = {(owner, name): getattr(owner, name) for owner, name in replaced}
        try:
            for (owner, name), new in replaced.items():
                setattr(owner, name, new)
            yield
        finally:
            for (owner, name), old in before.items():
                setattr(owner, name, old)


_read_signal = pyrtl._RHSValueCompiler.on_Signal
_read_slice = pyrtl._RHSValueCompiler.on_Slice


def _on_signal(compiler: Any, signal: Any) -> str:
    if compiler.mode == "curr" and signal in getattr(compiler, "ready", ()):
        return f"next_{compiler.state.get_signal(signal)}"
    return _read_signal(compiler, signal)


def _on_slice(compiler: Any, value: Any) -> str:
    taken = getattr(compiler, "taken", None)
    signal = value.value
    if taken is None or not isinstance(signal, ast.Signal) or signal in compiler.ready:
        return _read_slice(compiler, value)
    key = id(signal), value.start, value.stop
    if key not in taken:
        taken[key] = name = compiler.emitter.gen_var("slice")
        compiler.emitter._buffer.insert(
            compiler.top, f"    {name} = {_read_slice(compiler, value)}\n"
        )
    return taken[key]


def _on_statements(compiler: Any, statements: Any) -> None:
    """As the original; but at the top of a combinational process it notes what is ready."""
    rhs = compiler.rhs
    if not statements:
        compiler.emitter.append("pass")
    if rhs.inputs is None or hasattr(rhs, "ready"):  # a clocked process, or inside a case
        for statement in statements:
            compiler(statement)
        return
    rhs.ready, rhs.taken, rhs.top = ast.SignalSet(), {}, len(compiler.emitter._buffer)
    masks = _masks(statements)
    left = ast.SignalDict()
    for statement in statements:
        for signal in statement._lhs_signals():
            left[signal] = left.get(signal, 0) + 1
    for statement in statements:
        compiler(statement)
        for signal in statement._lhs_signals():
            left[signal] -= 1
            if not left[signal] and masks.get(signal) == (1 << len(signal)) - 1:
                rhs.ready.add(signal)


def _masks(statements: Any) -> Any:
    """Signal -> the bits of it that the statements drive."""
    collector = pyrtl.LHSMaskCollector()
    collector.visit_stmt(statements)
    masks = ast.SignalDict()
    for signal, mask in collector.masks():
        masks[signal] = mask & ((1 << len(signal)) - 1)
    return masks


class _MemoryState(pysim._PyMemoryState):
    __slots__ = ()

    def write(self, addr: int, value: int, mask: int | None = None) -> None:
        if mask != 0:
            super().write(addr, value, mask)
