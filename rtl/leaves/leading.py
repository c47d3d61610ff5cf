"""Cases by the number of leading zeros, the form in which simulators and compilers do well."""

from collections.abc import Iterator

from amaranth.hdl import Module, Value

__all__ = ["leading_zero_cases"]


def leading_zero_cases(m: Module, value: Value) -> Iterator[int]:
    """Open a case of ``m`` for each number of leading zeros of ``value`` and yield that number.

    A value of zero matches none, so what holds for it is assigned before. The loop over the cases
    must not be left early.
    """
    bits = len(value)
    with m.Switch(value):
        for zeros in range(bits):
            with m.Case("0" * zeros + "1" + "-" * (bits - 1 - zeros)):
                yield zeros
