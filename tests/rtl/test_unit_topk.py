"""TopkUnit: what it selects and how it weighs, against the stepwise reference and float64."""

import random

import numpy as np
import pytest
from amaranth.back import verilog

from rtl.topk import TopkUnit
from sim.numerics.topk import topk
from tests.rtl.test_unit_topk_bench import (
    CONFIGS,
    INF,
    MINUS_INF,
    NAN,
    Job,
    bits_of,
    exact_softmax,
    random_logits,
    rig,
    ulps,
)

#: experts, top-k: the fixed encodings, and shapes of the policy register.
SHAPES = ((32, 4), (128, 8), (16, 1), (60, 4), (64, 6), (256, 8))


def words(*patterns: int) -> np.ndarray:
    return np.array(patterns, np.uint16)


def expected(logits: np.ndarray, top_k: int) -> tuple[list[int], list[int]]:
    indices, weights = topk(logits, len(logits), top_k)
    return indices.tolist(), weights.tolist()


@pytest.mark.parametrize(
    ("logits", "top_k", "indices", "weights"),
    [
        # NaN and -inf are equal, and so are the zeros; a NaN's sign and payload do not matter.
        (words(NAN, MINUS_INF, 0xFFFF, 0xFF81, 0xFF7F), 3, [4, 0, 1], [0x3F80, 0, 0]),
        (words(0x8001, 0x8000, 0, 0x8000, 1), 4, [4, 1, 2, 3], [0x3E80] * 4),
        (words(0, INF, MINUS_INF, INF, 0x7F7F, INF), 5, [1, 3, 5, 4, 0], [0x3EAB] * 3 + [0] * 2),
        (words(*[MINUS_INF] * 9), 2, [0, 1], [0, 0]),
        # A difference that overflows, and differences at the end of the range.
        (words(0xFF7F, 0x7F7F), 2, [1, 0], [0x3F80, 0]),
        (bits_of(0, -127, -128, -160, -255, -256, -3e38), 7, [*range(7)], [0x3F80] + [0] * 6),
        (bits_of(0, -92, -92.5, -93), 4, [0, 1, 2, 3], [0x3F80, 0x0001, 0x0001, 0x0000]),
        (bits_of(5), 1, [0], [0x3F80]),
    ],
)  # fmt: skip
def test_cases(logits, top_k, indices, weights):
    got = rig("tiny").one(logits, top_k)
    assert got[0] == indices
    assert got[1] == weights
    assert got == expected(logits, top_k)


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_any_logits_against_the_reference(name):
    rng = random.Random(name)
    for _ in range(25):
        experts = rng.randrange(1, 40)
        top_k = rng.randrange(1, min(16, experts) + 1)
        logits = random_logits(rng, experts)
        garbage = random_logits(rng, 64)
        got = rig(name).one(logits, top_k, garbage=garbage)
        assert got == expected(logits, top_k)
        exact = exact_softmax(logits[np.array(got[0])])
        assert ulps(np.array(got[1], np.uint16), exact).max() < 0.53


@pytest.mark.parametrize(("experts", "top_k"), SHAPES)
def test_shapes(experts, top_k):
    """All but top_k + 2 winners are -100; they reach the last expert, and two are equal."""
    rng = random.Random(experts)
    winners = [*rng.sample(range(experts - 1), top_k + 1), experts - 1]
    rng.shuffle(winners)
    values = np.full(experts, -100.0)
    values[winners] = [8 - 0.5 * max(0, i - 1) for i in range(len(winners))]
    if experts == 256:
        values[-1] = 9  # the winner is the last one
    logits = bits_of(*values)
    rank = np.lexsort((np.arange(experts), -values))
    got = rig("small" if experts > 64 else "tiny").one(logits, top_k)
    assert got[0] == rank[:top_k].tolist()
    assert got == expected(logits, top_k)


def test_lanes_beyond_the_experts_never_count():
    logits = bits_of(*(0.25 * (i % 7) for i in range(60)))
    for garbage in (INF, NAN, MINUS_INF, 0x4080):
        got = rig("tiny").one(logits, 4, garbage=np.full(64, garbage, np.uint16))
        assert got == expected(logits, 4)
        assert max(got[0]) < 60


def test_ascending_descending_and_equal_logits_fill_the_list():
    ramp = bits_of(*(0.125 * i for i in range(24)))
    for logits in (ramp, ramp[::-1].copy(), np.full(24, 0x4000, np.uint16)):
        got = rig("tiny").one(logits, 16)
        assert got == expected(logits, 16)
    assert rig("tiny").one(np.full(24, 0x4000, np.uint16), 16) == (list(range(16)), [0x3D80] * 16)


@pytest.mark.parametrize(("name", "top_k"), [("one", 1), ("three", 3), ("three", 2)])
def test_short_lists(name, top_k):
    rng = random.Random(7)
    for _ in range(6):
        logits = random_logits(rng, rng.randrange(3, 20))
        assert rig(name).one(logits, top_k) == expected(logits, top_k)


def test_back_to_back_with_addresses_rows_and_tags():
    """Every instruction starts from an empty list and leaves nothing behind."""
    rng = random.Random(3)
    logits = np.concatenate([random_logits(rng, 16) for _ in range(8)])
    jobs = [
        Job(
            rng.randrange(8, 17),
            rng.randrange(1, 9),
            row=2 * i,
            weight_address=rng.randrange(1000),
            index_address=rng.randrange(1000),
            gap=rng.choice((0, 0, 1, 5)),
        )
        for i in range(8)
    ]
    for number, (job, run) in enumerate(zip(jobs, rig("tiny").run(logits, jobs), strict=True)):
        mine = logits[16 * number : 16 * number + job.num_experts]
        assert run.result == expected(mine, job.top_k)
        assert [a - job.weight_address for _, a, _ in run.weights] == list(range(job.top_k))
        assert [a - job.index_address for _, a, _ in run.indices] == list(range(job.top_k))
        assert run.tag == (100 + number, number, number)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (8, 4), (9, 9), (32, 4), (60, 16)])
def test_latency_and_throughput(shape):
    """A logit per cycle across rows; the stated cycles, and the next instruction right behind."""
    experts, top_k = shape
    unit, lanes = rig("tiny").unit, 8
    logits = bits_of(*range(experts))
    first, second = rig("tiny").run(logits, [Job(experts, top_k), Job(experts, top_k)])
    for run in (first, second):
        assert run.done - run.issued == unit.latency(experts, top_k) == experts + 2 * top_k + 24
        start = run.issued
        rows = -(-experts // lanes)
        assert run.reads == [(start + lanes * r, r) for r in range(rows)]
        ranks = np.arange(top_k)
        assert [c - start for c, *_ in run.indices] == (experts + 2 + ranks).tolist()
        assert [c - start for c, *_ in run.weights] == (experts + 25 + top_k + ranks).tolist()
        assert run.done == run.weights[-1][0]
    assert second.issued == first.done + 1


def test_default_configuration():
    rng = random.Random(11)
    for experts, top_k in ((128, 8), (60, 4), (256, 16)):
        logits = random_logits(rng, experts)
        assert rig("default").one(logits, top_k) == expected(logits, top_k)


@pytest.mark.parametrize("name", ["one", "small"])
def test_verilog_export(name):
    text = verilog.convert(TopkUnit(CONFIGS[name]), name="topk")
    assert "module topk(" in text
    assert "issue__payload" in text
