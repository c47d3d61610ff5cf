"""Memories whose write ports cost the simulator little while they write nothing.

Amaranth's simulator repeats every enable bit of a port over the bits it stands for, and does that
bit by bit in every cycle: for the vector SRAM's four ports that is an expression of 4096 terms.
"""

from collections.abc import Iterator
from typing import Any

from sim.private import ast, memories, pysim

__all__ = ["MaskedEngine"]


class MaskedEngine(pysim.PySimEngine):
    """Amaranth's engine, given the same ports with an expression that looks at the whole enable
    first: none, all, or bit by bit."""

    def __init__(self, design: Any) -> None:
        for fragment in design.fragments:
            if isinstance(fragment, memories.MemoryInstance):
                for port in fragment._write_ports:
                    port._en = _Enable(_mask(port._en, port._granularity))
        super().__init__(design)


class _Enable:
    """Stands for the enable of a port: as long as its row, and iterated over in one piece."""

    def __init__(self, mask: Any) -> None:
        self._mask = mask

    def __len__(self) -> int:
        return len(self._mask)

    def __iter__(self) -> Iterator[Any]:
        return iter((self._mask,))


def _mask(en: Any, granularity: int) -> Any:
    """A bit for every bit of the row."""
    width = len(en) * granularity
    cases: list[tuple[tuple[str, ...] | None, Any]] = [
        (("0" * len(en),), ast.Const(0, width)),
        (("1" * len(en),), ast.Const((1 << width) - 1, width)),
    ]
    if len(en) > 1:
        cases.append((None, ast.Cat(bit.replicate(granularity) for bit in en)))
    return ast.SwitchValue(en, cases)
