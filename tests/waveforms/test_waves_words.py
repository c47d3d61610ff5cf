"""FP_MEM and INT_MEM follow the events of what is stored there, a cycle later."""

from isa.config import PRESETS
from sim.observers import Stored, Written
from tests.conftest import engine_for
from waveforms.contents import Writes, memories

TINY = PRESETS["tiny"]


class Ones:
    """An engine whose memories hold all ones in the low byte of every row."""

    def read_memory(self, memory, start, count):
        return [0xFF] * count


def loaded(name, rows):
    memory = next(m for m in memories(engine_for(TINY).top, rows) if m.name == name)
    memory.load(Ones())
    return memory, Writes([memory], TINY.MLEN)


def test_a_word_of_fp_mem_is_a_lane_of_its_row():
    memory, writes = loaded("fp_mem", range(2 * TINY.MLEN))
    writes.stored(Stored(5, "FP_MEM", TINY.MLEN + 2, 0xABCD))
    assert memory.update(5) == []
    assert memory.update(6) == [1]
    assert memory.rows == {0: 0xFF, 1: 0xFF | 0xABCD << 32}
    assert memory.update(7) == []


def test_a_word_of_int_mem_is_a_row():
    memory, writes = loaded("int_mem", range(4, 8))
    for number in (4, 7, 8):  # the last one is not shown
        writes.stored(Stored(5, "INT_MEM", number, 0x10000 + number))
    assert memory.update(6) == [4, 7]
    assert memory.rows == {4: 0x10004, 5: 0xFF, 6: 0xFF, 7: 0x10007}


def test_other_files_and_memories_are_left_alone():
    memory, writes = loaded("fp_mem", range(TINY.MLEN))
    writes.stored(Stored(5, "INT_MEM", 0, 1))
    writes.stored(Stored(5, "gp", 0, 1))
    writes.written(Written(5, "vector", "vram", 0, 1, 0, 0, 0))
    assert memory.update(6) == []


def test_lanes_that_are_off_keep_what_they_hold():
    memory, writes = loaded("vram", range(2))
    writes.written(Written(5, "vector", "vram", 1, 0b10, 0x1111_2222_3333, 0, 0))
    writes.written(Written(6, "hbm", "vram", 1, 0b01, 0x4444, 0, 0))
    assert memory.update(6) == [1]
    assert memory.rows[1] == 0x2222_00FF
    assert memory.update(7) == [1]
    assert memory.rows[1] == 0x2222_4444
