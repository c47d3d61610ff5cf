"""The vector unit with its SRAM against the NumPy reference, under a dispatcher-like scoreboard."""

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.back import verilog
from amaranth.hdl import Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from isa.config import PRESETS, PlenaConfig
from isa.opcodes import Op
from rtl.vector import VectorSram, VectorUnit
from testbench.reference import bf16, reduce

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


@pytest.fixture(params=FAST)
def rig(request: pytest.FixtureRequest) -> Rig:
    return rig_for(request.param)


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


@pytest.mark.parametrize("op", ALL_OPS, ids=lambda op: op.name)
def test_every_op_on_every_kind_of_value(rig: Rig, op: Any) -> None:
    rng = random.Random(op.value)
    for seed in range(2):
        start = random_state(np.random.default_rng(100 * op.value + seed), rig.config)
        program = [random_instr(rng, rig.config, op) for _ in range(24)]
        program += [replace(i, d=i.a) for i in program[:8]]  # in place
        rig.check(start, program)


@pytest.mark.parametrize("op", ALL_OPS[:-1], ids=lambda op: op.name)  # a shift has no mask
def test_every_mask(op: Any) -> None:
    for name in ("4heads", "4passes"):
        rig = rig_for(name)
        start = random_state(np.random.default_rng(op.value), rig.config)
        rig.check(
            start,
            [
                Instr(op, d=mask % 4, a=4 + mask % 8, b=15, f=1 + mask % 7, mask=mask)
                for mask in range(1 << rig.config.heads)
            ],
        )


def test_reduction_with_no_lane_enabled(rig: Rig) -> None:
    start = random_state(np.random.default_rng(1), rig.config)
    start.f[:] = (0, 0x7FC0, 0xFF80, 0x7F80, 0x8000, 0x0001, 0xC000, 0xFFC1)
    run = rig.check(start, [Instr(Op.V_RED_MAX, a=k, f=k, mask=0) for k in range(1, 8)])
    assert list(run.state.f[1:]) == [0x7FC0, 0xFF80, 0x7F80, 0x8000, 0x0001, 0xC000, 0x7FC0]
    run = rig.check(start, [Instr(Op.V_RED_SUM, a=k, f=k, mask=0) for k in range(1, 8)])
    assert list(run.state.f[1:]) == [0x7FC0, 0xFF80, 0x7F80, 0x0000, 0x0001, 0xC000, 0x7FC0]


def test_sum_is_neighbours_first_and_rounded_twice() -> None:
    rig = rig_for("tiny")
    start = random_state(np.random.default_rng(2), rig.config)
    big, tiny = 0x4B80, 0x3F80  # 2^24 and 1: FP32 loses a 1 beside 2^24
    start.rows[0] = (big, tiny, tiny, tiny, tiny, tiny, tiny, big | 0x8000)
    start.rows[1] = (0x3B80, 0x3280, 0, 0, 0, 0, 0, 0)  # 2^-8 and 2^-26
    start.f[1:4] = (0, tiny, tiny)
    program = [Instr(Op.V_RED_SUM, f=1), Instr(Op.V_RED_SUM, f=2), Instr(Op.V_RED_SUM, a=1, f=3)]
    run = rig.check(start, program)
    # 5 and 6 (with 0 in lane order), where exact arithmetic has 6 and 7; 1 + 2^-8 is a tie once FP32 has lost the 2^-26.
    assert list(run.state.f[1:4]) == [0x40A0, 0x40C0, 0x3F80]


def test_order_sensitive_sums(rig: Rig) -> None:
    # What is left of numbers that cancel exactly depends on the order of the additions.
    rng = np.random.default_rng(9)
    start = random_state(rng, rig.config)
    for row in start.rows:
        half = rng.normal(0, 1, rig.config.MLEN // 2) * 2.0 ** rng.integers(0, 40, row.size // 2)
        row[:] = rng.permutation(bf16.to_bits(bf16.round_to_bf16(np.concatenate([half, -half]))))
    start.f[:] = 0
    for first in range(0, ROWS, 7):
        rows = range(first, min(first + 7, ROWS))
        rig.check(start, [Instr(Op.V_RED_SUM, a=row, f=1 + row % 7) for row in rows])


def test_every_shift(rig: Rig) -> None:
    start = random_state(np.random.default_rng(3), rig.config)
    for first in range(0, rig.config.MLEN + 1, 8):
        shifts = range(first, min(first + 8, rig.config.MLEN + 1))
        rig.check(start, [Instr(Op.V_SHFT_V, d=s % 8, a=8 + s % 8, shift=s) for s in shifts])


def test_latency(rig: Rig) -> None:
    start = random_state(np.random.default_rng(4), rig.config)
    levels, passes = rig.config.MLEN.bit_length() - 1, rig.config.MLEN // rig.config.SFU_LANES
    for op in ALL_OPS:
        run = rig.check(start, [Instr(op, d=1, f=1)])
        expected = levels + 3 if op in REDUCTIONS else passes + 2 if op in UNARY else 3
        assert run.latency(0) == expected == rig.unit.latency(op), op


def test_a_dependent_instruction_issues_after_done(rig: Rig) -> None:
    start = random_state(np.random.default_rng(5), rig.config)
    for op in ALL_OPS:
        run = rig.check(start, [Instr(op, d=1, f=1), Instr(Op.V_ADD_VF, d=2, a=1, f=1)])
        assert run.issued[1] == run.done[0] + 1, op


@pytest.mark.parametrize("op", ALL_OPS, ids=lambda op: op.name)
def test_throughput_of_independent_instructions(rig: Rig, op: Any) -> None:
    start = random_state(np.random.default_rng(6), rig.config)
    # Reads of rows 8 to 15, writes of rows 0 to 7: and write-after-write does not wait.
    program = [Instr(op, d=k % 3, a=8 + k, b=15 - k, f=k) for k in range(1, 8)]
    run = rig.check(start, program)
    slots = rig.config.MLEN // rig.config.SFU_LANES if op in UNARY else 1
    assert [run.issued[k] - run.issued[0] for k in range(7)] == [slots * k for k in range(7)]
    assert [run.done[k] - run.done[0] for k in range(7)] == [slots * k for k in range(7)]


def test_special_functions_are_pipelined_with_the_rest(rig: Rig) -> None:
    start = random_state(np.random.default_rng(7), rig.config)
    ops = (Op.V_ADD_VV, Op.V_EXP_V, Op.V_MUL_VF, Op.V_RECI_V, Op.V_EXP_V, Op.V_RED_MAX, Op.V_SHFT_V)
    run = rig.check(start, [Instr(op, d=k, a=8 + k, b=15, f=1) for k, op in enumerate(ops)])
    passes = rig.config.MLEN // rig.config.SFU_LANES
    cost = [passes if op in UNARY else 1 for op in ops]
    assert [run.issued[k] - run.issued[0] for k in range(7)] == [sum(cost[:k]) for k in range(7)]
    assert all(run.latency(k) == rig.unit.latency(op) for k, op in enumerate(ops))


@pytest.mark.parametrize("seed", range(4))
def test_random_streams(rig: Rig, seed: int) -> None:
    random_stream(rig, seed)


@pytest.mark.slow
def test_random_streams_at_the_default_configuration() -> None:
    for seed in range(4):
        random_stream(rig_for("default"), seed)


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


def test_nothing_moves_but_the_lanes_of_the_instruction(tmp_path: Path) -> None:
    leaves = {
        "add": (Op.V_ADD_VV, Op.V_SUB_VF), "multiply": (Op.V_MUL_VV,), "clamp": (Op.V_MAX_VF,),
        "shift": (Op.V_SHFT_V,), "exp": (Op.V_EXP_V,), "reciprocal": (Op.V_RECI_V,),
        "sum": (Op.V_RED_SUM,), "max": (Op.V_RED_MAX,),
    }  # fmt: skip
    rig = Rig(CONFIGS["tiny"])
    start = random_state(np.random.default_rng(8), rig.config)
    for kind, ops in leaves.items():
        program = [Instr(op, d=k, a=8 + k, f=1 + k, shift=1) for k, op in enumerate(ops * 3)]
        rig.run(start, program, vcd=tmp_path / "run.vcd")
        assert moving_lanes((tmp_path / "run.vcd").read_text(), set(leaves)) == {kind}


def moving_lanes(vcd: str, kinds: set[str]) -> set[str]:
    """The kinds of lanes with a change, after time 0, inside one of their leaves."""
    header, _, body = vcd.partition("$enddefinitions $end")
    scope: list[str] = []
    owner: dict[str, str] = {}
    for line in header.splitlines():
        words = line.split()
        if words[:1] == ["$scope"]:
            scope.append(words[2])
        elif words[:1] == ["$upscope"]:
            scope.pop()
        elif words[:1] == ["$var"]:
            kind = [k for k in kinds if k in scope or f"{k}_merge" in scope]
            if kind and (scope[-1] != kind[0] or words[4].startswith("moved")):
                owner[words[3]] = kind[0]
    changes = body[body.index("\n#", body.index("$dumpvars") if "$dumpvars" in body else 0) :]
    return {
        owner[name]
        for name in re.findall(r"^(?:b[01]+ |s\S* |[01])(\S+)$", changes, re.MULTILINE)
        if name in owner
    }


def test_verilog_export() -> None:
    text = verilog.convert(VectorUnit(CONFIGS["tiny"]), name="vector_unit", emit_src=False)
    assert "module vector_unit(" in text
    assert "issue__payload" in text
