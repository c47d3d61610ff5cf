"""Expressions over a design's signals, computed by Amaranth's own evaluator."""

from collections.abc import Callable

from amaranth.hdl import MemoryData, Signal, Value

from sim.private import evaluation

__all__ = ["evaluate"]

#: The settled bit pattern of a signal.
Bits = Callable[[Signal], int]
#: The bit pattern of a row of a memory.
Row = Callable[[MemoryData, int], int]


class _Slot:
    """A signal as the evaluator sees it."""

    __slots__ = ("_bits", "_signal")

    def __init__(self, bits: Bits, signal: Signal) -> None:
        self._bits, self._signal = bits, signal

    @property
    def curr(self) -> int:
        value = self._bits(self._signal)
        if self._signal.shape().signed and value >> (len(self._signal) - 1):
            value -= 1 << len(self._signal)
        return value


class _Rows:
    """A memory as the evaluator sees it."""

    __slots__ = ("_memory", "_row")

    def __init__(self, row: Row, memory: MemoryData) -> None:
        self._row, self._memory = row, memory

    def read(self, number: int) -> int:
        return self._row(self._memory, number)


class _Slots:
    """The state that the evaluator asks for."""

    def __init__(self, bits: Bits, row: Row) -> None:
        self._bits, self._row = bits, row
        self.slots = self

    def get_signal(self, signal: Signal) -> Signal:
        return signal

    def get_memory(self, memory: MemoryData) -> MemoryData:
        return memory

    def __getitem__(self, of: Signal | MemoryData) -> _Slot | _Rows:
        return _Rows(self._row, of) if isinstance(of, MemoryData) else _Slot(self._bits, of)


def evaluate(value: Value, bits: Bits, row: Row) -> int:
    """The number that `value` has when its signals and rows of memories have these bit patterns."""
    return int(evaluation.eval_value(_Slots(bits, row), value))
