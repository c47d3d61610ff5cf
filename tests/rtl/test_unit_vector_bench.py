"""The bench of the vector unit: unit, SRAM, a scoreboard like the dispatcher's, golden state."""

import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from isa.config import PRESETS, PlenaConfig
from isa.opcodes import Op
from rtl.vector import VectorSram, VectorUnit
from sim.numerics import bf16, reduce

CONFIGS = {
    "tiny": PRESETS["tiny"],
    "small": PRESETS["small"],
    # A pass of two heads, and a head of two passes.
    "4heads": PRESETS["small"].replace(HLEN=4, SFU_LANES=8, VRAM_ROWS=64),
    "4passes": PRESETS["small"].replace(HLEN=8, SFU_LANES=4, VRAM_ROWS=64),
    "default": PRESETS["default"],
}
FAST = [name for name in CONFIGS if name != "default"]
ROWS = 16  # of the SRAM, in use
CYCLE_LIMIT = 5000

BINARY = {
    Op.V_ADD_VV: bf16.add, Op.V_ADD_VF: bf16.add, Op.V_SUB_VV: bf16.sub, Op.V_SUB_VF: bf16.sub,
    Op.V_MUL_VV: bf16.mul, Op.V_MUL_VF: bf16.mul, Op.V_MAX_VF: bf16.maximum,
    Op.V_MIN_VF: bf16.minimum,
}  # fmt: skip
UNARY = {Op.V_EXP_V: bf16.exp, Op.V_RECI_V: bf16.reciprocal}
REDUCTIONS = {Op.V_RED_SUM: reduce.red_sum, Op.V_RED_MAX: reduce.red_max}
ALL_OPS = (*BINARY, *UNARY, *REDUCTIONS, Op.V_SHFT_V)
PAIRS = (Op.V_ADD_VV, Op.V_SUB_VV, Op.V_MUL_VV)

SPECIAL = (
    0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F81, 0x0001, 0x8001, 0x007F, 0x807F, 0x0080,
    0x8080, 0x7F7F, 0xFF7F, 0x3F80, 0xBF80, 0x42B0, 0xC2B0, 0x42B1, 0x0042,
)  # fmt: skip

Words = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Instr:
    op: Any  # an Op
    d: int = 0
    a: int = 0
    b: int = 0
    f: int = 0  # scalar operand, or a reduction's destination
    mask: int = -1
    reverse: int = 0
    shift: int = 0

    @property
    def reads(self) -> set[int]:
        return {self.a, self.b} if self.op in PAIRS else {self.a}

    @property
    def uses_f(self) -> bool:
        return self.op not in (*PAIRS, *UNARY, Op.V_SHFT_V)


@dataclass
class State:
    """Rows and scalar registers as bit patterns, and what an instruction makes of them."""

    rows: Words
    f: Words

    def execute(self, i: Instr, config: PlenaConfig) -> None:
        a, b = bf16.from_bits(self.rows[i.a]), bf16.from_bits(self.rows[i.b])
        f = bf16.from_bits(self.f[i.f])
        on = reduce.enabled_lanes(i.mask, config.MLEN, config.HLEN)
        if i.op in REDUCTIONS:
            self.f[i.f] = bf16.canonical_bits(REDUCTIONS[i.op](f, a, on))
            return
        if i.op is Op.V_SHFT_V:
            zeros = np.zeros(i.shift, np.uint16)
            self.rows[i.d] = np.concatenate([zeros, self.rows[i.a]])[: config.MLEN]
            return
        if i.op in UNARY:
            result = UNARY[i.op](a)
        else:
            second = b if i.op in PAIRS else np.broadcast_to(f, a.shape)
            pair = (second, a) if i.reverse else (a, second)
            result = BINARY[i.op](*pair)
        self.rows[i.d] = np.where(on, bf16.canonical_bits(result), self.rows[i.a])


@dataclass
class Run:
    """What a program did: final state, and the cycles of issue and completion by instruction."""

    state: State
    issued: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def latency(self, index: int) -> int:
        return self.done[index] - self.issued[index]


class Rig:
    """Unit and SRAM, elaborated once; `run` starts from reset."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config, self.unit, self.sram = config, VectorUnit(config), VectorSram(config)
        m = Module()
        m.submodules.unit, m.submodules.sram = self.unit, self.sram
        connect(m, self.unit.a_read, self.sram.vector_a_read)
        connect(m, self.unit.b_read, self.sram.vector_b_read)
        connect(m, self.unit.write, self.sram.vector_write)
        self.sim = Simulator(m)
        self.sim.add_clock(1e-9)
        self.sim.add_testbench(self._dispatch)
        self._used = False

    def run(
        self,
        start: State,
        program: Sequence[Instr],
        gaps: Iterator[int] | None = None,
        vcd: Path | None = None,
    ) -> Run:
        self._run = Run(State(start.rows.copy(), start.f.copy()))
        self._program, self._gaps = program, gaps
        if self._used:
            self.sim.reset()
        self._used = True
        with self.sim.write_vcd(str(vcd)) if vcd else nullcontext():
            self.sim.run()
        return self._run

    def check(
        self, start: State, program: Sequence[Instr], gaps: Iterator[int] | None = None
    ) -> Run:
        run = self.run(start, program, gaps)
        golden = State(start.rows.copy(), start.f.copy())
        for instr in program:
            golden.execute(instr, self.config)
        np.testing.assert_array_equal(run.state.rows, golden.rows)
        np.testing.assert_array_equal(run.state.f, golden.f)
        return run

    async def _dispatch(self, ctx: Any) -> None:
        unit, run, program = self.unit, self._run, self._program
        for i, row in enumerate(run.state.rows):
            ctx.set(self.sram.storage[i], int.from_bytes(row.tobytes(), "little"))
        ports = (unit.issue.ready, unit.done, unit.reduce_done, unit.fp_write, unit.write.en)
        busy_rows: dict[int, int] = {}
        busy_f: dict[int, int] = {}
        upcoming, wait, cycle = 0, 0, 0
        while len(run.done) < len(program):
            assert cycle < CYCLE_LIMIT, f"unfinished: {set(range(len(program))) - set(run.done)}"
            valid = False
            if upcoming < len(program) and wait == 0:
                instr = program[upcoming]
                valid = not instr.reads & set(busy_rows.values())
                valid &= not (instr.uses_f and instr.f in busy_f.values())
                if valid:
                    ctx.set(unit.issue.payload, self._payload(upcoming, instr))
            ctx.set(unit.issue.valid, valid)
            wait = max(0, wait - 1)
            _, _, ready, done, reduced, fp_write, write = await ctx.tick().sample(*ports)
            assert write == done.valid
            assert reduced.valid == fp_write.valid
            if fp_write.valid:
                run.state.f[fp_write.index] = fp_write.value
            for event, busy in ((done, busy_rows), (reduced, busy_f)):
                if event.valid:
                    run.done[event.tag.pc] = cycle
                    run.order.append(event.tag.pc)
                    del busy[event.tag.pc]
            if valid and ready:
                instr = program[upcoming]
                run.issued[upcoming] = cycle
                if instr.op in REDUCTIONS:
                    busy_f[upcoming] = instr.f
                else:
                    busy_rows[upcoming] = instr.d
                upcoming += 1
                wait = next(self._gaps) if self._gaps else 0
            cycle += 1
        for i in range(len(run.state.rows)):
            row = ctx.get(self.sram.storage[i]).to_bytes(2 * self.config.MLEN, "little")
            run.state.rows[i] = np.frombuffer(row, np.uint16)

    def _payload(self, index: int, i: Instr) -> dict[str, object]:
        return {
            "tag": {"pc": index, "stage": index % 16, "slot": index % 64},
            "op": i.op, "a_row": i.a, "b_row": i.b, "d_row": i.d,
            "scalar": int(self._run.state.f[i.f]), "f_index": i.f,
            "heads": i.mask & ((1 << self.config.heads) - 1),
            "reverse": i.reverse, "shift": i.shift,
        }  # fmt: skip


@cache
def rig_for(name: str) -> Rig:
    return Rig(CONFIGS[name])


def random_state(rng: np.random.Generator, config: PlenaConfig) -> State:
    """Special values, any patterns, and numbers around one: of one kind in a row, or mixed."""
    shape = (ROWS + 1, config.MLEN)
    kinds = [
        rng.choice(SPECIAL, shape),
        rng.integers(0, 1 << 16, shape),
        bf16.to_bits(bf16.round_to_bf16(rng.normal(0, 2, shape))),
    ]
    kind = rng.choice(4, (ROWS + 1, 1), p=(0.2, 0.2, 0.4, 0.2))
    mixed = np.where(kind < 3, kind, rng.integers(0, 3, shape))
    rows = np.choose(mixed, kinds).astype(np.uint16)
    f = rows[ROWS, :8].copy()
    f[0] = 0
    return State(rows[:ROWS], f)


def random_instr(rng: random.Random, config: PlenaConfig, op: Any, **fixed: int) -> Instr:
    full = (1 << config.heads) - 1
    instr = Instr(
        op,
        d=rng.randrange(ROWS), a=rng.randrange(ROWS), b=rng.randrange(ROWS), f=rng.randrange(1, 8),
        mask=full if op is Op.V_SHFT_V else rng.choice([full, rng.randint(0, full)]),
        reverse=rng.randrange(2) if op is Op.V_SUB_VF else 0,
        shift=rng.randint(0, config.MLEN) if op is Op.V_SHFT_V else 0,
    )  # fmt: skip
    return replace(instr, **fixed)


def random_stream(rig: Rig, seed: int) -> None:
    """Sixty instructions, with gaps for odd seeds: right results, and completions in order."""
    rng = random.Random(seed)
    start = random_state(np.random.default_rng(seed), rig.config)
    program = [random_instr(rng, rig.config, rng.choice(ALL_OPS)) for _ in range(60)]
    gaps = iter(lambda: rng.choice((0, 0, 0, 0, 1, 2, 7)), -1) if seed % 2 else None
    run = rig.check(start, program, gaps)
    for among in (True, False):
        finished = [k for k in run.order if (program[k].op in REDUCTIONS) is among]
        assert finished == sorted(finished)
