"""V_TOPK and C_SET_TOPK_REG on the whole machine: policies, traps, hazards, accounting."""

import ml_dtypes
import numpy as np
import pytest

from isa.stages import Stage
from isa.traps import Trap
from sim.numerics.topk import topk

MLEN = 8  # of the tiny configuration, in which all of this runs
MARK = 0x7A5A


def logits_of(count: int, seed: int = 1) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32) * 2
    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def load_logits(sim, logits: np.ndarray, row: int = 0) -> None:
    """Logits from a row on; the rest of the last row would win, if it counted."""
    padded = np.full(-(-len(logits) // MLEN) * MLEN, 0x7F80, np.uint16)
    padded[: len(logits)] = logits
    sim.memories.write_vector(row, padded.reshape(-1, MLEN))


def results(sim, weights_at: int, indices_at: int, top_k: int) -> tuple[list[int], list[int]]:
    indices = sim.memories.read_int()[indices_at : indices_at + top_k]
    weights = sim.memories.read_fp()[weights_at : weights_at + top_k]
    return indices.tolist(), weights.tolist()


def expected(logits: np.ndarray, top_k: int) -> tuple[list[int], list[int]]:
    indices, weights = topk(logits, len(logits), top_k)
    return indices.tolist(), weights.tolist()


def policy(num_experts: int, top_k: int, register: str = "gp1") -> str:
    value = num_experts << 8 | top_k
    if value < 1 << 18:
        load = f"S_ADDI_INT {register}, gp0, {value}\n"
    else:
        low = f"S_ADDI_INT {register}, {register}, {value & 0xFFF}\n"
        load = f"S_LUI_INT {register}, {value >> 12}\n{low}"
    return f"{load}C_SET_TOPK_REG {register}\n"


@pytest.mark.parametrize(
    ("num_experts", "top_k", "rmask"),
    [(32, 4, 0), (128, 8, 1), (16, 1, 15), (60, 4, 15), (64, 6, 15), (256, 8, 15), (1024, 1, 15)],
)
def test_shapes(program, num_experts, top_k, rmask):
    set_policy = policy(num_experts, top_k) if rmask == 15 else ""
    sim = program(
        f"""
        {set_policy}
        S_ADDI_INT gp2, gp0, 80
        S_ADDI_INT gp3, gp0, 30
        S_ADDI_INT gp4, gp0, 500
        V_TOPK gp3, gp2, gp4, {rmask}
        """
    )
    logits = logits_of(num_experts)
    logits[-1] = 0x4120  # 10.0: the last expert wins
    load_logits(sim, logits, row=10)
    sim.memories.write_fp(0, np.full(1024, MARK, np.uint16))
    sim.memories.write_int(0, np.full(1024, MARK))
    result = sim.run(max_cycles=2000)
    assert result.cause is Trap.DONE
    assert results(sim, 30, 500, top_k) == expected(logits, top_k)
    assert (sim.memories.read_fp() != MARK).nonzero()[0].tolist() == [*range(30, 30 + top_k)]
    assert (sim.memories.read_int() != MARK).nonzero()[0].tolist() == [*range(500, 500 + top_k)]


def test_the_policy_register_is_sticky_and_does_not_touch_the_fixed_encodings(program):
    sim = program(
        policy(10, 3)
        + """
        S_ADDI_INT gp2, gp0, 16
        V_TOPK gp0, gp0, gp0, 15
        V_TOPK gp2, gp0, gp2, 0
        S_ADDI_INT gp3, gp0, 32
        V_TOPK gp3, gp0, gp3, 15
        """
        + policy(32, 2)
        + """
        S_ADDI_INT gp4, gp0, 48
        V_TOPK gp4, gp0, gp4, 15
        """
    )
    logits = logits_of(32)
    load_logits(sim, logits)
    assert sim.run().cause is Trap.DONE
    assert sim.memories.read_state()["TOPK"] == 32 << 8 | 2
    assert results(sim, 0, 0, 3) == results(sim, 32, 32, 3) == expected(logits[:10], 3)
    assert results(sim, 16, 16, 4) == expected(logits, 4)
    assert results(sim, 48, 48, 2) == expected(logits, 2)


def at(weights: int = 0, logits: int = 0, indices: int = 0, rmask: int = 0) -> str:
    return (
        f"S_ADDI_INT gp2, gp0, {weights}\nS_ADDI_INT gp3, gp0, {logits}\n"
        f"S_ADDI_INT gp4, gp0, {indices}\nV_TOPK gp2, gp3, gp4, {rmask}"
    )


TRAPS = {
    "never set": (at(rmask=15), Trap.TOPK_POLICY_UNSET, 0),
    "never set, and everything else wrong": (
        at(5000, 1, 5000, rmask=15),
        Trap.TOPK_POLICY_UNSET,
        0,
    ),
    "none of ten": (policy(10, 0) + at(rmask=15), Trap.TOPK_POLICY_RANGE, 10 << 8),
    "eleven of ten": (policy(10, 11) + at(rmask=15), Trap.TOPK_POLICY_RANGE, 10 << 8 | 11),
    "one of none": (policy(0, 1) + at(rmask=15), Trap.TOPK_POLICY_RANGE, 1),
    "more than TOPK_MAX": (policy(64, 17) + at(rmask=15), Trap.TOPK_POLICY_RANGE, 64 << 8 | 17),
    "more than 14 bits of experts": (
        policy(1 << 14 | 16, 1) + at(rmask=15),
        Trap.TOPK_POLICY_RANGE,
        (1 << 14 | 16) << 8 | 1,
    ),
    "range before addresses": (policy(10, 0) + at(5000, 1, 5000, rmask=15),
        Trap.TOPK_POLICY_RANGE, 10 << 8),
    "undefined rmask": (at(rmask=0) + "\n.word 0x37080037", Trap.ILLEGAL_ENCODING, 0x37080037),
    "logits not at a row": (at(logits=4), Trap.VECTOR_ADDRESS, 4),
    "logits past the end": (at(5000, 8192, 5000), Trap.VECTOR_ADDRESS, 8192),
    "last row past the end": (at(logits=8192 - 24), Trap.VECTOR_ADDRESS, 8192 - 24),
    "a partial last row past the end": (
        policy(9, 1) + at(logits=8192 - 8, rmask=15),
        Trap.VECTOR_ADDRESS,
        8192 - 8,
    ),
    "weights past the end": (at(weights=1021), Trap.FP_MEM_ADDRESS, 1021),
    "weights and indices past the end": (at(weights=1021, indices=2000), Trap.FP_MEM_ADDRESS, 1021),
    "indices past the end": (at(indices=1021), Trap.INT_MEM_ADDRESS, 1021),
    "addresses do not wrap": (
        "S_SUB_INT gp5, gp0, gp0\nS_ADDI_INT gp6, gp0, 1\nS_SUB_INT gp5, gp5, gp6\n"
        "V_TOPK gp0, gp0, gp5, 0",
        Trap.INT_MEM_ADDRESS,
        2**32 - 1,
    ),
    "a policy larger than the memory": (
        policy(16383, 1) + at(rmask=15),
        Trap.VECTOR_ADDRESS,
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAPS)
def test_traps_are_precise(program, name):
    source, cause, operand = TRAPS[name]
    sim = program(source + "\nS_ADDI_INT gp15, gp0, 1\n")
    sim.memories.write_fp(0, np.full(1024, MARK, np.uint16))
    sim.memories.write_int(0, np.full(1024, MARK))
    result = sim.run(max_cycles=200)
    trapping = len(sim.image.words) - 2
    assert (result.cause, result.pc, result.operand, result.precise) == (
        cause, trapping, operand, True,
    )  # fmt: skip
    assert sim.memories.read_gp()[15] == 0, "a younger instruction changed state"
    written = 4 if cause is Trap.ILLEGAL_ENCODING else 0  # by the V_TOPK before it
    assert np.count_nonzero(sim.memories.read_fp() != MARK) == written
    assert np.count_nonzero(sim.memories.read_int() != MARK) == written
    assert cause.name in result.report(sim.image)


def test_the_last_addresses_are_legal(program):
    sim = program(at(weights=1020, logits=8192 - 32, indices=1020) + "\n" + policy(9, 1))
    logits = logits_of(32)
    load_logits(sim, logits, row=1020)
    assert sim.run().cause is Trap.DONE
    assert results(sim, 1020, 1020, 4) == expected(logits, 4)
    sim = program(policy(9, 1) + at(weights=1023, logits=8192 - 16, indices=1023, rmask=15))
    load_logits(sim, logits[:9], row=1022)
    assert sim.run().cause is Trap.DONE
    assert results(sim, 1023, 1023, 1) == expected(logits[:9], 1)


HAZARDS = """
    S_ADDI_INT gp1, gp0, 8
    S_ADDI_INT gp2, gp0, 16
    S_ADDI_INT gp3, gp0, 24
    S_ADDI_INT gp4, gp0, 100
    S_LD_FP f1, gp0, 50
    S_ST_FP f1, gp4, 0             ; into the words of the weights and indices to come
    S_ST_INT gp3, gp4, 1
    V_ADD_VV gp1, gp1, gp2, 0      ; the second row of logits, right before
    V_TOPK gp4, gp0, gp4, 0
    V_SUB_VV gp3, gp3, gp3, 0      ; the fourth row of logits, right behind
    S_LD_FP f2, gp4, 3             ; the last result
    S_LD_INT gp5, gp4, 0           ; the first one
    S_ST_FP f1, gp4, 0             ; and over it
    S_ST_INT gp5, gp4, 2
    V_TOPK gp2, gp0, gp4, 0
    V_MUL_VF gp1, gp1, f2, 0
    S_MAP_V_FP gp0, gp0, 100       ; the first row of logits, from weights
    V_TOPK gp3, gp0, gp3, 0
    S_LD_INT gp6, gp3, 3
    V_TOPK gp4, gp6, gp6, 15       ; whose address must not matter: there is no policy
"""


@pytest.mark.parametrize("issue", ["overlap", "serial"])
def test_hazards(program, issue):
    sim = program(HAZARDS, issue=issue)
    logits = logits_of(32, seed=4)
    load_logits(sim, logits)
    fp_mem = np.arange(0x3F00, 0x3F00 + 1024).astype(np.uint16)
    sim.memories.write_fp(0, fp_mem)
    assert sim.run().cause is Trap.TOPK_POLICY_UNSET

    def bf16(bits: np.ndarray) -> np.ndarray:
        return bits.view(ml_dtypes.bfloat16).astype(np.float32)

    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)

    rows = logits.reshape(4, 8).copy()
    rows[1] = rounded(bf16(rows[1]) + bf16(rows[2]))
    first = expected(rows.reshape(-1), 4)
    rows[3] = 0
    f2 = np.array([first[1][3]], np.uint16)
    second = expected(rows.reshape(-1), 4)
    rows[1] = rounded(bf16(rows[1]) * bf16(f2))
    fp_mem[100:104] = [fp_mem[50], *first[1][1:]]
    rows[0] = fp_mem[100:108]
    third = expected(rows.reshape(-1), 4)
    assert results(sim, 100, 100, 4) == (second[0], [int(fp_mem[50]), *first[1][1:]])
    assert results(sim, 16, 24, 4) == (third[0], second[1])
    assert results(sim, 24, 24, 4) == third
    assert sim.memories.read_f()[2] == f2[0]
    assert sim.memories.read_gp()[5:7].tolist() == [first[0][0], third[0][3]]
    assert sim.memories.read_vector(0, 4).tolist() == rows.tolist()


FOLLOWERS = {
    "S_LD_FP f1, gp0, 3": lambda sim: sim.memories.read_f()[1],
    "S_MAP_V_FP gp1, gp0, 0": lambda sim: sim.memories.read_vector(8, 1)[0][3],
    "S_LD_INT gp2, gp0, 3": lambda sim: sim.memories.read_gp()[2],
}


@pytest.mark.parametrize("reader", FOLLOWERS)
def test_a_reader_right_behind_waits_for_the_results(program, reader):
    sim = program(f"S_ADDI_INT gp1, gp0, 64\nV_TOPK gp0, gp0, gp0, 0\n{reader}\n")
    logits = logits_of(32)
    load_logits(sim, logits)
    sim.run()
    indices, weights = expected(logits, 4)
    assert FOLLOWERS[reader](sim) == (indices if "INT" in reader else weights)[3]


@pytest.mark.parametrize("writer", ["S_ST_FP f0, gp0, 3", "S_ST_INT gp1, gp0, 3"])
def test_a_writer_right_behind_has_the_last_word(program, writer):
    sim = program(f"S_ADDI_INT gp1, gp0, 64\nV_TOPK gp0, gp0, gp0, 0\n{writer}\n")
    logits = logits_of(32)
    load_logits(sim, logits)
    sim.run()
    indices, weights = expected(logits, 4)
    if "INT" in writer:
        indices[3] = 64
    else:
        weights[3] = 0
    assert results(sim, 0, 0, 4) == (indices, weights)


@pytest.mark.parametrize("issue", ["overlap", "serial"])
def test_what_it_may_run_beside_and_what_it_costs(program, issue):
    sim = program(
        """
        ; @stage=router_topk
        S_ADDI_INT gp1, gp0, 64
        V_TOPK gp0, gp0, gp0, 0
        ; @stage=gather
        V_ADD_VF gp1, gp1, f0, 0
        V_TOPK gp0, gp0, gp0, 0
        """,
        issue=issue,
    )
    result = sim.run()
    latency = sim.engine.top.topk.latency(32, 4)
    topk_cycles, done = result.counters["busy_topk"], result.counters["completed_topk"]
    assert [topk_cycles[s] for s in (Stage.ROUTER_TOPK, Stage.GATHER)] == [latency, latency]
    assert [done[s] for s in (Stage.ROUTER_TOPK, Stage.GATHER)] == [1, 1]
    assert (result.overlap_cycles > 0) is (issue == "overlap")
    if issue == "overlap":
        # The second one is issued in the cycle after the first one's completion.
        assert result.cycles == 1 + 2 * (latency + 1)


def test_the_watchdog_names_the_unit(program):
    sim = program("V_TOPK gp0, gp0, gp0, 0\nS_LD_INT gp1, gp0, 0\n")
    result = sim.run(max_cycles=20)
    assert result.cause is Trap.WATCHDOG
    assert "slot 0, TOPK: pc 0 " in result.report(sim.image)
