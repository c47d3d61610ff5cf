"""The bench for MatrixUnit: a dispatcher in Python, SRAMs, and the program's golden state."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from amaranth.hdl import Module, Mux, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.sim import Simulator

from isa.config import PRESETS, PlenaConfig
from isa.opcodes import Op
from rtl.matrix import MatrixSram, MatrixUnit
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16
from sim.numerics.matrix import mm_tile

TILES = 3
SPECIAL = (0, 0x8000, 1, 0x807F, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC1)
CONFIGS = {
    "tiny": PRESETS["tiny"],
    "small": PRESETS["small"],
    "two": PRESETS["tiny"].replace(BLEN=2),  # the shortest: every distance is at its minimum
    "square": PRESETS["tiny"].replace(BLEN=8),
    # Four heads, each smaller than a group of columns; the sums overflow and underflow.
    "slim": PRESETS["tiny"].replace(HLEN=2, BMM_SCALE_LOG2=-40),
    "pairs": PRESETS["tiny"].replace(HLEN=4, BLEN=2, BMM_SCALE_LOG2=30),
    "default": PRESETS["default"],
}
QUICK = ("tiny", "small", "two", "square")
HALF = 32  # rows that nothing writes by default, and as many again


@dataclass(frozen=True)
class Instruction:
    op: Any
    tile: int = 0
    index: int = 0
    row: int = 0
    lane: int = 0
    stride: int = 1

    @property
    def is_write_out(self) -> bool:
        return self.op.name.endswith("_WO")

    @property
    def acc(self) -> str:
        """m_acc, v_acc, hm_acc or hv_acc."""
        per_head, one_row = self.op.name[2] == "B", "MV" in self.op.name
        return f"{'h' * per_head}{'mv'[one_row]}_acc"

    @property
    def transposed(self) -> bool:
        return "T" in self.op.name

    def rows(self, config: PlenaConfig) -> list[int]:
        """Vector SRAM rows that it reads or writes, in this order."""
        counts = {"m_acc": config.BLEN, "v_acc": 1, "hm_acc": config.MLEN, "hv_acc": 1}
        per_head = self.is_write_out and self.acc.startswith("h")
        count = counts[self.acc] * (config.heads if per_head else 1)
        step = self.stride if self.op.name == "M_MM_WO" else 1
        return [self.row + i * step for i in range(count)]


def product(name: str = "M_MM", **fields: int) -> Instruction:
    return Instruction(Op[name], **fields)


def write_out(name: str = "M_MM_WO", **fields: int) -> Instruction:
    return Instruction(Op[name], **{"row": HALF, **fields})


@dataclass
class Run:
    """What was seen: cycles by instruction number, and the state at the end."""

    issued: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    multiplying: list[tuple[int, int]] = field(default_factory=list)  # (cycle, instruction)
    written: list[tuple[int, int, int]] = field(default_factory=list)  # (cycle, instruction, row)
    vram: Any = None
    accs: dict[str, Any] = field(default_factory=dict)


class Bench:
    """The unit, its SRAM and a vector SRAM with two ports, behind a dispatcher in Python."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config, rng = config, np.random.default_rng(config.MLEN + config.BLEN)
        self.rows = 2 * HALF + config.heads * config.MLEN  # of the vector SRAM in use
        self.vram, self.tiles = operands(rng, (self.rows, config.MLEN)), []
        self.unit, self.sram = MatrixUnit(config), MatrixSram(config)
        for tile in range(TILES):
            self.tiles.append(operands(rng, (config.MLEN, config.MLEN)))
            for (i, j), word in np.ndenumerate(self.tiles[tile]):
                bank, address = MatrixSram.place(config.MLEN, tile, i, j)
                self.sram.banks[bank].init[address] = int(word)
        row_bits = 16 * config.MLEN
        words = [int.from_bytes(row.tobytes(), "little") for row in self.vram]
        self.storage = MemoryData(shape=unsigned(row_bits), depth=config.VRAM_ROWS, init=words)
        self.program: list[Instruction] = []
        self.gaps: list[int] = []
        self.simulator = Simulator(self.circuit())
        self.simulator.add_clock(1e-9)
        self.simulator.add_testbench(self.dispatcher)

    def circuit(self) -> Module:
        m, unit = Module(), self.unit
        m.submodules.unit, m.submodules.sram, m.submodules.vram = (
            unit,
            self.sram,
            Memory(self.storage),
        )
        wiring.connect(m, unit.mram_read, self.sram.read)
        memory = m.submodules.vram
        reader, writer = memory.read_port(), memory.write_port(granularity=16)
        m.d.comb += [
            reader.en.eq(unit.vram_read.en),
            reader.addr.eq(unit.vram_read.row),
            unit.vram_read.data.eq(reader.data),
            writer.en.eq(Mux(unit.vram_write.en, unit.vram_write.lanes, 0)),
            writer.addr.eq(unit.vram_write.row),
            writer.data.eq(unit.vram_write.data),
        ]
        return m

    def run(self, program: list[Instruction], gaps: list[int] | None = None) -> Run:
        if self.program:
            self.simulator.reset()
        self.program, self.gaps, self.result = program, gaps or [0] * len(program), Run()
        self.simulator.run()
        return self.result

    def waits(self, number: int) -> bool:
        """Rows that it reads are still to be written."""
        me = self.program[number]
        return not me.is_write_out and any(
            earlier.is_write_out
            and n not in self.result.done
            and {*earlier.rows(self.config)} & {*me.rows(self.config)}
            for n, earlier in enumerate(self.program[:number])
        )

    async def dispatcher(self, ctx: Any) -> None:
        unit, result, issue = self.unit, self.result, self.unit.issue
        cycle, gap, number = 0, self.gaps[0] if self.gaps else 0, 0
        limit = 200 + sum(unit.latency(me.op) for me in self.program) + sum(self.gaps)
        while len(result.done) < len(self.program):
            valid = number < len(self.program) and gap == 0 and not self.waits(number)
            gap = max(0, gap - 1)
            ready_before = ctx.get(issue.ready)
            ctx.set(issue.valid, valid)
            if valid:
                fields = {k: int(v) for k, v in vars(self.program[number]).items() if k != "op"}
                tag = {"pc": 1000 + number, "stage": number % 16, "slot": number % 64}
                ctx.set(issue.payload, {"op": self.program[number].op, "tag": tag, **fields})
            assert ctx.get(issue.ready) == ready_before
            _, _, ready, *completions, busy, mac, writes, written, tag = await ctx.tick().sample(
                issue.ready,
                unit.product_done,
                unit.write_done,
                unit.mac_busy,
                unit.mac_tag,
                unit.vram_write.en,
                unit.vram_write.row,
                unit.vram_write.tag,
            )
            if writes:
                result.written.append((cycle, tag.pc - 1000, written))
            for is_write_out, completion in enumerate(completions):
                if completion.valid:
                    n = completion.tag.pc - 1000
                    assert self.program[n].is_write_out == is_write_out
                    assert n not in result.done, f"instruction {n} done twice"
                    assert (completion.tag.stage, completion.tag.slot) == (n % 16, n % 64)
                    result.done[n] = cycle
            if busy:
                result.multiplying.append((cycle, mac.pc - 1000))
            if valid and ready:
                result.issued[number] = cycle
                number += 1
                gap = self.gaps[number] if number < len(self.program) else 0
            cycle += 1
            assert cycle < limit, "nothing happens"
        lanes = self.config.MLEN
        words = [
            ctx.get(self.storage[row]).to_bytes(2 * lanes, "little") for row in range(self.rows)
        ]
        result.vram = np.frombuffer(b"".join(words), np.uint16).reshape(self.rows, lanes)

        def read(memory: MemoryData, first: int, count: int) -> Sequence[int]:
            return [ctx.get(memory[row]) for row in range(first, first + count)]

        for name, words in unit.accumulators(ctx.get, read).items():
            result.accs[name] = np.array(words, np.uint32).view(np.float32)

    def golden(self) -> tuple[Any, dict[str, Any]]:
        """The vector SRAM and the accumulators after the program, in program order."""
        vram, accs = self.vram.copy(), accumulators(self.config)
        for me in self.program:
            execute(self.config, me, vram, self.tiles, accs)
        return vram, accs

    def check(self) -> None:
        """The state is that of serial execution; completions of a kind come in order."""
        vram, accs = self.golden()
        np.testing.assert_array_equal(self.result.vram, vram)
        for name, words in accs.items():
            seen = canonical_bits(self.result.accs[name])
            np.testing.assert_array_equal(seen, canonical_bits(words), err_msg=name)
        for kind in (False, True):
            order = [n for n in self.result.done if self.program[n].is_write_out == kind]
            assert order == sorted(order)
        assert self.result.written == [
            (self.result.done[n] + 1 - len(rows) + i, n, row)
            for n, me in enumerate(self.program)
            if me.is_write_out
            for rows in [me.rows(self.config)]
            for i, row in enumerate(rows)
        ]


def accumulators(config: PlenaConfig) -> dict[str, Any]:
    """All of them, as they are at first."""
    blen, mlen, heads = config.BLEN, config.MLEN, config.heads
    shapes = {
        "m_acc": (blen, blen),
        "v_acc": (blen,),
        "hm_acc": (heads, mlen, mlen),
        "hv_acc": (heads, mlen),
    }
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def execute(
    config: PlenaConfig, me: Instruction, vram: Any, tiles: Sequence[Any], accs: dict[str, Any]
) -> None:
    """What one instruction does to the words of the vector SRAM and to the accumulators."""
    blen, mlen, heads, hlen = config.BLEN, config.MLEN, config.heads, config.HLEN
    acc, rows = accs[me.acc], me.rows(config)
    if me.is_write_out:
        words = canonical_bits(round_to_bf16(acc))
        for row, results in zip(rows, words.reshape(len(rows), -1), strict=True):
            vram[row, me.lane : me.lane + len(results)] = results
        acc[:] = 0
        return
    tile = from_bits(tiles[me.tile].T if me.transposed else tiles[me.tile])
    vectors = from_bits(vram[rows])
    if me.acc in ("m_acc", "v_acc"):
        mine = acc.reshape(-1, blen)
        mine[:] = mm_tile(mine, vectors, tile[:, me.index : me.index + blen])
        return
    part = tile[me.index : me.index + hlen]
    for h, mine in enumerate(acc.reshape(heads, -1, mlen)):
        lanes = vectors[:, h * hlen : (h + 1) * hlen]
        mine[:] = mm_tile(mine, lanes, part, config.bmm_scale)


def operands(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    """BF16 words: plain numbers; in some rows of any exponent, in some with a special one."""
    words = rng.standard_normal(shape).astype(ml_dtypes.bfloat16).view(np.uint16)
    kind = rng.integers(0, 8, shape[0])
    wide = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
    wide[(wide & 0x7F80) == 0x7F80] &= 0xBFFF
    words[kind < 2] = wide[kind < 2]
    for row in np.flatnonzero(kind == 2):
        words[row, rng.integers(shape[1])] = rng.choice(SPECIAL)
    return words


def random_program(
    rng: np.random.Generator,
    config: PlenaConfig,
    length: int,
    *,
    heads: bool = False,
    apart: bool = False,
) -> list[Instruction]:
    """Products and write-outs of m_acc; of all accumulators with `heads`.

    No product reads what is written with `apart`, so that none waits.
    """
    program, blen = [], config.BLEN
    groups = config.MLEN // blen
    rows = 2 * HALF + config.heads * config.MLEN
    for _ in range(length):
        group = int(rng.integers(groups)) * blen
        letters = str(rng.choice(["MM", "MV", "BMM", "BMV"])) if heads else "MM"
        if rng.random() < 0.4:
            me = write_out(f"M_{letters}_WO", row=0)
            lane = 0 if me.acc.startswith("h") else group
            stride = int(rng.integers(0, 3)) if letters == "MM" else 1
            me = write_out(me.op.name, row=0, lane=lane, stride=stride)
        else:
            if rng.random() < 0.5:
                letters = letters[:-2] + "T" + letters[-2:]
            if "B" in letters:
                group = int(rng.integers(config.heads)) * config.HLEN
            me = product(f"M_{letters}", tile=int(rng.integers(TILES)), index=group)
        first, end = 0, rows if me.acc.startswith("h") else 2 * HALF
        if apart:
            first, end = (HALF, end) if me.is_write_out else (0, HALF)
        row = int(rng.integers(first, end - max(me.rows(config))))
        fields = {name: value for name, value in vars(me).items() if name not in ("op", "row")}
        program.append(Instruction(me.op, row=row, **fields))
    return program


@functools.cache
def bench(name: str) -> Bench:
    return Bench(CONFIGS[name])
