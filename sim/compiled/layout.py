"""Where every net and memory is in the engine's storage."""

from collections.abc import Iterable
from dataclasses import dataclass

from sim.compiled.netlist import MemoryCell, Net

__all__ = ["Layout", "Slot", "container"]

_PAGE = 64


def container(width: int) -> int:
    """Bytes that a value of this width takes: a power of two up to 8, then whole words."""
    for size in (1, 2, 4, 8):
        if width <= 8 * size:
            return size
    return 8 * ((width + 63) // 64)


@dataclass(frozen=True)
class Slot:
    """Byte offset of a net, and of the copy that holds a register's next value (-1: none)."""

    at: int
    next: int
    size: int


class Layout:
    """Hands out storage: first the flags, then nets in the order in which they are placed, then
    memories.

    Nets that are placed one after the other and have one width are neighbours, so that a row of
    them is an array.
    """

    def __init__(self, nets: list[Net], flag_words: int) -> None:
        self.nets = nets
        self.flag_words = flag_words
        self.slots: dict[int, Slot] = {}
        self.memories: dict[int, tuple[int, int]] = {}  #: index -> offset, bytes per row
        self._end = -(-8 * flag_words // _PAGE) * _PAGE
        self.next_end = 0

    def _take(self, size: int) -> int:
        align = min(size, 8) if size <= 8 else 8
        self._end = -(-self._end // align) * align
        at = self._end
        self._end += size
        return at

    def place(self, nets: Iterable[int]) -> None:
        """Places nets that have no place yet."""
        for index in nets:
            if index not in self.slots:
                size = container(self.nets[index].width)
                self.slots[index] = Slot(self._take(size), -1, size)

    def place_next(self) -> None:
        """Places the second copies, in the order of the first ones."""
        self._end = -(-self._end // _PAGE) * _PAGE
        for index, slot in self.slots.items():
            if self.nets[index].kind in ("register", "read"):
                self.slots[index] = Slot(slot.at, self._take(slot.size), slot.size)

    def place_memories(self, memories: Iterable[MemoryCell]) -> None:
        """Places the rows of the memories, each in a container."""
        for memory in memories:
            self._end = -(-self._end // _PAGE) * _PAGE
            row = container(memory.width)
            self.memories[memory.index] = self._end, row
            self._end += row * memory.depth

    def reserve(self, size: int) -> int:
        """Storage for something else."""
        self._end = -(-self._end // _PAGE) * _PAGE
        at = self._end
        self._end += size
        return at

    @property
    def size(self) -> int:
        """Bytes in all, with some to spare behind the last one for wide loads."""
        return self._end + _PAGE
