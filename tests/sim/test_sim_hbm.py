"""The HBM device model: contents, timing, order, counters, faults and image files."""

import random
from pathlib import Path

import numpy as np
import pytest

from isa.config import load_config
from isa.stages import Stage
from sim.hbm import PAGE_BYTES, HbmDevice, HbmImageError, HbmRangeError

CONFIG = load_config("tiny").replace(HBM_LATENCY=5, HBM_OUTSTANDING=4)
ALL = (1 << 64) - 1


def play(
    device: HbmDevice, requests: list[tuple[int, bool, int, int, int]], cycles: int = 400
) -> tuple[list[int], list[tuple[int, int, bool]]]:
    """Offer the requests in order; return the cycles of acceptance, and the answers with theirs."""
    accepted, answers = [], []
    waiting = list(requests)
    for cycle in range(cycles):
        answer = device.response(cycle)
        if answer is not None:
            answers.append((cycle, *answer))
        if device.ready(cycle) and waiting:
            device.accept(cycle, *waiting.pop(0))
            accepted.append(cycle)
    return accepted, answers


def read(beat: int, stage: Stage = Stage.OTHER) -> tuple[int, bool, int, int, int]:
    return beat, False, 0, 0, stage


def test_host_access_across_pages_and_unwritten_memory() -> None:
    device = HbmDevice(CONFIG)
    content = bytes(range(256)) * 600
    at = 3 * PAGE_BYTES - 1001
    device.write(at, content)
    assert device.read(at - 5, len(content) + 10) == bytes(5) + content + bytes(5)
    assert device.read(1 << 33, 10) == bytes(10)
    assert sorted(device.image()) == [PAGE_BYTES * n for n in (2, 3, 4, 5)]
    device.write(100, np.arange(4, dtype=np.uint16))
    assert device.read(100, 8) == bytes([0, 0, 1, 0, 2, 0, 3, 0])
    device.write(100, np.arange(8, dtype=np.uint8).reshape(2, 4).T)  # not contiguous
    assert device.read(100, 8) == bytes([0, 4, 1, 5, 2, 6, 3, 7])
    assert device.read(7, 0) == b""


@pytest.mark.parametrize(
    ("address", "length"),
    [(CONFIG.HBM_BYTES - 4, 5), (-1, 2), (CONFIG.HBM_BYTES, 1), (0, -1)],
)
def test_access_outside_names_address_length_and_size(address: int, length: int) -> None:
    device = HbmDevice(CONFIG)
    with pytest.raises(HbmRangeError) as caught:
        device.read(address, length)
    error = caught.value
    assert (error.address, error.length, error.size) == (address, length, CONFIG.HBM_BYTES)
    for part in (f"{address:#x}", f"{length} bytes", f"{CONFIG.HBM_BYTES} bytes", "HBM_BYTES"):
        assert part in str(error)


def test_a_write_that_does_not_fit_changes_nothing() -> None:
    device = HbmDevice(CONFIG)
    with pytest.raises(HbmRangeError):
        device.write(CONFIG.HBM_BYTES - 4, b"12345")
    assert device.image() == {}


def test_fill() -> None:
    device = HbmDevice(CONFIG)
    device.fill(PAGE_BYTES - 10, PAGE_BYTES + 20, 7)
    assert device.read(PAGE_BYTES - 11, 12) == bytes([0] + [7] * 11)
    assert len(device.image()) == 3
    device.fill(PAGE_BYTES - 5, CONFIG.HBM_BYTES - PAGE_BYTES)
    assert device.read(PAGE_BYTES - 11, 12) == bytes([0] + [7] * 5 + [0] * 6)
    with pytest.raises(ValueError, match="0 to 255, not 256"):
        device.fill(0, 1, 256)
    with pytest.raises(HbmRangeError):
        device.fill(1, CONFIG.HBM_BYTES)
    device.fill(0, CONFIG.HBM_BYTES)
    assert set(device.read(0, 4 * PAGE_BYTES)) == {0}


def test_answers_come_after_the_latency_in_order_one_per_cycle() -> None:
    device = HbmDevice(CONFIG, capacity=64)
    content = np.random.default_rng(1).integers(0, 256, 64 * 20, dtype=np.uint8).tobytes()
    device.write(0, content)
    accepted, answers = play(device, [read(n) for n in range(20)])
    assert accepted == list(range(20))
    assert [cycle for cycle, _, _ in answers] == [5 + n for n in range(20)]
    assert b"".join(data.to_bytes(64, "little") for _, data, _ in answers) == content
    assert not any(error for _, _, error in answers)
    assert device.next_response is None
    assert device.under_way == 0


def test_capacity_and_bandwidth_limit_acceptance() -> None:
    accepted, _ = play(HbmDevice(CONFIG), [read(n) for n in range(8)])
    assert accepted == [0, 1, 2, 3, 5, 6, 7, 8]  # four under way; an answer makes room in its cycle
    slow = CONFIG.replace(HBM_CYCLES_PER_BEAT=3)
    accepted, answers = play(HbmDevice(slow), [read(n) for n in range(4)])
    assert accepted == [0, 3, 6, 9]
    assert [cycle for cycle, _, _ in answers] == [5, 8, 11, 14]


def test_ready_does_not_depend_on_whether_the_answer_was_fetched() -> None:
    for early in (False, True):
        device = HbmDevice(CONFIG, capacity=1)
        device.accept(0, *read(0))
        if early:
            assert not device.ready(4)
            assert device.ready(5)
        assert device.response(4) is None
        assert device.response(5) == (0, False)
        assert device.response(5) is None
        assert device.ready(5)


def test_writes_obey_strobes_are_answered_and_are_seen_by_later_reads() -> None:
    device = HbmDevice(CONFIG, capacity=64)
    rng = random.Random(2)
    golden = bytearray(rng.randbytes(64 * 4))
    device.write(0, golden)
    requests = []
    expected = []
    for _ in range(60):
        beat, data = rng.randrange(4), rng.getrandbits(512)
        strobe = rng.choice([rng.getrandbits(64), ALL, 0, 1 << rng.randrange(64)])
        requests += [(beat, True, data, strobe, 0), read(beat)]
        for n, byte in enumerate(data.to_bytes(64, "little")):
            if strobe >> n & 1:
                golden[beat * 64 + n] = byte
        expected += [0, int.from_bytes(golden[beat * 64 : beat * 64 + 64], "little")]
    _, answers = play(device, requests)
    assert [data for _, data, _ in answers] == expected
    assert device.read(0, 256) == bytes(golden)


def test_counters_are_per_stage_and_in_total() -> None:
    device = HbmDevice(CONFIG)
    device.inject_fault(64 * 9)
    one_byte = (0, True, 0, 1, Stage.GATHER)
    play(
        device, [read(9, Stage.GATHER), read(1, Stage.ROUTER_TOPK), one_byte, read(2, Stage.GATHER)]
    )
    assert device.bytes_read[Stage.GATHER] == 128
    assert device.bytes_read[Stage.ROUTER_TOPK] == 64
    assert device.bytes_written[Stage.GATHER] == 64
    assert (device.total_read, device.total_written) == (192, 64)
    device.read(0, 1000)
    device.write(0, bytes(1000))
    assert (device.total_read, device.total_written) == (192, 64)
    device.reset_counters()
    assert (device.total_read, device.total_written) == (0, 0)


def test_faults_answer_with_an_error_and_protect_their_beats() -> None:
    device = HbmDevice(CONFIG)
    device.write(0, bytes([1]) * 640)
    device.inject_fault(127, 2)  # touches beats 1 and 2
    write = [(n, True, 0, ALL, 0) for n in range(4)]
    _, answers = play(device, [*write, *(read(n) for n in range(4))])
    assert [error for _, _, error in answers] == [False, True, True, False] * 2
    assert answers[5][1] == 0
    assert device.read(0, 256) == bytes(64) + bytes([1]) * 128 + bytes(64)
    device.clear_faults()
    device.reset()
    _, answers = play(device, [read(1)])
    assert answers == [(5, int.from_bytes(bytes([1]) * 64, "little"), False)]


def test_a_beat_outside_the_memory_is_an_error() -> None:
    device = HbmDevice(CONFIG)
    beyond = CONFIG.HBM_BYTES // 64
    _, answers = play(device, [read(beyond - 1), read(beyond), (beyond, True, 1, ALL, 0)])
    assert [error for _, _, error in answers] == [False, True, True]
    assert device.image() == {}


def test_disturbance_is_random_in_order_and_repeatable() -> None:
    requests = [read(n) for n in range(60)]

    def once(seed: int, peek: bool) -> tuple[list[int], list[tuple[int, int, bool]]]:
        device = HbmDevice(CONFIG, capacity=8, seed=seed, extra_latency=9, backpressure=0.5)
        if peek:  # asking does not change the answers
            [device.ready(n) for n in range(50)]
        return play(device, requests, cycles=1000)

    accepted, answers = once(1, False)
    assert (accepted, answers) == once(1, True)
    assert (accepted, answers) != once(2, False)
    cycles = [cycle for cycle, _, _ in answers]
    assert cycles == sorted(set(cycles))
    delays = {answered - taken for taken, answered in zip(accepted, cycles, strict=True)}
    assert all(5 <= delay <= 5 + 9 + 8 for delay in delays)
    assert len(delays) > 3
    free = [HbmDevice(CONFIG, seed=3, backpressure=0.25).ready(n) for n in range(4000)]
    assert 0.7 < sum(free) / len(free) < 0.8


def test_reset_starts_time_again_and_keeps_contents() -> None:
    device = HbmDevice(CONFIG)
    device.write(0, b"kept")
    play(device, [read(0), read(1)], cycles=3)
    assert device.under_way == 2
    device.reset()
    assert (device.under_way, device.total_read, device.ready(0)) == (0, 0, True)
    assert device.read(0, 4) == b"kept"


def test_image_file_round_trip(tmp_path: Path) -> None:
    device = HbmDevice(CONFIG)
    rng = np.random.default_rng(3)
    for at in (0, 5 * PAGE_BYTES + 17, CONFIG.HBM_BYTES - 1000):
        device.write(at, rng.integers(0, 256, 1000, dtype=np.uint8))
    path = tmp_path / "image.npz"
    device.save(path)
    device.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["image.npz"]
    other = HbmDevice(CONFIG)
    other.write(9 * PAGE_BYTES, b"goes")
    other.load(path)
    assert other.image() == device.image()
    empty = HbmDevice(CONFIG)
    empty.save(path)
    other.load(path)
    assert other.image() == {}


def test_image_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    device = HbmDevice(CONFIG)
    device.write(0, b"kept")
    path = tmp_path / "image.npz"
    big = HbmDevice(CONFIG)
    big.write(1 << 30, b"far")
    big.save(path)
    small = HbmDevice(CONFIG.replace(HBM_BYTES=1 << 20))
    with pytest.raises(HbmImageError, match=r"page at 0x40000000 does not fit a memory of 1048576"):
        small.load(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(HbmImageError, match="not an HBM image"):
        device.load(path)
    np.savez(path, pages=np.zeros(3))
    with pytest.raises(HbmImageError, match="not an HBM image"):
        device.load(path)
    assert device.read(0, 4) == b"kept"


def test_an_image_is_read_in_its_own_mx_dialect_only(tmp_path: Path) -> None:
    path = tmp_path / "image.npz"
    plena = HbmDevice(CONFIG.replace(mx_dialect="plena"))
    plena.write(0, b"far")
    plena.save(path)
    device = HbmDevice(CONFIG)
    device.write(0, b"kept")
    wanted = "is in MX dialect plena, the machine's is ocp.*mx_dialect = 'plena', or write"
    with pytest.raises(HbmImageError, match=wanted):
        device.load(path)
    assert device.read(0, 4) == b"kept"
    plena.fill(0, 4)
    plena.load(path)
    assert plena.read(0, 4) == b"far\0"
    with np.load(path) as file:  # as it was before it named its dialect
        fields = {name: file[name] for name in file.files if name != "mx_dialect"}
    np.savez(path, **{**fields, "version": np.int64(1)})
    with pytest.raises(HbmImageError, match="version 1, this program reads 2; write"):
        device.load(path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 0}, "capacity must be at least 1 request, not 0"),
        ({"extra_latency": -1}, "extra_latency must not be negative, not -1"),
        ({"backpressure": 1.0}, r"backpressure must be at least 0 and below 1, not 1\.0"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HbmDevice(CONFIG, **wrong)  # type: ignore[arg-type]
