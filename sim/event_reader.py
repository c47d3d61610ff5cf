"""Makes events out of a settled cycle, for engines that are clocked one cycle at a time."""

from collections.abc import Sequence

from sim.engine import Engine
from sim.observers import Completed, Dispatched, Observer, Stored, Written
from sim.probe import WritePort


class EventReader:
    """Reads what the probe's flags announce, and hands it out.

    Args:
        engine: whose top and probe are read.
        observers: all of them.
        outside: those that the caller of a run attached. If one of them wants the writes of
        registers and words (it overrides `stored`), dispatches carry the state registers too.
    """

    def __init__(
        self, engine: Engine, observers: Sequence[Observer], outside: Sequence[Observer]
    ) -> None:
        self._engine, self._observers = engine, observers
        self._storing = [o for o in outside if type(o).stored is not Observer.stored]

    def read(self, flags: int, cycle: int) -> None:
        """The events of `cycle`: dispatch, completions, rows, then registers and words."""
        probe = self._engine.probe
        if flags & probe.dispatch_bit:
            self._dispatched(cycle)
        if flags & probe.completion_mask:
            for bit, name in probe.completion_bits.items():
                if flags & bit:
                    self._completed(cycle, name)
        if flags & probe.write_mask:
            for bit, write in probe.write_bits.items():
                if flags & bit:
                    self._written(cycle, write)
        if flags & probe.word_mask and self._storing:
            self._stored(flags, cycle)

    def _dispatched(self, cycle: int) -> None:
        get, probe = self._engine.get, self._engine.probe
        d = self._engine.top.dispatch
        registers = probe.state_registers.values() if self._storing else ()
        state = tuple(get(register) for register in registers)
        event = Dispatched(cycle, get(d.pc), get(d.word), get(d.stage), get(d.unit), state)
        for observer in self._observers:
            observer.dispatched(event)

    def _completed(self, cycle: int, name: str) -> None:
        get, tag = self._engine.get, self._engine.probe.completions[name].tag
        event = Completed(cycle, name, get(tag.pc), get(tag.stage))
        for observer in self._observers:
            observer.completed(event)

    def _written(self, cycle: int, write: WritePort) -> None:
        get, port, mlen = self._engine.get, write.port, self._engine.config.MLEN
        if write.memory == "mram":
            row, lanes = get(port.tile) * mlen + get(port.row), (1 << mlen) - 1
        else:
            row, lanes = get(port.row), get(port.lanes)
        data, tag = get(port.data), port.tag
        event = Written(
            cycle, write.name, write.memory, row, lanes, data, get(tag.pc), get(tag.stage)
        )
        for observer in self._observers:
            observer.written(event)

    def _stored(self, flags: int, cycle: int) -> None:
        get = self._engine.get
        for bit, port in self._engine.probe.word_bits.items():
            if flags & bit:
                event = Stored(cycle, port.file, get(port.index), get(port.value))
                for observer in self._storing:
                    observer.stored(event)
