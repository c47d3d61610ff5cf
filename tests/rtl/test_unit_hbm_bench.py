"""For the tests of the HBM port: its bench, golden conversions, and what instructions should do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from amaranth.hdl import Value
from amaranth.sim import Simulator

from isa.config import PlenaConfig, load_config
from isa.opcodes import Op
from isa.stages import Stage
from rtl.hbm import HbmPort
from sim.hbm import HbmDevice

M, V, S = Op.H_PREFETCH_M, Op.H_PREFETCH_V, Op.H_STORE_V
LARGEST = float(2**128 - 2**120)  # of BF16

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
    op: Any  # of Op
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
            sample = await ctx.tick().sample(*sampled)
            (issue_ready, req_valid, req,
             m_en, m_tile, m_row, m_data, m_pc, v_en, v_row, v_lanes, v_data, v_pc,
             r_en, r_row, done, done_pc, error, error_pc) = sample[2:]  # fmt: skip
            if valid and issue_ready:
                record.issued.append(cycle)
                number += 1
                wait = self.issues[number].gap if number < len(self.issues) else 0
            if req_valid and ready:
                record.requests.append((cycle, req.address, bool(req.write), int(req.tag.stage)))
                device.accept(
                    cycle, req.address, bool(req.write), req.data, req.strobe, int(req.tag.stage)
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


def bench_of(name: str) -> Bench:
    """Return the bench of the configuration called `name`, built once per process."""
    if name not in _BENCHES:
        _BENCHES[name] = Bench(CONFIGS[name])
    return _BENCHES[name]


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
