"""Directed programs: a scoreboard that never drains, and instructions that just miss, or meet, what
is in it."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from isa.config import PlenaConfig
from isa.opcodes import BY_MNEMONIC, Access, Extent, Opcode, State, Unit
from isa.operands import Kind
from isa.stages import Stage
from testbench.fuzz.addresses import AddressRules
from testbench.fuzz.case import Device, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents

__all__ = ["traffic"]

_BURSTS, _FILLS, _BURSTS_PER_FILL = 60, 6, 16
#: Cycles of memory beyond the usual ones; transfers per burst that keep most slots taken, and all.
_LATENCIES = (300, 120, 600, 300, 200)
_RATES = (0.7, 1.4, 0.4, 2.0)
#: How often an instruction that meets an unfinished one is taken; the others stay beside them all.
_MEETS = 0.12
_TRIES = 12
_WORDS = 64
#: Registers with the offset of all transfers, and for what is loaded; addresses are in the others.
_BYTES, _TARGET = 14, 15
#: Offset of all transfers; experts of V_TOPK, so that it is under way for long.
_OFFSET, _EXPERTS, _SELECTED = 64, (40, 300, 800), 3
#: Cycles of a burst, about.
_BURST_CYCLES = 16

_TRANSFERS = ("H_PREFETCH_V", "H_PREFETCH_V", "H_PREFETCH_V", "H_STORE_V", "H_PREFETCH_M")
_ROWS = (
    *("V_ADD_VV", "V_ADD_VV", "V_SUB_VV", "V_MUL_VF", "V_EXP_V", "V_RED_SUM", "S_MAP_V_FP"),
    *("M_MM", "M_TMM", "M_MV", "M_BMV", "M_BMM"),
    *("M_MM_WO", "M_MV_WO", "M_BMV_WO", "M_BMM_WO"),
)
_WORDS_ONLY = ("S_LD_FP", "S_ST_FP", "S_LD_INT", "S_ST_INT", "S_ADD_FP", "S_EXP_FP")


def traffic(config: PlenaConfig, count: int = 4) -> Iterator[tuple[str, FuzzCase]]:
    """`count` programs, with a name each."""
    for seed in range(count):
        source = _Traffic(config, seed)
        if seed % 2:
            for _ in range(_FILLS):
                source.fill()
            device = Device(seed=seed, extra_latency=500)
        else:
            for _ in range(_BURSTS):
                source.steady()
            device = Device(seed=seed, extra_latency=_LATENCIES[seed // 2 % len(_LATENCIES)])
        yield f"traffic {seed}", source.case(contents(config, 200 + seed), device)


@dataclass(frozen=True)
class _Range:
    """Rows, tiles or words from `first` to before `end`."""

    state: State
    writes: bool
    first: int
    end: int

    def meets(self, other: "_Range") -> bool:
        """Whether one writes what the other reads or writes."""
        return (
            self.state is other.state
            and (self.writes or other.writes)
            and self.first < other.end
            and other.first < self.end
        )


@dataclass(frozen=True)
class _Planned:
    """An instruction: its operands, the registers to be set before it, and what it touches."""

    mnemonic: str
    values: tuple[int, ...]
    setup: tuple[tuple[int, int], ...]
    ranges: tuple[_Range, ...]


class _Traffic(Source):
    """Transfers and V_TOPK keep their slots for long, the others for some cycles. A burst is up to
    four instructions back to back, all of which have their registers set before."""

    def __init__(self, config: PlenaConfig, seed: int) -> None:
        super().__init__(config)
        self.rng = random.Random(f"traffic {seed}")
        self.rules = AddressRules(config)
        self._long: deque[tuple[_Range, ...]] = deque(maxlen=config.INFLIGHT - 1)
        self._short: deque[tuple[_Range, ...]] = deque(maxlen=4)
        self._free = 1
        self._rate = _RATES[seed % len(_RATES)]
        self._selecting = 0
        self._experts = _EXPERTS[seed % len(_EXPERTS)]
        self.gp(12, 2048)
        self.op("C_SET_SCALE_REG", 12)
        self.gp(12, config.MX_BLOCK)
        self.op("C_SET_STRIDE_REG", 12)
        self.gp(12, self._experts << 8 | _SELECTED)
        self.op("C_SET_TOPK_REG", 12)
        self.gp(_BYTES, _OFFSET)

    def steady(self) -> None:
        """A V_TOPK when the last one is over, transfers, and a burst."""
        self._selecting -= _BURST_CYCLES
        if self._selecting < 0 and self.rng.random() < 0.5:
            self._one(("V_TOPK",))
            self._selecting = self._experts
        while self.rng.random() < self._rate / (1 + self._rate):
            self._one(_TRANSFERS)
        self._burst(_MEETS)

    def fill(self) -> None:
        """Behind a C_BREAK, when all slots are free: transfers in most of them, in some a V_TOPK,
        and bursts that meet none of them, as long as they last."""
        rng = self.rng
        self.op("C_BREAK")
        self._long.clear()
        count = rng.randrange(self.config.INFLIGHT // 2, self.config.INFLIGHT - 1)
        selecting = rng.randrange(3 * count)
        for number in range(count):
            self._one(("V_TOPK",) if number == selecting else _TRANSFERS)
        for _ in range(_BURSTS_PER_FILL):
            self._burst(0)
        self._burst(1)

    def _one(self, mnemonics: tuple[str, ...]) -> None:
        self._free = 1
        self._append([self._chosen(mnemonics, _MEETS)])

    def _burst(self, meets: float) -> None:
        """Up to four instructions of one kind or of several."""
        rng = self.rng
        kinds = rng.choice((_ROWS, _ROWS, _ROWS, _WORDS_ONLY, _ROWS + _WORDS_ONLY))
        if rng.random() < 0.2:
            kinds = (rng.choice(kinds),)
        self._free = 1
        self._append([self._chosen(kinds, meets) for _ in range(rng.randrange(1, 5))])

    def _append(self, planned: list[_Planned]) -> None:
        for each in planned:
            for register, value in each.setup:
                self.gp(register, value)
        for each in planned:
            if self.rng.random() < 0.6:
                self.mark(self.rng.choice(list(Stage)).label)
            self.op(each.mnemonic, *each.values)

    def _chosen(self, mnemonics: tuple[str, ...], meets: float) -> _Planned:
        """An instruction that meets no unfinished one, or sometimes (`meets`) one that does."""
        start = self._free
        while True:
            opcode = BY_MNEMONIC[self.rng.choice(mnemonics)]
            for _ in range(_TRIES):
                self._free = start
                planned = self._plan(opcode)
                met = any(r.meets(o) for r in planned.ranges for o in self._unfinished())
                if not met or self.rng.random() < meets:
                    is_long = opcode.unit in (Unit.HBM, Unit.TOPK)
                    (self._long if is_long else self._short).append(planned.ranges)
                    return planned
            mnemonics = _WORDS_ONLY  # some of them meet nothing, ever

    def _unfinished(self) -> Iterator[_Range]:
        """What the latest instructions touch."""
        for ranges in (*self._long, *self._short):
            yield from ranges

    def _plan(self, opcode: Opcode) -> _Planned:
        rng, fields = self.rng, dict[str, int]()
        setup: list[tuple[int, int]] = []
        ranges: list[_Range] = []
        stride = rng.choice((0, 0, 1, 2, 5, 40)) if opcode.mnemonic == "M_MM_WO" else 0
        if opcode.mnemonic == "M_MM_WO":
            fields["rs1"] = self._register(setup, stride) if stride else 0
        for access in opcode.accesses:
            if not access.base or access.extent is Extent.HBM_ROWS:
                continue
            address, touched = self._address(access, stride)
            ranges.append(touched)
            if access.imm:
                fields["imm"], fields[access.base[0]] = address, 0
            else:
                fields[access.base[0]] = self._register(setup, address)
                fields |= dict.fromkeys(access.base[1:], 0)
        values: list[int] = []
        for operand in opcode.operands:
            if operand.name in fields:
                values.append(fields[operand.name])
            elif operand.kind is Kind.GP:
                values.append(_TARGET if operand.writes else _BYTES)
            elif operand.kind is Kind.F:
                values.append(rng.randrange(8))
            elif operand.kind is Kind.FLAG:
                values.append(15 if opcode.mnemonic == "V_TOPK" else rng.choice(operand.allowed))
            else:
                values.append(0)
        return _Planned(opcode.mnemonic, tuple(values), tuple(setup), tuple(ranges))

    def _register(self, setup: list[tuple[int, int]], value: int) -> int:
        setup.append((self._free, value))
        self._free += 1
        return self._free - 1

    def _address(self, access: Access, stride: int) -> tuple[int, _Range]:
        """An address, and what an access there touches."""
        c, rng = self.config, self.rng
        if access.state is State.VECTOR_SRAM:
            rows = self.rules.rows(access.extent)
            if access.extent is Extent.TOPK_ROWS:
                rows = -(-self._experts // c.MLEN)
            elif access.extent is Extent.STRIDED_ROWS:
                rows = 1 + (c.BLEN - 1) * (stride or 1)
            row = self._row(c.VRAM_ROWS - rows)
            return row * c.MLEN, _Range(access.state, access.writes, row, row + rows)
        if access.state is State.MATRIX_SRAM:
            tile = rng.randrange(c.MRAM_TILES)
            return tile * c.tile_elements, _Range(access.state, access.writes, tile, tile + 1)
        return rng.randrange(_WORDS), _Range(access.state, access.writes, 0, 1)

    def _row(self, largest: int) -> int:
        """A row near a limit of an unfinished range: beside it, or one bit away from it."""
        rng = self.rng
        limits = [
            limit
            for r in self._unfinished()
            if r.state is State.VECTOR_SRAM
            for limit in (r.first, r.end)
        ]
        near = rng.choice(limits) if limits and rng.random() < 0.85 else rng.randrange(largest + 1)
        if rng.random() < 0.6:
            near ^= 1 << rng.randrange(largest.bit_length())
        near += rng.choice((0, 0, 0, 1, -1, -4, 4, -2))
        return min(max(near, 0), largest)
