"""The HBM port against golden rows, beats, bytes and cycles, with the memory model behind it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.hdl import Const, Value
from amaranth.sim import Simulator

from isa.config import PlenaConfig, load_config
from isa.opcodes import Op
from isa.stages import Stage
from rtl.hbm import HbmPort
from rtl.hbm.plan import Plan
from sim.hbm import HbmDevice

M, V, S = Op.H_PREFETCH_M, Op.H_PREFETCH_V, Op.H_STORE_V
LARGEST = float(2**128 - 2**120)  # of BF16
FIRST_REQUEST = 3  # cycles from `issue` to the first read request, from the docstring of HbmPort
LANDING = 3  # cycles from a row's last answer to its write and `done`
FIRST_WRITE = 5  # cycles from `issue` to the first write request of an idle port

CONFIGS = {
    "tiny": load_config("tiny"),
    "small": load_config("small"),
    "default": load_config("default"),
    "wide": PlenaConfig(name="wide", MLEN=128, BLEN=4, HLEN=32, HBM_M_PREFETCH=6),
    "narrow": load_config("tiny").replace(
        name="narrow", HBM_OUTSTANDING=2, HBM_LATENCY=1, HBM_QUEUE=1
    ),
}


# Golden conversions, from numerics.md alone.


def decode(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """E4M3 codes and one E8M0 byte per block of 8, to BF16 bits with one NaN."""
    elements = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    factor = np.where(scales == 255, np.nan, 2.0 ** (scales.astype(np.float64) - 127))
    with np.errstate(invalid="ignore", over="ignore"):
        bits = (elements * np.repeat(factor, 8)).astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.where((bits & 0x7FFF) > 0x7F80, 0x7FC0, bits).astype(np.uint16)


def encode(bits: np.ndarray) -> tuple[bytes, bytes]:
    """BF16 bits to E4M3 codes and E8M0 scale bytes."""
    codes, scales = [], []
    for block in bits.reshape(-1, 8):
        with np.errstate(invalid="ignore"):  # signalling NaN
            x = block.view(ml_dtypes.bfloat16).astype(np.float64)
        finite = np.clip(x, -LARGEST, LARGEST)
        top = np.max(np.abs(finite[~np.isnan(x)]), initial=0.0)
        e = int(np.clip(np.floor(np.log2(top)) - 8, -127, 127)) if top else -127
        scales.append(e + 127)
        for value, raw in zip(finite, block, strict=True):
            if np.isnan(value):
                codes.append(0xFF if raw & 0x8000 else 0x7F)
            else:
                scaled = ml_dtypes.float8_e4m3fn(np.clip(value * 2.0**-e, -448, 448))
                codes.append(int(scaled.view(np.uint8)))
    return bytes(codes), bytes(scales)


@dataclass(frozen=True)
class Issue:
    op: Op
    elements: int
    scales: int
    stride: int
    row: int = 0
    stage: Stage = Stage.OTHER
    gap: int = 0  # cycles before it is offered


@dataclass
class Record:
    """What happened, in order, each with its cycle first."""

    issued: list[int] = field(default_factory=list)
    requests: list[tuple[int, int, bool, int]] = field(default_factory=list)  # beat, write, stage
    answers: list[int] = field(default_factory=list)
    rows: list[tuple[int, Any]] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)  # pc
    errors: list[tuple[int, int]] = field(default_factory=list)  # pc


class Bench:
    """One port, built once; `run` plays instructions against a device and a vector SRAM."""

    def __init__(self, config: PlenaConfig) -> None:
        self.config = config
        self.dut = HbmPort(config)
        self.sim = Simulator(self.dut)
        self.sim.add_clock(1e-9)
        self.sim.add_testbench(self._drive)
        self.fresh = True

    def run(
        self,
        issues: Sequence[Issue],
        device: HbmDevice,
        vram: np.ndarray | None = None,
        limit: int = 4000,
    ) -> Record:
        if not self.fresh:
            self.sim.reset()
        self.fresh = False
        self.issues, self.device, self.record, self.limit = list(issues), device, Record(), limit
        self.vram = (
            np.zeros((self.config.VRAM_ROWS, self.config.MLEN), np.uint16) if vram is None else vram
        )
        self.sim.run()
        return self.record

    async def _drive(self, ctx: Any) -> None:
        dut, device, record, config = self.dut, self.device, self.record, self.config
        request, matrix, vector, read = dut.request, dut.mram_write, dut.vram_write, dut.vram_read
        sampled = [
            dut.issue.ready, request.valid, request.payload,
            matrix.en, matrix.tile, matrix.row, matrix.data, matrix.tag.pc,
            vector.en, vector.row, vector.lanes, vector.data, vector.tag.pc,
            read.en, read.row, dut.done.valid, dut.done.tag.pc, dut.error.valid, dut.error.tag.pc,
        ]  # fmt: skip
        number, wait, quiet = 0, self.issues[0].gap, 0
        offered = None
        for cycle in range(self.limit):
            answer = device.response(cycle)
            ctx.set(dut.response.valid, answer is not None)
            if answer is not None:
                ctx.set(dut.response.payload, {"data": answer[0], "error": answer[1]})
                record.answers.append(cycle)
            ready = device.ready(cycle)
            ctx.set(request.ready, ready)
            valid = number < len(self.issues) and wait <= 0
            wait -= 1
            ctx.set(dut.issue.valid, valid)
            if valid and offered != number:
                offered, i = number, self.issues[number]
                tag = {"pc": number + 100, "stage": i.stage, "slot": number % 64}
                ctx.set(dut.issue.payload, {
                    "tag": tag, "op": i.op, "elements": i.elements, "scales": i.scales,
                    "stride": i.stride, "row": i.row, "precision": number & 1,
                })  # fmt: skip
            (_, _, issue_ready, req_valid, req,
             m_en, m_tile, m_row, m_data, m_pc, v_en, v_row, v_lanes, v_data, v_pc,
             r_en, r_row, done, done_pc, error, error_pc) = await ctx.tick().sample(*sampled)  # fmt: skip
            if valid and issue_ready:
                record.issued.append(cycle)
                number += 1
                wait = self.issues[number].gap if number < len(self.issues) else 0
            if req_valid and ready:
                record.requests.append((cycle, req.address, bool(req.write), int(req.stage)))
                device.accept(
                    cycle, req.address, bool(req.write), req.data, req.strobe, int(req.stage)
                )
            if m_en:
                record.rows.append((cycle, ("M", m_tile, m_row, m_data.as_bits(), m_pc)))
            if v_en:
                assert v_lanes == (1 << config.MLEN) - 1
                record.rows.append((cycle, ("V", v_row, 0, v_data.as_bits(), v_pc)))
                self.vram[v_row] = np.frombuffer(
                    v_data.as_bits().to_bytes(2 * config.MLEN, "little"), np.uint16
                )
            if r_en:
                ctx.set(Value.cast(read.data), int.from_bytes(self.vram[r_row].tobytes(), "little"))
            if done:
                record.done.append((cycle, done_pc))
            if error:
                record.errors.append((cycle, error_pc))
            quiet = quiet + 1 if device.next_response is None and not req_valid else 0
            finished = len(record.done) == len(self.issues)
            if quiet > (8 if finished else 100):
                return
        raise AssertionError(
            f"not quiet after {self.limit} cycles: {number} issued, {record.done} done"
        )


_BENCHES: dict[str, Bench] = {}


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    """The bench of the configuration called `request.param`, built once."""
    name = request.param
    if name not in _BENCHES:
        _BENCHES[name] = Bench(CONFIGS[name])
    return _BENCHES[name]


each_size = pytest.mark.parametrize(
    "bench", ["tiny", "small", "default", "wide", "narrow"], indirect=True
)
tiny = pytest.mark.parametrize("bench", ["tiny"], indirect=True)
default = pytest.mark.parametrize("bench", ["default"], indirect=True)

REGION = 1 << 17


def filled_device(config: PlenaConfig, seed: int, **disturbance: Any) -> HbmDevice:
    device = HbmDevice(config, seed=seed, **disturbance)
    content = np.random.default_rng(seed).integers(0, 256, REGION, dtype=np.uint8)
    device.write(0, content)
    return device


def random_vram(config: PlenaConfig, seed: int) -> np.ndarray:
    """All kinds of BF16: any bits, and values close enough together to survive a block."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 1 << 16, (config.VRAM_ROWS, config.MLEN), dtype=np.uint16)
    near = (rng.normal(size=rows.shape) * 4).astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.where(rng.integers(0, 4, (len(rows), 1)) > 0, near, rows)


def rows_of(config: PlenaConfig, issue: Issue) -> int:
    return {M: config.m_prefetch, V: config.v_prefetch, S: config.v_writeback}[issue.op]


def expect(
    config: PlenaConfig, issues: Sequence[Issue], memory: bytearray, vram: np.ndarray
) -> tuple[list[Any], list[tuple[int, bool, int]]]:
    """Run one after the other: rows written, requests made; `memory` and `vram` change."""
    rows, requests = [], []
    blocks = config.MLEN // 8
    for number, issue in enumerate(issues):
        last: dict[str, int] = {}
        for r in range(rows_of(config, issue)):
            places = {
                "scales": (issue.scales + r * issue.stride // 8, blocks),
                "elements": (issue.elements + r * issue.stride, config.MLEN),
            }
            for name, (at, count) in places.items():
                for beat in range(at // 64, (at + count - 1) // 64 + 1):
                    if issue.op == S or last.get(name) != beat:
                        requests.append((beat, issue.op == S, int(issue.stage)))
                    last[name] = beat
            (s, _), (e, _) = places["scales"], places["elements"]
            if issue.op == S:
                codes, scales = encode(vram[issue.row + r])
                memory[s : s + blocks] = scales
                memory[e : e + config.MLEN] = codes
                continue
            lanes = decode(
                np.frombuffer(bytes(memory[e : e + config.MLEN]), np.uint8),
                np.frombuffer(bytes(memory[s : s + blocks]), np.uint8),
            )
            data = int.from_bytes(lanes.tobytes(), "little")
            if issue.op == V:
                vram[issue.row + r] = lanes
            rows.append(("V", issue.row + r, 0, data, number + 100) if issue.op == V else
                        ("M", issue.row, r, data, number + 100))  # fmt: skip
    return rows, requests


def check(
    bench: Bench, issues: Sequence[Issue], device: HbmDevice, vram: np.ndarray | None = None
) -> Record:
    """Run, and compare rows, requests, completions, memory, vector SRAM and counters."""
    config = bench.config
    vram = random_vram(config, 1) if vram is None else vram
    memory, golden_vram = bytearray(device.read(0, REGION)), vram.copy()
    rows, requests = expect(config, issues, memory, golden_vram)
    record = bench.run(issues, device, vram)
    assert [row for _, row in record.rows] == rows
    assert [request[1:] for request in record.requests] == requests
    assert [pc for _, pc in record.done] == [100 + n for n in range(len(issues))]
    assert device.read(0, REGION) == bytes(memory)
    assert np.array_equal(vram, golden_vram)
    for stage in Stage:
        for write, counter in ((False, device.bytes_read), (True, device.bytes_written)):
            assert counter[stage] == 64 * sum(request[1:] == (write, stage) for request in requests)
    last_write = {row[4]: cycle for cycle, row in record.rows}
    for cycle, pc in record.done:
        assert cycle == last_write.get(pc, cycle)
    assert not record.errors
    return record


def random_issues(config: PlenaConfig, rng: random.Random, count: int, gaps: bool) -> list[Issue]:
    """Any alignment; stores read the lower half of vector SRAM, prefetches write the upper."""
    half = config.VRAM_ROWS // 2
    issues = []
    for _ in range(count):
        align = rng.choice([1, 8, 8, 64, 64])
        op = rng.choice([M, V, V, S])
        stride = 8 * rng.choice(
            [config.MLEN // 8] * 4
            + [config.MLEN // 4, 0, 1, config.MLEN // 8 + 1, rng.randrange(1, 80)]
        )
        issues.append(
            Issue(
                op=op,
                elements=rng.randrange(REGION // 2 // align) * align,
                scales=rng.randrange(REGION // 4) + REGION // 2 if rng.random() < 0.7 else
                rng.randrange(REGION // 4 // 64) * 64,
                stride=stride,
                row=rng.randrange(config.MRAM_TILES) if op == M else
                rng.randrange(half - config.MLEN) + (half if op == V else 0),
                stage=rng.choice(list(Stage)),
                gap=rng.choice([0, 0, 0, 1, 5, 60]) if gaps else 0,
            )
        )  # fmt: skip
    return issues


@each_size
def test_random_instructions_with_a_prompt_memory(bench: Bench) -> None:
    rng = random.Random(bench.config.name)
    count = 8 if bench.config.MLEN >= 64 else 40
    check(bench, random_issues(bench.config, rng, count, gaps=True), filled_device(bench.config, 3))


@pytest.mark.parametrize("bench", ["tiny", "small", "narrow"], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_instructions_with_an_unsteady_memory(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    device = filled_device(bench.config, seed, extra_latency=40, backpressure=0.4)
    check(bench, random_issues(bench.config, rng, 40, gaps=seed == 1), device)


@pytest.mark.parametrize("bench", ["default"], indirect=True)
def test_random_instructions_at_default_with_an_unsteady_memory(bench: Bench) -> None:
    device = filled_device(bench.config, 9, extra_latency=30, backpressure=0.2)
    check(bench, random_issues(bench.config, random.Random(9), 8, gaps=False), device)


@tiny
def test_every_code_and_every_scale(bench: Bench) -> None:
    config = bench.config
    device = HbmDevice(config)
    codes = np.arange(256, dtype=np.uint8)
    issues = []
    for n, scale in enumerate([0, 1, 2, 7, 100, 118, 127, 128, 200, 247, 248, 249, 253, 254, 255]):
        device.write(n * 512, codes)
        device.write(REGION // 2 + n * 64, np.full(32, scale, np.uint8))
        issues += [
            Issue(M, n * 512 + k, REGION // 2 + n * 64 + k // 8, 8) for k in range(0, 256, 64)
        ]
    every = np.arange(256, dtype=np.uint8)
    device.write(
        0x8000, np.resize(np.array([0x38, 0xB8, 1, 0x7E, 0, 0x80, 9, 0x7F], np.uint8), 2048)
    )
    device.write(0xC000, every)
    issues += [Issue(M, 0x8000 + k * 8, 0xC000 + k, 8) for k in range(0, 256, 8)]
    check(bench, issues, device)


@tiny
def test_store_of_special_values_changes_its_own_bytes_only(bench: Bench) -> None:
    config = bench.config
    vram = np.zeros((config.VRAM_ROWS, 8), np.uint16)
    vram[0] = [0, 0x8000] * 4  # zeros with both signs: scale byte 0
    vram[1] = [0x7FC0, 0xFFC1, 0x3F80, 0x4000, 0, 0xBF80, 0x7F81, 0x3F81]  # NaN
    vram[2] = [0x7F80, 0xFF80, 0x3F80, 0x7F7F, 0xFF7F, 0x7E80, 0, 1]  # infinities
    vram[3] = [1, 0x8001, 0x7F, 0x80, 0x0100, 0, 2, 3]  # subnormals
    vram[4] = [0x7FC0] * 8  # nothing but NaN
    device = filled_device(config, 5)
    issues = [
        Issue(S, 0x1003, 0x2039, 72, 0),
        Issue(S, 0x1100, 0x203F, 8, 1),
        Issue(S, 0x13FD, 0x2400, 64, 4),
    ]
    check(bench, issues, device, vram)
    assert device.read(0x1003, 8) == bytes([0, 0x80] * 4)
    assert device.read(0x2039, 1) == b"\0"


@each_size
def test_a_prefetch_right_after_a_store_reads_what_it_wrote(bench: Bench) -> None:
    config = bench.config
    for disturbance in ({}, {"extra_latency": 20, "backpressure": 0.3}):
        device = filled_device(config, 6, **disturbance)
        issues = [
            Issue(S, 0x1018, 0x8005, config.MLEN + 8, row=3),
            Issue(
                V, 0x1018, 0x8005, config.MLEN + 8, row=3
            ),  # also writes the rows that the store reads
            Issue(S, 0x1020, 0x8007, config.MLEN, row=100),
            Issue(S, 0x1020, 0x8007, config.MLEN, row=200),
            Issue(V, 0x1020, 0x8007, config.MLEN, row=300),
        ]
        check(bench, issues, device)


@default
def test_a_contiguous_tile_takes_72_beats_at_one_per_cycle(bench: Bench) -> None:
    config = bench.config
    tiles = [Issue(M, 0x4000 * n, 0x10000 + 0x200 * n, 64, row=n) for n in range(2)]
    record = check(bench, tiles, filled_device(config, 7))
    cycles = [request[0] for request in record.requests]
    assert record.issued == [0, 1]
    assert cycles == list(range(FIRST_REQUEST, FIRST_REQUEST + 2 * 72))  # no gap between the tiles
    assert record.answers == [cycle + config.HBM_LATENCY for cycle in cycles]
    assert [cycle for cycle, _ in record.done] == [
        FIRST_REQUEST + beats - 1 + config.HBM_LATENCY + LANDING for beats in (72, 144)
    ]
    # A row is written for every answer but the scales'.
    assert len(record.rows) == 128
    assert record.rows[8][0] - record.rows[0][0] == 9


@default
def test_unaligned_tile_with_a_reused_beat_per_row(bench: Bench) -> None:
    record = check(bench, [Issue(M, 0x1008, 0x8000, 64)], filled_device(bench.config, 8))
    cycles = [request[0] for request in record.requests]
    assert len(cycles) == 65 + 8
    assert cycles[-1] - cycles[0] == 72


@pytest.mark.parametrize("bench", ["tiny", "small", "default"], indirect=True)
def test_mixed_instructions_follow_each_other_without_a_gap(bench: Bench) -> None:
    config = bench.config
    stride = (
        64 if config.MLEN <= 64 else config.MLEN
    )  # a beat per row, so that requests are the limit
    kinds = [M, S, V, S, M, V]
    issues = [
        Issue(op, 0x2000 * n, 0x10000 + 0x400 * n, stride, row=10 * n % 16)
        for n, op in enumerate(kinds)
    ]
    record = check(bench, issues, filled_device(config, 10))
    cycles = [request[0] for request in record.requests]
    assert cycles == list(range(FIRST_REQUEST, FIRST_REQUEST + len(cycles)))


@pytest.mark.parametrize("bench", ["tiny", "default"], indirect=True)
def test_store_latency(bench: Bench) -> None:
    config = bench.config
    record = check(bench, [Issue(S, 0x100, 0x8000, config.MLEN)], filled_device(config, 11))
    beats = 2 * config.v_writeback
    assert [request[0] for request in record.requests] == list(
        range(FIRST_WRITE, FIRST_WRITE + beats)
    )
    assert record.done[0][0] == FIRST_WRITE + beats - 1 + config.HBM_LATENCY + LANDING


@tiny
def test_rows_in_one_beat_leave_one_per_cycle(bench: Bench) -> None:
    record = check(bench, [Issue(M, 0x1000, 0x8000, 8)], filled_device(bench.config, 12))
    assert len(record.requests) == 2
    first, last = record.rows[0][0], record.rows[-1][0]
    assert last - first == len(record.rows) - 1


@pytest.mark.parametrize("bench", ["narrow"], indirect=True)
def test_outstanding_requests_are_limited(bench: Bench) -> None:
    config = bench.config.replace(HBM_LATENCY=10)
    device = HbmDevice(config, capacity=64)
    record = check(bench, [Issue(V, 0x1000, 0x8000, 64)] * 2, device)
    for n, request in enumerate(record.requests):
        answered = sum(cycle < request[0] for cycle in record.answers)
        assert n + 1 - answered <= config.HBM_OUTSTANDING


@tiny
@pytest.mark.parametrize("bad", [1, 2])
def test_an_error_answer_fails_its_instruction_and_no_other(bench: Bench, bad: int) -> None:
    config = bench.config
    device = filled_device(config, 13)
    issues = [
        Issue(V, 0x6000, 0x8000, 64, row=1),
        Issue(M, 0x1000, 0x8000, 64),
        Issue(S, 0x3000, 0xA000, 64, row=600),
        *(Issue(V, 0x6000, 0x8000, 64, row=n) for n in range(4)),
    ]
    vram = random_vram(config, 2)
    rows, requests = expect(config, issues, bytearray(device.read(0, REGION)), vram.copy())
    before = device.read(0, REGION)
    device.inject_fault(0x3041 if bad == 2 else 0x1080)  # row 1 of the store, row 2 of the tile
    record = bench.run(issues, device, vram)
    ends = sorted((*record.done, *record.errors))
    assert [pc for _, pc in ends] == [100 + n for n in range(len(issues))]
    assert [pc for _, pc in record.errors] == [100 + bad]
    good = [row for row in rows if row[4] != 101 or bad == 2 or row[2] < 2]
    assert [row for _, row in record.rows] == good
    assert [request[1:] for request in record.requests] == requests
    untouched = device.read(0x3040, 64) == before[0x3040:0x3080]
    assert untouched == (bad == 2)


def test_block_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"MX_BLOCK = 2: .* at most 64 scale bytes .* \(use 8 or more\)"
    ):
        Plan(PlenaConfig(MLEN=512, HLEN=64, MX_BLOCK=2))
    with pytest.raises(ValueError, match=r"MX_BLOCK = 128: a block must have at most 64 elements"):
        Plan(PlenaConfig(MLEN=128, HLEN=64, MX_BLOCK=128))


def test_verilog_export() -> None:
    dut = HbmPort(CONFIGS["tiny"])
    members = [
        ("__".join(map(str, path)), Value.cast(value))
        for path, _, value in dut.signature.flatten(dut)
    ]
    # `response.ready` is a constant, which Amaranth's export refuses as a port.
    ports = {name: (value, None) for name, value in members if not isinstance(value, Const)}
    text = verilog.convert(dut, name="hbm_port", ports=ports, emit_src=False)
    for name in ("module hbm_port(", "decode_7", "request__payload"):
        assert name in text
