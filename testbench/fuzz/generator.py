"""Random programs, weighted towards what units can get wrong about each other."""

import random
from collections.abc import Callable

import numpy as np

from isa.config import PlenaConfig
from isa.opcodes import OPCODES, Unit
from testbench.fuzz.addresses import HBM_WINDOW, ROW_WINDOW, TOPK_EXPERTS
from testbench.fuzz.case import Contents, Device, FuzzCase
from testbench.fuzz.dependencies import between
from testbench.fuzz.directed import REGISTERS, Item
from testbench.fuzz.emitter import A_REGISTERS, Emitter
from testbench.fuzz.traps import emit_trap, near_limits
from testbench.fuzz.values import bf16_values, mx_bytes

SCALES_AT = HBM_WINDOW


class Generator:
    """Makes programs of the opcodes in `mnemonics` for one configuration, from one seed."""

    def __init__(self, config: PlenaConfig, seed: int, mnemonics: frozenset[str]) -> None:
        self.config = config
        self.rng = random.Random(seed)
        self.mnemonics = mnemonics
        self.emitter = Emitter(config, self.rng)
        units = {unit: self._of(unit) for unit in Unit}
        self._vector = [m for m in units[Unit.VECTOR] if not m.startswith("V_RED")]
        self._reductions = [m for m in units[Unit.VECTOR] if m.startswith("V_RED")]
        self._products = [m for m in units[Unit.MATRIX] if "_WO" not in m]
        self._write_outs = [m for m in units[Unit.MATRIX] if "_WO" in m]
        self._fp = [m for m in units[Unit.SCALAR] if m.endswith("_FP") and "MAP" not in m]
        self._int = [m for m in units[Unit.SCALAR] if m.endswith("_INT")]
        self._any = [m for unit in Unit if unit is not Unit.CONTROL for m in units[unit]]
        self._names = sorted(mnemonics)
        self._patterns: dict[Callable[[], None], int] = {
            self.vector_chain: 4,
            self.matrix_block: 4,
            self.prefetch_under_compute: 4,
            self.overlapping_rows: 4,
            self.scalar_chain: 3,
            self.map_row: 2,
            self.store_and_read_back: 3,
            self.integers: 2,
            self.state: 2,
            self.anything: 6,
            self.neighbours: 6,
            self.loop: 4,
        }
        if units[Unit.TOPK]:
            self._patterns[self.selection] = 2

    def _of(self, unit: Unit) -> list[str]:
        rows = (op for op in OPCODES.values() if op.unit is unit)
        return [op.mnemonic for op in rows if op.mnemonic in self.mnemonics]

    def case(self, issue: str) -> FuzzCase:
        """The program with its data and device."""
        rng = self.rng
        if rng.random() < 0.03:
            self.emitter.line("V_TOPK", 0, 0, 0, 15)  # before a policy is set
        self.state()
        size = rng.choice((6, 12, 20))
        trap_at = rng.randrange(size) if rng.random() < 0.25 else -1
        for position in range(size):
            if position == trap_at:
                emit_trap(self.emitter)
            self.pattern()
        if rng.random() < 0.3:
            straight = sorted(m for m in self.mnemonics if "LOOP" not in m)
            for _ in range(rng.randrange(1, 6)):
                near_limits(self.emitter, straight)
        faults = rng.randrange(2 * HBM_WINDOW) if rng.random() < 0.15 else None
        calm = rng.random() < 0.4
        device = Device(
            seed=rng.randrange(1 << 16),
            capacity=None if calm else rng.choice((1, 2, 5, None)),
            extra_latency=0 if calm else rng.choice((0, 3, 20)),
            backpressure=0.0 if calm else rng.choice((0.0, 0.2, 0.6)),
            faults=() if faults is None else (faults,),
        )
        return FuzzCase(self.config, tuple(self.emitter.items), self._contents(), device, issue)

    def _contents(self) -> Contents:
        c = self.config
        rng = np.random.default_rng(self.rng.randrange(1 << 32))
        rows = min(c.VRAM_ROWS, ROW_WINDOW + 2 * c.MLEN)
        tiles = min(c.MRAM_TILES, 4)
        return Contents(
            vector=bf16_values(rng, (rows, c.MLEN)),
            matrix=bf16_values(rng, (tiles, c.MLEN, c.MLEN)),
            fp=bf16_values(rng, (4 * c.MLEN,)),
            ints=rng.integers(0, 1 << 32, 64, dtype=np.uint32),
            hbm=mx_bytes(rng, HBM_WINDOW, HBM_WINDOW),
        )

    def pattern(self) -> None:
        """Append one pattern."""
        [choice] = self.rng.choices(list(self._patterns), list(self._patterns.values()))
        choice()

    def _row(self) -> int:
        return self.rng.randrange(ROW_WINDOW) * self.config.MLEN

    def _pick(self, mnemonics: list[str]) -> str:
        return self.rng.choice(mnemonics)

    def _reading(self, row: int) -> None:
        """A vector instruction that reads the row at `row`."""
        self.emitter.emit(self._pick(self._vector + self._reductions), rs1=row)

    def _writing(self, row: int) -> None:
        """A vector instruction that writes the row at `row`."""
        self.emitter.emit(self._pick(self._vector), rd=row)

    # Patterns.

    def anything(self) -> None:
        """One instruction of any unit."""
        self.emitter.emit(self._pick(self._any))

    def vector_chain(self) -> None:
        """Back-to-back dependencies through rows and f registers."""
        row = self._row()
        for _ in range(self.rng.randrange(2, 6)):
            step = self.rng.randrange(3)
            if step == 0:
                self._writing(row)
            elif step == 1:
                self._reading(row)
            else:
                target = self._row()
                self.emitter.emit(self._pick(self._vector), rs1=row, rd=target)
                row = target

    def matrix_block(self) -> None:
        """Products into an accumulator, its write-out, and readers and writers of those rows."""
        row = self._row()
        for _ in range(self.rng.randrange(1, 4)):
            self.emitter.emit(self._pick(self._products))
        if self.rng.random() < 0.5:
            self._writing(row)
        write_out = self._pick(self._write_outs)
        self.emitter.emit(write_out, rd=row)
        if self.rng.random() < 0.3:
            self.emitter.emit(write_out, rd=self._row())
        self._reading(row)

    def prefetch_under_compute(self) -> None:
        """Transfers into one tile or row block while others are computed on, and then these."""
        for _ in range(self.rng.randrange(1, 4)):
            self.emitter.emit(self._pick(["H_PREFETCH_M", "H_PREFETCH_V"]))
            self.emitter.emit(self._pick(self._products + self._vector))
        if self.rng.random() < 0.5:
            row = self._row()
            self.emitter.emit("H_PREFETCH_V", rd=row)
            self._reading(row)

    def overlapping_rows(self) -> None:
        """Two units on the same rows, in the order read-write, write-read or write-write."""
        row = self._row()
        emit = self.emitter.emit
        users: list[Callable[[], None]] = [
            lambda: self._reading(row),
            lambda: self._writing(row),
            lambda: emit("S_MAP_V_FP", rd=row),
            lambda: emit("H_PREFETCH_V", rd=row),
            lambda: emit("H_STORE_V", rd=row),
            lambda: emit(self._pick(self._write_outs), rd=row),
            lambda: emit("M_MM", rs2=row),
            lambda: emit("M_TMM", rs1=row),
        ]
        for user in self.rng.sample(users, self.rng.randrange(2, 5)):
            user()

    def scalar_chain(self) -> None:
        """f registers through the scalar and the vector unit, and FP_MEM."""
        for _ in range(self.rng.randrange(2, 7)):
            self.emitter.emit(self._pick(self._fp + self._reductions))
        scalars = [m for m in self._vector if m.endswith("_VF")]
        self.emitter.emit(self._pick(scalars))

    def map_row(self) -> None:
        """Stores to FP_MEM, and a row made of its words."""
        word = self.rng.randrange(8)
        for i in range(self.rng.randrange(3)):
            self.emitter.emit("S_ST_FP", rs1=word + i)
        row = self._row()
        self.emitter.emit("S_MAP_V_FP", rd=row, rs1=max(0, word - self.rng.randrange(4)))
        self._reading(row)

    def store_and_read_back(self) -> None:
        """Rows to the device memory while they are overwritten, and back from where they went."""
        row, offset, base = (
            self._row(),
            self.rng.randrange(0, 512, 8),
            self.rng.randrange(A_REGISTERS),
        )
        self._writing(row)
        flags = {"rstride": self.rng.randrange(2), "precision": self.rng.randrange(2)}
        self.emitter.emit("H_STORE_V", rd=row, rs1=offset, rs2=base, **flags)
        if self.rng.random() < 0.7:
            self._writing(row)
        flags["rstride"] = self.rng.randrange(2)
        self.emitter.emit("H_PREFETCH_V", rs1=offset, rs2=base, **flags)
        if self.rng.random() < 0.4:
            self.emitter.emit("H_STORE_V", rs1=offset, rs2=base)

    def integers(self) -> None:
        """gp registers through the dispatcher, the scalar unit and INT_MEM."""
        for _ in range(self.rng.randrange(2, 6)):
            self.emitter.emit(self._pick(self._int))

    def state(self) -> None:
        """State and address registers, all with values that later transfers are legal with."""
        e, rng = self.emitter, self.rng
        e.line("C_SET_SCALE_REG", e.set_gp(SCALES_AT + rng.randrange(64)))
        e.line("C_SET_V_MASK_REG", e.set_gp(rng.randrange(1 << min(self.config.heads + 1, 18))))
        stride = rng.choice((0, 8, self.config.MLEN, 64, 72, 256)) // 8 * 8
        e.line("C_SET_STRIDE_REG", e.set_gp(stride - stride % self.config.MX_BLOCK))
        base = e.set_gp(rng.randrange(0, HBM_WINDOW // 4))
        e.line("C_SET_ADDR_REG", rng.randrange(A_REGISTERS), 0, base)
        if "C_SET_TOPK_REG" in self.mnemonics:
            experts = rng.randrange(1, 4 * TOPK_EXPERTS)
            count = rng.randrange(1, min(experts, self.config.TOPK_MAX) + 1)
            e.line("C_SET_TOPK_REG", e.set_gp(experts << 8 | count))
        if rng.random() < 0.1:
            e.line("C_BREAK")

    def selection(self) -> None:
        """V_TOPK on rows just written, its results read at once."""
        e = self.emitter
        row, word = self._row(), self.rng.randrange(8)
        self._writing(row)
        e.emit("V_TOPK", rs1=row, rd=word, rs2=word)
        e.emit("S_LD_INT", rs1=word)
        e.emit("S_LD_FP", rs1=word + 1)

    def neighbours(self) -> None:
        """Two instructions of any opcodes, and one of the dependencies that they can have."""
        if not self.emitter.outside:
            return
        first, second = self._pick(self._names), self._pick(self._names)
        found = list(between(first, second))
        dependency = self.rng.choice(found[1:] or found)
        self.emitter.block(Item(self.config, dependency).lines(), REGISTERS)

    def loop(self) -> None:
        """Patterns in a loop."""
        if not self.emitter.may_nest:
            return
        with self.emitter.loop():
            for _ in range(self.rng.randrange(1, 3)):
                self.pattern()
            if self.rng.random() < 0.02:
                emit_trap(self.emitter)
