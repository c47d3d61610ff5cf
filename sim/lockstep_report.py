"""Lock step's view of the hardware's stored state, and its report of a difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.hbm import HbmMemory
from sim.machine import Machine, MachineState
from sim.memories import Memories
from sim.mismatch import canonical
from sim.result import describe
from sim.simulation import Simulation

SHOWN = 8

Dispatch = tuple[int, int]
"""An instruction as it was dispatched: its number in the run, and its pc."""


class Seen:
    """The hardware's registers as its events have shown them: as of the last event, however late
    that is looked at.

    Attributes: `files` ("gp", "f" and "a", lists), `state` (values of `state_names`).
    """

    def __init__(self, memories: Memories) -> None:
        self.files: dict[str, list[int]] = {
            "gp": memories.read_gp().tolist(),
            "f": memories.read_f().tolist(),
            "a": memories.read_a().tolist(),
        }
        state = memories.read_state()
        self.state_names, self.state = tuple(state), tuple(state.values())

    def store(self, file: str, index: int, value: int) -> None:
        """A register was written; words of memories are not kept."""
        if file in self.files:
            self.files[file][index] = value


def _words(
    name: str, got: npt.NDArray[np.generic], want: npt.NDArray[np.generic]
) -> tuple[str, str] | None:
    if got.dtype == np.uint16:
        got, want = canonical(got.view(np.uint16)), canonical(want.view(np.uint16))
    wrong = np.flatnonzero(got != want)[:SHOWN].tolist()
    if not wrong:
        return None
    width = 2 * got.dtype.itemsize

    def text(values: npt.NDArray[np.generic]) -> str:
        return ", ".join(f"{name}[{i}] = 0x{int(values[i]):0{width}X}" for i in wrong)

    return text(got), text(want)


def _rows(
    memory: str,
    got: npt.NDArray[np.uint16],
    want: npt.NDArray[np.uint16],
    undefined: set[tuple[str, int]],
) -> tuple[str, str] | None:
    for row in np.flatnonzero((canonical(got) != canonical(want)).any(axis=1)).tolist():
        if (memory, row) not in undefined:
            name = f"{memory} row {row} lane"
            return _words(name, got[row], want[row])
    return None


def _hbm(hardware: HbmMemory, machine: HbmMemory) -> tuple[str, str] | None:
    left, right = hardware.image(), machine.image()
    for address in sorted(left.keys() | right.keys()):
        size = len(left.get(address) or right[address])
        got = np.frombuffer(left.get(address, bytes(size)), np.uint8)
        want = np.frombuffer(right.get(address, bytes(size)), np.uint8)
        difference = _words(f"HBM 0x{address:X} +", got, want)
        if difference is not None:
            return difference
    return None


def compare_states(
    simulation: Simulation, machine: Machine, undefined: set[tuple[str, int]]
) -> tuple[str, str] | None:
    """The first difference of the whole state as (hardware, machine), None when there is none.

    Rows in `undefined`, as (memory, row), are left out.
    """
    here, there = simulation.memories, machine.memories
    registers = (
        ("gp", here.read_gp(), there.read_gp()),
        ("f", here.read_f(), there.read_f()),
        ("a", here.read_a(), there.read_a()),
        ("FP_MEM", here.read_fp(), there.read_fp()),
        ("INT_MEM", here.read_int(), there.read_int()),
    )
    for name, got, want in registers:
        if (difference := _words(name, got, want)) is not None:
            return difference
    if here.read_state() != there.read_state():
        return str(here.read_state()), str(there.read_state())
    difference = _rows("vram", here.read_vector(), there.read_vector(), undefined)
    if difference is None:
        lanes = simulation.config.MLEN
        got, want = (m.read_tiles().reshape(-1, lanes) for m in (here, there))
        difference = _rows("mram", got, want, undefined)
    return difference or _hbm(simulation.hbm, machine.hbm) or _accumulators(here, there)


def _accumulators(here: Memories, there: MachineState) -> tuple[str, str] | None:
    for name, got in here.read_accumulators().items():
        want: npt.NDArray[np.float32] = getattr(there, name)
        patterns = [
            np.where(np.isnan(v), np.float32(np.nan), v).reshape(-1).view(np.uint32)
            for v in (got, want)
        ]
        if (difference := _words(name, *patterns)) is not None:
            return difference
    return None


@dataclass(frozen=True)
class Report:
    """The text of a difference: what, where, the instructions before, both register files."""

    simulation: Simulation
    machine: Machine
    seen: Seen
    cycle: int
    history: Sequence[Dispatch]
    unfinished: Sequence[Dispatch]

    def text(self, what: str, got: str, want: str, at: Dispatch | None) -> str:
        """The whole report; `at` is the instruction that the difference belongs to."""
        where = "" if at is None else f"\n  instruction {self._line(at)}"
        lines = [
            f"lock step, cycle {self.cycle}: {what}{where}",
            f"  hardware: {got}",
            f"  machine:  {want}",
            f"the last {len(self.history)} instructions:",
            *(f"  {self._line(d)}" for d in self.history),
            f"unfinished: {', '.join(f'#{n} (pc {pc})' for n, pc in self.unfinished) or 'none'}",
            "registers, hardware (unfinished instructions have not written yet) | machine:",
            *self._registers(),
        ]
        return "\n".join(lines)

    def _line(self, dispatch: Dispatch) -> str:
        number, pc = dispatch
        image = self.simulation.image
        source = image.source[int(image.lines[pc]) - 1].strip()
        return f"#{number} {describe(image, pc)}  <- {source}"

    def _registers(self) -> list[str]:
        here, there = self.seen, self.machine.memories
        files = (
            ("gp", there.read_gp(), 8),
            ("f", there.read_f(), 4),
            ("a", there.read_a(), 16),
        )
        lines = []
        for name, want, width in files:
            for i, (g, w) in enumerate(zip(here.files[name], want.tolist(), strict=True)):
                if g or w:
                    mark = "" if g == w else "  <- differs"
                    lines.append(f"  {name}{i}: {g:0{width}X} | {w:0{width}X}{mark}")
        values = zip(here.state_names, here.state, there.read_state().values(), strict=True)
        lines += [f"  {name}: {g:X} | {w:X}" for name, g, w in values]
        return lines
