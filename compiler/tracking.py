"""What the control registers are known to hold while a program is emitted, loops included."""

from dataclasses import dataclass, field

#: A control register: "SCALE", "STRIDE", "V_MASK", "TOPK", or the text of an address register.
Key = str


@dataclass
class _Loop:
    """One open loop: values that its body took from before it, and keys that its body wrote."""

    relied: dict[Key, int] = field(default_factory=dict)
    written: set[Key] = field(default_factory=set)


class TrackedState:
    """Known values of control registers; unknown at the start, so a program may run twice.

    A loop body is emitted once and runs many times. It may rely on a value from before the loop
    only if that value is there again in the next iteration: `to_restore` lists those that are not,
    and the loop emitter writes them back at the end of the body.
    """

    def __init__(self) -> None:
        self._values: dict[Key, int] = {}
        self._loops: list[_Loop] = []

    def known(self, key: Key, value: int) -> bool:
        """Whether `key` holds `value` here; the open loops note that their bodies rely on it."""
        if self._values.get(key) != value:
            return False
        for loop in self._loops:
            if key not in loop.written:
                loop.relied.setdefault(key, value)
        return True

    def wrote(self, key: Key, value: int) -> None:
        """Note that the program just set `key` to `value`."""
        self._values[key] = value
        for loop in self._loops:
            loop.written.add(key)

    def forget(self, key: Key) -> None:
        """Nobody holds `key` any more, so that nobody may rely on it."""
        self._values.pop(key, None)

    def enter_loop(self) -> None:
        """Open a loop; its body starts with what is known here."""
        self._loops.append(_Loop())

    def to_restore(self) -> list[tuple[Key, int]]:
        """What the innermost loop must set again before its end, in the order it was relied on."""
        relied = self._loops[-1].relied
        return [(k, value) for k, value in relied.items() if self._values.get(k) != value]

    def leave_loop(self) -> None:
        """Close the innermost loop; known values stay, since a body runs at least once."""
        self._loops.pop()
