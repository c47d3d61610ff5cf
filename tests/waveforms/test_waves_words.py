"""FP_MEM and INT_MEM are read again when an instruction that writes them has begun or ended."""

from types import SimpleNamespace

from isa.config import PRESETS
from isa.opcodes import BY_MNEMONIC
from waveforms.contents import memories

STORE, LOAD = BY_MNEMONIC["S_ST_FP"].code, BY_MNEMONIC["S_LD_FP"].code


class Words:
    """An engine whose memories hold one value everywhere."""

    def __init__(self):
        self.value, self.reads = 1, 0

    def read_memory(self, memory, start, count):
        self.reads += 1
        return [self.value] * count


def fp_mem(engine):
    top = SimpleNamespace(
        config=PRESETS["tiny"], scalar=SimpleNamespace(fp_mem="fp", int_mem="int")
    )
    memory = next(m for m in memories(top, range(8)) if m.name == "fp_mem")
    memory.load(engine)
    return memory


def test_a_store_shows_in_the_cycle_after_it_began():
    engine = Words()
    memory = fp_mem(engine)
    memory.touched(STORE, 5)
    assert memory.update(engine, 5) == []
    engine.value = 2
    assert memory.update(engine, 6) == [0]
    assert memory.rows == {0: 2}


def test_a_long_write_shows_in_the_cycle_after_it_ended():
    engine = Words()
    memory = fp_mem(engine)
    memory.touched(STORE, 5)
    for cycle in range(5, 10):
        if cycle == 9:
            memory.touched(STORE, 9)
        assert memory.update(engine, cycle) == []
    engine.value = 2
    assert memory.update(engine, 10) == [0]


def test_nothing_is_read_for_instructions_that_do_not_write_it():
    engine = Words()
    memory = fp_mem(engine)
    for cycle in range(20):
        memory.touched(LOAD, cycle)
        assert memory.update(engine, cycle) == []
    assert engine.reads == 1
