"""A directed program as long as the instruction memory: its instructions of every unit have every
bit of the pc both 0 and 1."""

from collections.abc import Iterator

from isa.config import PlenaConfig
from isa.stages import Stage
from testbench.fuzz.case import FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.sweeps import contents

__all__ = ["far"]


def far(config: PlenaConfig) -> Iterator[tuple[str, FuzzCase]]:
    """One program, with its name."""
    source = Source(config)
    source.gp(1, 2048)
    source.op("C_SET_SCALE_REG", 1)
    source.gp(1, 8 << 8 | 2)
    source.op("C_SET_TOPK_REG", 1)
    source.gp(2, config.MLEN)
    size = config.IMEM_WORDS
    words = 4
    for number, place in enumerate((size // 3, size // 3 * 2, size - 100)):
        for _ in range(place - words):
            source.op("S_ADDI_INT", 15, 15, 1)
        words = place + _every_unit(source, number)
    yield "far", source.case(contents(config, 0))


def _every_unit(source: Source, number: int) -> int:
    """Instructions of every unit, in two stages; how many."""
    before = sum(not line.text.startswith(";") for line in source.lines)
    c = source.config
    for round_ in range(2):
        source.mark(list(Stage)[3 * number + round_ + 1].name.lower())
        source.gp(3, (8 + 40 * number) * c.MLEN)
        source.gp(4, (1 + number) * c.tile_elements)
        source.op("H_PREFETCH_M", 4, 0, 0, 0, 0)
        source.op("H_PREFETCH_V", 3, 0, 0, 0, 0)
        source.op("H_STORE_V", 3, 0, 0, 0, 0)
        source.op("M_MM", 0, 4, 2)
        source.op("M_MM_WO", 3, 0, 0)
        source.op("M_MV", 0, 4, 2)
        source.op("M_MV_WO", 3, 0)
        source.op("M_BMV", 0, 4, 2)
        source.op("M_BMV_WO", 3, 0)
        source.op("M_BMM", 0, 4, 2)
        source.op("M_BMM_WO", 3, 0)
        for mnemonic in ("V_ADD_VV", "V_MUL_VV"):
            source.op(mnemonic, 3, 2, 3, 0)
        for mnemonic in ("V_EXP_V", "V_RECI_V"):
            source.op(mnemonic, 3, 3, 0)
        source.op("V_RED_SUM", 1, 3, 0)
        source.op("V_RED_MAX", 2, 3, 0)
        source.op("V_TOPK", 0, 3, 0, 15)
        for mnemonic in ("S_EXP_FP", "S_RECI_FP", "S_SQRT_FP"):
            source.op(mnemonic, 3, 1)
        for mnemonic in ("S_ADD_FP", "S_MUL_FP", "S_MAX_FP"):
            source.op(mnemonic, 4, 3, 2)
        source.op("S_ST_FP", 4, 0, 70)
        source.op("S_LD_FP", 5, 0, 70)
        source.op("S_MAP_V_FP", 3, 0, 64)
        source.op("S_ST_INT", 4, 0, 70)
        source.op("S_LD_INT", 5, 0, 70)
    return sum(not line.text.startswith(";") for line in source.lines) - before
