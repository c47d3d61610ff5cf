"""MatrixUnit with its SRAM, against sim.numerics.matrix."""

import functools
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.hdl import Module, Mux, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.sim import Simulator

from isa.config import PRESETS, PlenaConfig
from isa.opcodes import Op
from rtl.matrix import MatrixSram, MatrixUnit
from sim.numerics.bf16 import canonical_bits, from_bits, round_to_bf16
from sim.numerics.matrix import mm_tile

ROWS = 64  # of the vector SRAM in use
TILES = 3
SPECIAL = (0, 0x8000, 1, 0x807F, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC1)
CONFIGS = {
    "tiny": PRESETS["tiny"],
    "small": PRESETS["small"],
    "two": PRESETS["tiny"].replace(BLEN=2),  # the shortest: every distance is at its minimum
    "square": PRESETS["tiny"].replace(BLEN=8),
    "default": PRESETS["default"],
}
QUICK = [name for name in CONFIGS if name != "default"]


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
        return self.op == Op["M_MM_WO"]

    def rows(self, blen: int) -> set[int]:
        """Vector SRAM rows that it reads or writes."""
        return {self.row + i * (self.stride if self.is_write_out else 1) for i in range(blen)}


def product(**fields: int) -> Instruction:
    return Instruction(Op["M_MM"], **fields)


def write_out(**fields: int) -> Instruction:
    return Instruction(Op["M_MM_WO"], **{"row": 32, **fields})


@dataclass
class Run:
    """What was seen: cycles by instruction number, and the state at the end."""

    issued: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    multiplying: list[tuple[int, int]] = field(default_factory=list)  # (cycle, instruction)
    written: list[tuple[int, int, int]] = field(default_factory=list)  # (cycle, instruction, row)
    vram: Any = None
    m_acc: Any = None


class Bench:
    """The unit, its SRAM and a vector SRAM with two ports, behind a dispatcher in Python."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config, rng = config, np.random.default_rng(config.MLEN + config.BLEN)
        self.vram, self.tiles = operands(rng, (ROWS, config.MLEN)), []
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
        me, blen = self.program[number], self.config.BLEN
        return not me.is_write_out and any(
            earlier.is_write_out
            and n not in self.result.done
            and earlier.rows(blen) & me.rows(blen)
            for n, earlier in enumerate(self.program[:number])
        )

    async def dispatcher(self, ctx: Any) -> None:
        unit, result, issue = self.unit, self.result, self.unit.issue
        cycle, gap, number = 0, self.gaps[0] if self.gaps else 0, 0
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
            assert cycle < 40 * len(self.program) + 200, "nothing happens"
        lanes = self.config.MLEN
        words = [ctx.get(self.storage[row]).to_bytes(2 * lanes, "little") for row in range(ROWS)]
        result.vram = np.frombuffer(b"".join(words), np.uint16).reshape(ROWS, lanes)
        result.m_acc = np.array(unit.m_acc(ctx.get), np.uint32)

    def golden(self) -> tuple[Any, Any]:
        """The vector SRAM and m_acc after the program, in program order."""
        blen = self.config.BLEN
        vram, m_acc = self.vram.copy(), np.zeros((blen, blen), np.float32)
        for me in self.program:
            if me.is_write_out:
                for i, words in enumerate(canonical_bits(round_to_bf16(m_acc))):
                    vram[me.row + i * me.stride, me.lane : me.lane + blen] = words
                m_acc[:] = 0
            else:
                tile = self.tiles[me.tile].T if me.op == Op["M_TMM"] else self.tiles[me.tile]
                columns = from_bits(tile[:, me.index : me.index + blen])
                m_acc = mm_tile(m_acc, from_bits(vram[me.row : me.row + blen]), columns)
        return vram, canonical_bits(m_acc)

    def check(self) -> None:
        """The state is that of serial execution; completions of a kind come in order."""
        vram, m_acc = self.golden()
        np.testing.assert_array_equal(self.result.vram, vram)
        np.testing.assert_array_equal(canonical_bits(self.result.m_acc.view(np.float32)), m_acc)
        for kind in (False, True):
            order = [n for n in self.result.done if self.program[n].is_write_out == kind]
            assert order == sorted(order)
        blen = self.config.BLEN
        assert self.result.written == [
            (self.result.done[n] - blen + 1 + i, n, me.row + i * me.stride)
            for n, me in enumerate(self.program)
            if me.is_write_out
            for i in range(blen)
        ]


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


def random_program(rng: np.random.Generator, config: PlenaConfig, length: int) -> list[Instruction]:
    program, blen = [], config.BLEN
    groups = config.MLEN // blen
    for _ in range(length):
        group = int(rng.integers(groups)) * blen
        if rng.random() < 0.4:
            stride = int(rng.integers(0, 3))
            row = int(rng.integers(ROWS - 2 * blen))
            program.append(write_out(row=row, lane=group, stride=stride))
        else:
            op = Op[str(rng.choice(["M_MM", "M_TMM"]))]
            row = int(rng.integers(ROWS - blen))
            program.append(Instruction(op, int(rng.integers(TILES)), group, row))
    return program


@functools.cache
def bench(name: str) -> Bench:
    return Bench(CONFIGS[name])


@pytest.mark.parametrize("pace", ["dense", "gaps"])
@pytest.mark.parametrize(
    ("name", "seed"),
    [("tiny", 0), ("tiny", 1), ("tiny", 2), ("two", 0), ("two", 1), ("small", 0), ("square", 0)],
)
def test_random_programs_are_bit_exact(name: str, seed: int, pace: str) -> None:
    rng = np.random.default_rng([seed, len(pace)])
    program = random_program(rng, CONFIGS[name], 40)
    gaps = rng.geometric(0.15, len(program)) - 1 if pace == "gaps" else np.zeros(len(program), int)
    bench(name).run(program, gaps.tolist())
    bench(name).check()


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_accumulators_start_clear_and_hold_what_is_added(name: str) -> None:
    """In FP32, where the order of the additions shows."""
    here = bench(name)
    here.run([write_out(row=40)])
    assert not here.result.m_acc.any()
    here.check()
    for count in (1, 2, 3, 6):
        here.run([product(row=24 + 5 * n, tile=n % TILES) for n in range(count)])
        here.check()


def test_other_operations_have_no_latency() -> None:
    with pytest.raises(
        ValueError, match="does not execute V_ADD_VV; it does M_MM, M_TMM and M_MM_WO"
    ):
        bench("tiny").unit.latency(Op["V_ADD_VV"])


def test_verilog_export() -> None:
    text = verilog.convert(MatrixUnit(CONFIGS["two"]), name="matrix_unit", emit_src=False)
    assert "module matrix_unit(" in text
    assert "latch" not in text
