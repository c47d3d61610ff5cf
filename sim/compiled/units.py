"""C functions for the units of a schedule."""

from sim.compiled.emitting import Wakes
from sim.compiled.logic import LogicWriter
from sim.compiled.ports import PortWriter
from sim.compiled.rows import RowWriter
from sim.compiled.schedule import Unit

__all__ = ["UnitEmitter", "Wakes"]


class UnitEmitter(LogicWriter, RowWriter, PortWriter):
    """Writes the functions of every kind of unit."""

    def unit(self, unit: Unit) -> str:
        """The functions of a unit."""
        if unit.kind == "comb":
            return self._comb(unit)
        if unit.kind == "leaf":
            return self._leaf(unit)
        if unit.kind == "show":
            return self._show(unit)
        if unit.kind == "sync":
            return self._sync(unit)
        if unit.kind == "fetch":
            return self._fetch(unit)
        return self._write(unit)
