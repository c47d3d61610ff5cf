"""What the writers of unit functions share: wake-up flags, and the moves of values into storage."""

from collections.abc import Iterable, Sequence

from sim.compiled.layout import Layout
from sim.compiled.leaf import LeafFunction
from sim.compiled.netlist import Netlist
from sim.compiled.scalar import literal
from sim.compiled.schedule import Reads, Schedule, Unit
from sim.compiled.wide import StorageEmitter, Tables

__all__ = ["UnitWriter", "Wakes"]


class Wakes:
    """Flags to raise when a net or a memory has changed: a bit per unit, in words of 64."""

    def __init__(self, schedule: Schedule) -> None:
        self._of_net: dict[int, set[int]] = {}
        self._of_memory: dict[int, set[int]] = {}
        for unit in schedule.units:
            for net in unit.reads:
                self._of_net.setdefault(net, set()).add(unit.index)
            for memory in unit.memories:
                self._of_memory.setdefault(memory, set()).add(unit.index)
        self._drivers = {net: unit.index for unit in schedule.comb for net in unit.drives}

    def bits(self, net: int, *, itself: bool = False) -> frozenset[int]:
        """Units to wake for a net; its own driver only if asked for."""
        found = self._of_net.get(net, set())
        return frozenset(found if itself else found - {self._drivers.get(net, -1)})

    @staticmethod
    def text(units: Iterable[int]) -> str:
        """Statements that raise the flags."""
        masks: dict[int, int] = {}
        for index in units:
            masks[index // 64] = masks.get(index // 64, 0) | 1 << index % 64
        return " ".join(f"S64({8 * word}) |= {mask:#x}ull;" for word, mask in sorted(masks.items()))

    def net(self, net: int, *, itself: bool = False) -> str:
        """Statements for a changed net."""
        return self.text(self.bits(net, itself=itself))

    def memory(self, memory: int) -> str:
        """Statements for a changed memory."""
        return self.text(self._of_memory.get(memory, ()))

    def units_of(self, net: int) -> frozenset[int]:
        """All readers of a net."""
        return frozenset(self._of_net.get(net, ()))

    def units_of_memory(self, memory: int) -> frozenset[int]:
        """All readers of a memory."""
        return frozenset(self._of_memory.get(memory, ()))


class UnitWriter:
    """Writes `static void unit_<index>(u8 *M)`, and for clocked units `commit_<index>`, which makes
    the next values the current ones.
    """

    def __init__(
        self,
        netlist: Netlist,
        schedule: Schedule,
        layout: Layout,
        leaves: dict[object, LeafFunction],
        commit: int,
    ) -> None:
        self.netlist, self.layout, self._leaves = netlist, layout, leaves
        self._reads: Reads = schedule.reads
        self._commit = commit  # from the flag of a clocked unit to the one that asks for its commit
        self.wakes = Wakes(schedule)
        self.tables = Tables()

    def start(self) -> StorageEmitter:
        """For the lines of one more function."""
        return StorageEmitter(self.layout, self.tables)

    @staticmethod
    def _function(name: str, lines: Sequence[str], note: str = "") -> str:
        comment = f" /* {note} */" if note else ""
        return "\n".join([f"static void {name}(u8 *M) {{{comment}", *lines, "}", ""])

    def _settle(self, e: StorageEmitter, index: int, name: str, *, itself: bool) -> None:
        slot, wake = self.layout.slots[index], self.wakes.net(index, itself=itself)
        if slot.size <= 8:
            place = f"S{8 * slot.size}({slot.at})"
            e.line(
                f"if ({place} != {name}) {{ {place} = {name}; {wake} }}"
                if wake
                else f"{place} = {name};"
            )
        else:
            n = slot.size // 8
            copy = f"w_copy(P64({slot.at}), {name}, {n});"
            e.line(f"if (!w_eq(P64({slot.at}), {name}, {n})) {{ {copy} {wake} }}" if wake else copy)

    def _init(self, e: StorageEmitter, index: int, name: str) -> None:
        net = self.netlist.nets[index]
        if net.width <= 64:
            e.line(f"{name} = {literal(net.init, net.width)};")
        else:
            e.wide_into(self.netlist.factory.const(net.init, net.width), name)

    def _committer(self, unit: Unit) -> str:
        """Moves next values to current ones, where they differ, and wakes the readers."""
        e = self.start()
        runs: list[tuple[int, int, int, frozenset[int]]] = []
        for index in sorted(unit.drives, key=lambda n: self.layout.slots[n].at):
            slot, wake = self.layout.slots[index], self.wakes.units_of(index)
            last = runs[-1] if runs else None
            if (
                last
                and last[0] + last[2] == slot.at
                and last[1] + last[2] == slot.next
                and last[3] == wake
            ):
                runs[-1] = last[0], last[1], last[2] + slot.size, wake
            else:
                runs.append((slot.at, slot.next, slot.size, wake))
        for at, following, size, wake in runs:
            text = self.wakes.text(wake)
            if size in (1, 2, 4, 8):
                now, later = f"S{8 * size}({at})", f"S{8 * size}({following})"
                e.line(f"if ({now} != {later}) {{ {now} = {later}; {text} }}")
            elif size % 8 == 0:
                pair = f"P64({at}), P64({following}), {size // 8}"
                e.line(f"if (!w_eq({pair})) {{ w_copy({pair}); {text} }}")
            else:
                pair = f"M + {at}, M + {following}, {size}"
                e.line(f"if (memcmp({pair})) {{ memcpy({pair}); {text} }}")
        return self._function(f"commit_{unit.index}", e.lines)
