"""The accumulators and the top-k unit in the file: what the machine says it holds."""

import numpy as np
import pytest

from tests.conftest import needs_compiler
from tests.waveforms.vcd_reader import read_vcd
from waveforms.units import HM_ROWS
from waveforms.vcd import VcdWriter

SOURCE = """
; @stage=expert_projection
S_ADDI_INT gp6, gp0, 64
S_ADDI_INT gp4, gp0, 128
M_MV 0, gp6, gp4
M_MV 0, gp6, gp4
M_BMM 0, gp6, gp4
M_BMV 0, gp6, gp4
M_MM 0, gp6, gp4
; @stage=router_topk
S_ADDI_INT gp1, gp0, 40
S_ADDI_INT gp2, gp0, 50
S_ADDI_INT gp3, gp0, 128
V_TOPK gp1, gp3, gp2, 0
"""


@pytest.mark.parametrize("engine", ["pysim", pytest.param("compiled", marks=needs_compiler)])
def test_accumulators_show_what_they_hold(program, tmp_path, engine):
    simulation = program(SOURCE, engine=engine)
    config, memories = simulation.config, simulation.memories
    lanes = config.MLEN
    rows, columns = np.indices((lanes, lanes)).astype(np.uint16)
    memories.write_matrix(1, 0x3F80 + 16 * ((3 * rows + columns) % 7))
    memories.write_vector(16, 0x4000 + 8 * ((rows + 5 * columns) % 11))
    writer = VcdWriter(tmp_path / "waves.vcd", simulation)
    assert simulation.run(observers=[writer]).ok
    dump, machine = read_vcd(tmp_path / "waves.vcd"), simulation.engine
    last = {name: changes[-1][1] for name, changes in dump.changes.items()}
    want = machine.top.matrix.accumulators(machine.get, machine.read_memory)
    blen = config.BLEN
    assert [last[f"matrix.v_acc_{j}"] for j in range(blen)] == want["v_acc"]
    assert any(want["v_acc"])
    assert [[last[f"matrix.m_acc_{i}_{j}"] for j in range(blen)] for i in range(blen)] == want[
        "m_acc"
    ]

    def row(name: str) -> list[int]:
        words: list[int] = []
        for block in range(lanes):
            value = last.get(f"heads.{name}_block_{block}")
            if value is not None:
                words += [value >> 32 * k & 0xFFFFFFFF for k in range(max(config.HLEN, blen))]
        return words

    for head in range(config.heads):
        assert row(f"hv_acc_{head}") == want["hv_acc"][head]
        assert any(want["hv_acc"][head])
        for i in range(HM_ROWS):
            assert row(f"hm_acc_{head}_{i}") == want["hm_acc"][head][i]
    assert (last["heads.hm_acc_filled"], last["heads.hv_acc_filled"]) == (1, 1)


def test_the_top_k_unit_shows_what_it_stores(program, tmp_path):
    simulation = program(SOURCE)
    logits = 0x3F80 + 4 * np.arange(32, dtype=np.uint16)
    simulation.memories.write_vector(16, logits.reshape(-1, simulation.config.MLEN))
    simulation.run(observers=[VcdWriter(tmp_path / "waves.vcd", simulation, units=["topk"])])
    dump = read_vcd(tmp_path / "waves.vcd")
    period = simulation.config.CLOCK_PERIOD_PS

    def stored(port: str) -> dict[int, int]:
        valid, pairs, time = f"topk.{port}_valid", {}, dump.times[0]
        while time < dump.times[-1]:
            if dump.at(valid, time):
                pairs[dump.at(f"topk.{port}_address", time)] = dump.at(f"topk.{port}_value", time)
            time += period
        return pairs

    indices, weights = stored("int_write"), stored("fp_write")
    assert len(indices) == len(weights) == 4
    ints, fps = simulation.memories.read_int(), simulation.memories.read_fp()
    assert indices == {a: int(ints[a]) for a in indices}
    assert weights == {a: int(fps[a]) for a in weights}
    assert sorted(indices.values()) == [28, 29, 30, 31]
    assert max(w for _, w in dump.changes["topk.busy"]) == 1
