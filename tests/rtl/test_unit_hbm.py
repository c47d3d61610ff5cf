"""The HBM port moves the right bytes: any alignment, value and order, and errors."""

import random

import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.hdl import Const, Value

from isa.config import PlenaConfig
from isa.stages import Stage
from rtl.hbm import HbmPort
from rtl.hbm.plan import Plan
from sim.hbm import HbmDevice
from tests.rtl.test_unit_hbm_bench import (
    CONFIGS,
    REGION,
    Bench,
    Issue,
    M,
    S,
    V,
    bench_of,
    check,
    expect,
    filled_device,
    random_vram,
)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    """The bench of the configuration called `request.param`."""
    return bench_of(request.param)


each_size = pytest.mark.parametrize(
    "bench", ["tiny", "small", "default", "wide", "narrow"], indirect=True
)
tiny = pytest.mark.parametrize("bench", ["tiny"], indirect=True)
default = pytest.mark.parametrize("bench", ["default"], indirect=True)


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
