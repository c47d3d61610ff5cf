"""The HBM port at its stated rate and latency: beats, cycles, gaps, requests under way."""

import pytest

from sim.hbm import HbmDevice
from tests.rtl.test_unit_hbm_bench import Bench, Issue, M, S, V, bench_of, check, filled_device

FIRST_REQUEST = 3  # cycles from `issue` to the first read request, from the docstring of HbmPort
LANDING = 3  # cycles from a row's last answer to its write and `done`
FIRST_WRITE = 5  # cycles from `issue` to the first write request of an idle port


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    """The bench of the configuration called `request.param`."""
    return bench_of(request.param)


each_size = pytest.mark.parametrize(
    "bench", ["tiny", "small", "default", "wide", "narrow"], indirect=True
)
tiny = pytest.mark.parametrize("bench", ["tiny"], indirect=True)
default = pytest.mark.parametrize("bench", ["default"], indirect=True)


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
