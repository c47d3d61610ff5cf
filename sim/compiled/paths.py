"""Stable names of the signals and memories that the host can reach from a component before it is
elaborated."""

from collections import deque
from typing import Any

from amaranth.hdl import Elaboratable, MemoryData, Signal, Value, ValueCastable
from amaranth.lib import wiring

__all__ = ["Reachable", "reachable"]

_INTERFACES = (wiring.PureInterface, wiring.Component)
_PACKAGES = ("rtl", "sim")


class Reachable:
    """Signals and memories by attribute path, e.g. `top.dispatcher.scale` or
    `top.matrix_sram.banks.3`."""

    def __init__(self) -> None:
        self.signals: dict[str, Signal] = {}
        self.memories: dict[str, MemoryData] = {}
        self._signal_ids: dict[int, str] = {}
        self._memory_ids: dict[int, str] = {}

    def _add(self, path: str, item: object) -> None:
        if isinstance(item, Signal):
            if id(item) not in self._signal_ids:
                self.signals[path] = item
                self._signal_ids[id(item)] = path
        elif isinstance(item, MemoryData) and id(item) not in self._memory_ids:
            self.memories[path] = item
            self._memory_ids[id(item)] = path

    def signal_path(self, signal: Signal) -> str | None:
        """The path of a signal, if it is reachable."""
        return self._signal_ids.get(id(signal))

    def memory_path(self, memory: MemoryData) -> str | None:
        """The path of a memory, if it is reachable."""
        return self._memory_ids.get(id(memory))


def reachable(root: Any) -> Reachable:
    """Everything reachable from `root` through attributes, lists and dicts; the shortest path names
    it.

    Components that are met count as used, so that Amaranth does not complain that they are never
    elaborated.
    """
    found = Reachable()
    seen: set[int] = set()
    queue: deque[tuple[str, Any]] = deque([("", root)])
    while queue:
        path, item = queue.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Elaboratable):
            item._MustUse__used = True  # type: ignore[attr-defined]
        for name, inner in _inner(item):
            where = f"{path}.{name}" if path else name
            if isinstance(inner, ValueCastable | Value):
                try:
                    found._add(where, Value.cast(inner))
                except TypeError:
                    continue
            elif isinstance(inner, MemoryData):
                found._add(where, inner)
            elif not isinstance(inner, str | int | float | bool | bytes | None):
                queue.append((where, inner))
    return found


def _inner(item: Any) -> list[tuple[str, Any]]:
    if isinstance(item, list | tuple):
        return [(str(i), inner) for i, inner in enumerate(item)]
    if isinstance(item, dict):
        return [(str(key), inner) for key, inner in item.items()]
    if isinstance(item, wiring.FlippedInterface):
        return [("flipped", wiring.flipped(item))]
    module = type(item).__module__
    if (
        isinstance(item, _INTERFACES)
        or module == "amaranth.lib.stream"
        or module.split(".")[0] in _PACKAGES
    ):
        return list(getattr(item, "__dict__", {}).items())
    return []
