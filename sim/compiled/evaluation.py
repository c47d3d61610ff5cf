"""Expressions over a design's signals, computed by Amaranth's own evaluator."""

from collections.abc import Callable

from amaranth.hdl import Signal, Value

from sim.private import evaluation

__all__ = ["evaluate"]

#: The settled bit pattern of a signal.
Bits = Callable[[Signal], int]


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


class _Slots:
    """The state that the evaluator asks for."""

    def __init__(self, bits: Bits) -> None:
        self._bits = bits
        self.slots = self

    def get_signal(self, signal: Signal) -> Signal:
        return signal

    def __getitem__(self, signal: Signal) -> _Slot:
        return _Slot(self._bits, signal)


def evaluate(value: Value, bits: Bits) -> int:
    """The number that `value` has when its signals have these bit patterns."""
    return int(evaluation.eval_value(_Slots(bits), value))
