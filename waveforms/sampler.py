"""Reads a selection out of an engine: every signal once per cycle, whatever is shown of it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Const, Value
from amaranth.hdl._ast import Slice

from sim.engine import Engine
from sim.private import memories
from waveforms.wave import NOTHING, Banked, Computed, Group, Kind, Mapped, Wave, width_of

Raws = list[int]
Read = Callable[[Raws], int]
Show = Callable[[Raws], Any]


@dataclass(frozen=True, eq=False)
class Channel:
    """One variable of the file.

    Args:
        scope, name: where it is; the full name is `scope.name`.
        kind: the kind of its wave.
        width: bits; 0 for a string.
        show: its value, from the raw values of a cycle.
        depends: which raw values those are.
        beside: it is the number beside a string.
    """

    scope: str
    name: str
    kind: Kind
    width: int
    show: Show
    depends: frozenset[int]
    beside: bool = False

    @property
    def path(self) -> str:
        """The full name."""
        return f"{self.scope}.{self.name}"


class Sampler:
    """The signals of a selection, each once, and the channels that are shown of them.

    Members: `channels`; `signals`, what is read of the machine; `read()` gives the raw values of
    the cycle; `watchers[i]` are the channels that depend on raw value i.
    """

    def __init__(self, engine: Engine, groups: Iterable[Group]) -> None:
        self._engine = engine
        self._places: dict[object, int] = {}
        self._keep: list[object] = []  # alive, so that their id stays theirs
        self._readers: list[Callable[[], int] | None] = []  # None: a signal, the next one
        self.signals: list[Value] = []
        self.channels = [c for g in groups for w in g.waves for c in self._channels(g.name, w)]
        self.watchers: list[list[Channel]] = [[] for _ in self._readers]
        for channel in self.channels:
            for place in channel.depends:
                self.watchers[place].append(channel)

    def read(self, values: Sequence[int] | None = None) -> Raws:
        """The raw values of the cycle that the engine is in; `values` are those of `signals`, if
        they were read before."""
        if values is None:
            values = [self._engine.get(signal) for signal in self.signals]
        following = iter(values)
        return [next(following) if read is None else read() for read in self._readers]

    def _channels(self, scope: str, wave: Wave) -> Iterator[Channel]:
        """What one wave becomes: a vector, a string, or both."""
        used: set[int] = set()
        value = self._value(wave.source, used)
        width = width_of(wave.source)
        if wave.kind in (Kind.ENUM, Kind.TEXT):
            assert wave.names is not None, f"{scope}.{wave.name} is shown by name but has none"
            show, index_uses = _named(value, wave.names), frozenset(used)
            if wave.valid is not None:
                show = _gated(show, self._value(wave.valid, used))
            yield Channel(scope, wave.name, wave.kind, 0, show, frozenset(used))
            if wave.kind is Kind.ENUM:
                name = f"{wave.name}_index"
                yield Channel(scope, name, Kind.DECIMAL, width, value, index_uses, beside=True)
        else:
            yield Channel(scope, wave.name, wave.kind, width, value, frozenset(used))

    def _value(self, source: Any, used: set[int]) -> Read:
        """How to find `source` in the raw values; adds the places that it needs to `used`."""
        if isinstance(source, Computed):
            place = self._place(source, source.read, used)
            return lambda raws: raws[place]
        if isinstance(source, Banked):
            which = self._value(source.select, used)
            banks = [self._value(bank, used) for bank in source.banks]
            return lambda raws: banks[which(raws)](raws)
        if isinstance(source, Mapped):
            inner, table = self._value(source.source, used), source.table
            return lambda raws: table(inner(raws))
        value = Value.cast(source)
        shift, mask = 0, (1 << len(value)) - 1
        while isinstance(value, Slice):
            shift += value.start
            value = value.value
        if isinstance(value, Const):
            constant = value.value >> shift & mask
            return lambda _: constant
        place = self._place(value, None, used)
        return lambda raws: raws[place] >> shift & mask

    def _place(self, key: Any, reader: Callable[[], int] | None, used: set[int]) -> int:
        place = self._places.setdefault(_identity(key), len(self._readers))
        if place == len(self._readers):
            self._readers.append(reader)
            if reader is None:
                self.signals.append(key)
            self._keep.append(key)
        used.add(place)
        return place


def _identity(key: Any) -> object:
    """Equal for one signal, also for two looks at one row of a memory."""
    return (id(key._memory), key._index) if isinstance(key, memories.MemoryData._Row) else id(key)


def _named(value: Read, names: Callable[[int], str]) -> Show:
    return lambda raws: names(value(raws))


def _gated(show: Show, valid: Read) -> Show:
    return lambda raws: show(raws) if valid(raws) else NOTHING
