"""Who waits for whom when nothing moves any more: read out of the halted clock, on any engine."""

from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import Value

from isa.config import PlenaConfig
from isa.image import ProgramImage
from isa.instruction import DecodeError, Instruction
from isa.opcodes import Unit
from isa.operands import Kind
from isa.topk import EXPERTS_LIMIT
from rtl.dispatch.events import RunState, Stall
from rtl.top import PlenaTop
from sim.hbm import HbmDevice
from sim.pc_accounts import PcAccounts
from sim.result import describe

__all__ = ["STALLS", "explain", "patience"]

Get = Callable[[Value], int]

#: What a stall reason means, for a person.
STALLS: dict[Stall, str] = {
    Stall.NONE: "an instruction was dispatched in this cycle",
    Stall.NO_UNIT: "its unit, or every slot, is taken (issue policy serial: something is "
    "unfinished)",
    Stall.HAZARD: "it conflicts with an older unfinished instruction",
    Stall.MEMORY: "it waits for an unfinished H_* instruction, or for room in the HBM port",
    Stall.FETCH: "its word is not there",
    Stall.DRAIN: "the program is over or about to stop, and unfinished instructions must complete",
}


def patience(config: PlenaConfig) -> int:
    """Cycles without any event after which a run is given up: far more than any instruction takes.

    The longest silences are a V_TOPK over the most experts, the compute phase of an M_BMM, and the
    memory's latency.
    """
    longest = EXPERTS_LIMIT + config.tile_elements // config.BLEN + config.HBM_LATENCY
    return 4 * longest


def explain(
    top: PlenaTop,
    get: Get,
    image: ProgramImage,
    accounts: PcAccounts,
    hbm: HbmDevice,
    cycle: int,
    idle: int,
) -> str:
    """The report: dispatch, unfinished instructions with what they hold, units, memory.

    Args:
        get: the settled value of a signal.
        accounts, hbm: of the run; cycle: the cycle that the clock stands before.
        idle: cycles since anything happened.
    """
    since = f"since cycle {cycle - idle}, for {idle} cycles" if idle else "and it still moves"
    lines = [f"nothing has happened {since}" if idle else f"given up in cycle {cycle} {since}"]
    lines += _Front(top, get, image).lines()
    lines += _unfinished(top, get, image, accounts)
    lines += _units(top, get)
    lines += _memory(top, get, hbm, cycle)
    return "\n".join(lines)


class _Front:
    """The instruction at dispatch."""

    def __init__(self, top: PlenaTop, get: Get, image: ProgramImage) -> None:
        self._top, self._get, self._image = top, get, image
        self._pc = get(top.pc)

    def lines(self) -> Iterator[str]:
        """Which it is, why it waits, and what it wants."""
        stall = Stall(self._get(self._top.stall))
        state = RunState(self._get(self._top.state))
        yield f"dispatch: {describe(self._image, self._pc)}"
        yield f"  {state.name}, {stall.name}: {STALLS[stall]}"
        wants = _footprint(self._get, self._top.dispatcher.scoreboard.candidate)
        if wants and self._pc < len(self._image):
            yield f"  it {wants}"
        pending = self._pending()
        if pending:
            yield f"  a unit has still to write {', '.join(pending)}"

    def _pending(self) -> list[str]:
        """Registers that it names and that a unit will still write."""
        if self._pc >= len(self._image):
            return []
        try:
            instruction = Instruction.decode(int(self._image.words[self._pc]))
        except DecodeError:
            return []
        dispatcher = self._top.dispatcher
        files = {Kind.GP: dispatcher.gp, Kind.F: dispatcher.f}
        named = [
            (operand.kind, instruction.value(operand.name))
            for operand in instruction.opcode.operands
            if operand.kind in files
        ]
        return [
            f"{kind.value}{index}"
            for kind, index in dict.fromkeys(named)
            if self._get(files[kind].pending) >> index & 1
        ]


def _span(what: str, first: int, end: int) -> str:
    return f"{what} {first}" if end == first + 1 else f"{what}s {first} to {end - 1}"


def _footprint(get: Get, print_: Any) -> str:
    """`reads rows 0 to 3; writes tile 2`: what an instruction holds, in the scoreboard's terms."""
    reads: list[str] = []
    writes: list[str] = []
    if get(print_.a_valid):
        reads.append(_span("row", get(print_.a_first), get(print_.a_end)))
    if get(print_.b_valid):
        reads.append(f"row {get(print_.b_row)}")
    if get(print_.w_valid):
        writes.append(_span("row", get(print_.w_first), get(print_.w_end)))
    for names, flag in ((reads, print_.m_reads), (writes, print_.m_writes)):
        if get(flag):
            names.append(f"tile {get(print_.tile)}")
    for name, memory in (("fp", "FP_MEM"), ("int", "INT_MEM")):
        for names, kind in ((reads, "reads"), (writes, "writes")):
            if get(getattr(print_, f"{name}_{kind}")):
                names.append(memory)
    parts = [f"{verb} {', '.join(names)}" for verb, names in (("reads", reads), ("writes", writes))]
    return "; ".join(part for part, names in zip(parts, (reads, writes), strict=True) if names)


def _unfinished(
    top: PlenaTop, get: Get, image: ProgramImage, accounts: PcAccounts
) -> Iterator[str]:
    """Every slot, oldest first; the host's list of pcs is in the same order."""
    scoreboard = top.dispatcher.scoreboard
    valid, hits = get(scoreboard.valid), get(scoreboard.hits)
    slots = [slot for slot in range(top.config.INFLIGHT) if valid >> slot & 1]
    older = {slot: get(scoreboard.older[slot]) if slot else 0 for slot in slots}

    def elders(slot: int) -> int:
        above = sum(not older[higher] >> slot & 1 for higher in slots if higher > slot)
        return older[slot].bit_count() + above

    slots.sort(key=elders)
    count = int(accounts.progress[0])
    pcs: list[int | None] = accounts.order[:count, 0].tolist()
    if len(pcs) != len(slots):  # after a memory error, or when the hardware has lost one
        yield (
            f"the host counts {len(pcs)} unfinished instructions (pcs {pcs}), the scoreboard "
            f"{len(slots)}"
        )
        pcs = [None] * len(slots)
    yield "unfinished, oldest first:" if slots else "no instruction is unfinished"
    for slot, pc in zip(slots, pcs, strict=True):
        unit = Unit(get(scoreboard.prints[slot].unit)).name
        what = "" if pc is None else f" {describe(image, pc)}"
        holds = _footprint(get, scoreboard.prints[slot]) or "holds no memory"
        mark = "  <- dispatch waits for it" if hits >> slot & 1 else ""
        yield f"  slot {slot}, {unit}:{what}; {holds}{mark}"


def _units(top: PlenaTop, get: Get) -> Iterator[str]:
    """Per unit: whether it has work, and whether it would take more."""
    states = []
    for unit in Unit:
        if unit is not Unit.CONTROL:
            name = unit.name.lower()
            busy = get(getattr(top.dispatcher.scoreboard, f"busy_{name}"))
            ready = get(getattr(top.dispatcher, f"{name}_issue").ready)
            work = "busy" if busy else "idle"
            states.append(f"{unit.name} {work}, {'takes more' if ready else 'takes no more'}")
    yield f"units: {'; '.join(states)}"


def _memory(top: PlenaTop, get: Get, hbm: HbmDevice, cycle: int) -> Iterator[str]:
    """Requests without an answer, and the one that waits to be accepted."""
    due = hbm.next_response
    answer = "" if due is None else f", the next answer is due in cycle {due}"
    text = f"memory: {hbm.under_way} requests without an answer{answer}"
    request = top.hbm_request
    if get(request.valid):
        payload = request.payload
        kind = "write" if get(payload.write) else "read"
        state = "can be" if hbm.ready(cycle) else "is not"
        text += (
            f"; the {kind} of beat 0x{get(payload.address):X} for pc {get(payload.tag.pc)} {state} "
            "accepted"
        )
    yield f"{text}; it holds at most {hbm.capacity}"
