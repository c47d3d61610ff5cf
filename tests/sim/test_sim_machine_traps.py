"""The architectural machine: every trap's record, their priority, and what the host may do."""

import ast
from pathlib import Path

import numpy as np
import pytest

import sim.machine
from isa.image import ImageError
from isa.opcodes import OPCODES
from isa.traps import Trap
from sim.hbm import HbmDevice
from sim.machine import Halt, Machine
from sim.machine.registry import BUILDERS
from tests.sim.machine_bench import SMALL, TINY, make

MINUS_8 = "S_ADDI_INT gp2, gp0, 8\nS_SUB_INT gp1, gp0, gp2\n"

# tiny: MLEN 8, BLEN 4, HLEN 8, 1024 rows, 16 tiles, 1024 words.
TRAPS = {
    "count 0": ("C_LOOP_START gp1, 0", Trap.LOOP_COUNT_ZERO, 0),
    "nine deep": ("C_LOOP_START gp1, 2\n" * 9, Trap.LOOP_OVERFLOW, 8),
    "end without a start": ("C_LOOP_END gp1", Trap.LOOP_MISMATCH, 1),
    "end of another": ("C_LOOP_START gp2, 1\nC_LOOP_END gp1", Trap.LOOP_MISMATCH, 1),
    "row not aligned": ("S_ADDI_INT gp1, gp0, 4\nV_EXP_V gp0, gp1", Trap.VECTOR_ADDRESS, 4),
    "second row": ("S_ADDI_INT gp1, gp0, 9\nV_ADD_VV gp0, gp0, gp1", Trap.VECTOR_ADDRESS, 9),
    "target past the end": (
        "S_ADDI_INT gp1, gp0, 8192\nV_EXP_V gp1, gp0",
        Trap.VECTOR_ADDRESS,
        8192,
    ),
    "shift source": ("S_ADDI_INT gp1, gp0, 1\nV_SHFT_V gp0, gp1, gp0", Trap.VECTOR_ADDRESS, 1),
    "reduction": ("S_ADDI_INT gp1, gp0, 8193\nV_RED_SUM f1, gp1", Trap.VECTOR_ADDRESS, 8193),
    "map target": ("S_ADDI_INT gp1, gp0, 2\nS_MAP_V_FP gp1, gp0, 0", Trap.VECTOR_ADDRESS, 2),
    "M_MM column group": ("S_ADDI_INT gp1, gp0, 8\nM_MM 0, gp1, gp0", Trap.MATRIX_ADDRESS, 8),
    "M_TMM column group": ("S_ADDI_INT gp1, gp0, 1\nM_TMM 0, gp0, gp1", Trap.MATRIX_ADDRESS, 1),
    "tile past the end": (
        "S_ADDI_INT gp1, gp0, 1024\nM_MM 0, gp1, gp0",
        Trap.MATRIX_ADDRESS,
        1024,
    ),
    "M_MM rows past the end": (
        "S_ADDI_INT gp1, gp0, 8168\nM_MM 0, gp0, gp1",
        Trap.VECTOR_ADDRESS,
        8168,
    ),
    "M_MV row": ("S_ADDI_INT gp1, gp0, 8192\nM_MV 0, gp0, gp1", Trap.VECTOR_ADDRESS, 8192),
    "M_BMM slice": ("S_ADDI_INT gp1, gp0, 8\nM_BMM gp0, gp1, gp0", Trap.MATRIX_ADDRESS, 8),
    "M_BTMM slice": (
        "S_ADDI_INT gp1, gp0, 4\nM_BTMM gp1, gp1, gp0",
        Trap.MATRIX_ADDRESS,
        8,
    ),
    "M_BMM address sum does not wrap": (
        MINUS_8 + "M_BMM gp2, gp1, gp0",
        Trap.MATRIX_ADDRESS,
        1 << 32,
    ),
    "M_BMM rows": ("S_ADDI_INT gp1, gp0, 8136\nM_BMM gp0, gp0, gp1", Trap.VECTOR_ADDRESS, 8136),
    "M_BMM_WO rows": ("M_BMM_WO gp0, 8136", Trap.VECTOR_ADDRESS, 8136),
    "M_BMV_WO row": ("M_BMV_WO gp0, 4", Trap.VECTOR_ADDRESS, 4),
    "M_MV_WO lane": ("M_MV_WO gp0, 2", Trap.VECTOR_ADDRESS, 2),
    "write-out lane": ("M_MM_WO gp0, gp0, 2", Trap.VECTOR_ADDRESS, 2),
    "write-out stride": ("S_ADDI_INT gp1, gp0, 341\nM_MM_WO gp0, gp1, 8", Trap.VECTOR_ADDRESS, 8),
    "write-out sum does not wrap": (MINUS_8 + "M_MM_WO gp1, gp0, 8", Trap.VECTOR_ADDRESS, 1 << 32),
    "prefetch tile": ("S_ADDI_INT gp1, gp0, 8\nH_PREFETCH_M gp1, gp0, a0", Trap.MATRIX_ADDRESS, 8),
    "prefetch rows": (
        "S_ADDI_INT gp1, gp0, 8168\nH_PREFETCH_V gp1, gp0, a0",
        Trap.VECTOR_ADDRESS,
        8168,
    ),
    "store rows": ("S_ADDI_INT gp1, gp0, 3\nH_STORE_V gp1, gp0, a0", Trap.VECTOR_ADDRESS, 3),
    "S_LD_FP": ("S_LD_FP f1, gp0, 1024", Trap.FP_MEM_ADDRESS, 1024),
    "S_ST_FP": (MINUS_8 + "S_ST_FP f1, gp1, 8", Trap.FP_MEM_ADDRESS, 1 << 32),
    "FP_MEM row": ("S_MAP_V_FP gp0, gp0, 1017", Trap.FP_MEM_ADDRESS, 1017),
    "S_LD_INT": (MINUS_8 + "S_LD_INT gp1, gp1, 9", Trap.INT_MEM_ADDRESS, (1 << 32) + 1),
    "S_ST_INT": ("S_ST_INT gp0, gp0, 1024", Trap.INT_MEM_ADDRESS, 1024),
    "HBM range": (
        "S_ADDI_INT gp1, gp0, 4\nC_SET_ADDR_REG a1, gp1, gp0\nH_PREFETCH_V gp0, gp0, a1",
        Trap.HBM_ADDRESS,
        16 << 30,
    ),
    "HBM sum does not wrap": (
        MINUS_8 + "C_SET_ADDR_REG a1, gp1, gp1\nH_PREFETCH_V gp0, gp2, a1",
        Trap.HBM_ADDRESS,
        (0xFFFFFFF8 << 32) + (1 << 32),
    ),
    "HBM scales": (
        MINUS_8 + "C_SET_SCALE_REG gp1\nS_ADDI_INT gp3, gp0, 3\nC_SET_ADDR_REG a1, gp3, gp1\n"
        "H_PREFETCH_V gp0, gp0, a1",
        Trap.HBM_ADDRESS,
        (4 << 32) - 8,
    ),
    "HBM reach": (
        "S_LUI_INT gp1, 524288\nC_SET_STRIDE_REG gp1\nS_ADDI_INT gp3, gp0, 2\n"
        "S_LUI_INT gp4, 524288\nC_SET_ADDR_REG a1, gp3, gp4\nH_STORE_V gp0, gp0, a1, 1",
        Trap.HBM_ADDRESS,
        (2 << 32) + (1 << 31),
    ),
    "HBM offset": ("S_ADDI_INT gp1, gp0, 4\nH_PREFETCH_V gp0, gp1, a0", Trap.HBM_ADDRESS, 4),
    "HBM stride": (
        "S_ADDI_INT gp1, gp0, 12\nC_SET_STRIDE_REG gp1\nH_STORE_V gp0, gp0, a0, 1, 0",
        Trap.HBM_ADDRESS,
        0,
    ),
    "top-k logits": (
        "S_ADDI_INT gp1, gp0, 8168\nV_TOPK gp0, gp1, gp0, 0",
        Trap.VECTOR_ADDRESS,
        8168,
    ),
    "top-k weights": (
        "S_ADDI_INT gp1, gp0, 1021\nV_TOPK gp1, gp0, gp0, 0",
        Trap.FP_MEM_ADDRESS,
        1021,
    ),
    "top-k indices": (
        "S_ADDI_INT gp1, gp0, 1021\nV_TOPK gp0, gp0, gp1, 0",
        Trap.INT_MEM_ADDRESS,
        1021,
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_traps_are_precise(name: str):
    source, cause, operand = TRAPS[name]
    machine = make(source + "\nS_ADDI_INT gp15, gp0, 1\n")
    pc = len(machine.image.words) - 2
    assert machine.run() == Halt(cause, pc, int(machine.image.words[pc]), operand)
    assert machine.memories.read_gp()[15] == 0
    assert not machine.memories.read_vector().any()


@pytest.mark.parametrize(
    "source",
    [
        "S_ADDI_INT gp1, gp0, 8160\nM_MM 0, gp0, gp1",  # the last BLEN rows
        "M_MM_WO gp0, gp0, 8164",  # the last lanes of the row BLEN - 1 from the end
        "S_ADDI_INT gp1, gp0, 341\nM_MM_WO gp0, gp1, 4",
        "S_MAP_V_FP gp0, gp0, 1016",
        "S_ST_INT gp0, gp0, 1023",
        "S_ADDI_INT gp1, gp0, 992\nM_MM 0, gp1, gp0",
        "S_ADDI_INT gp1, gp0, 960\nM_BTMM gp0, gp1, gp0",
        "M_BMM_WO gp0, 8128",
        "C_LOOP_START gp1, 1\n" * 8 + "C_LOOP_END gp1\n" * 8,
        "S_ADDI_INT gp1, gp0, 1020\nV_TOPK gp1, gp0, gp1, 0",
    ],
)
def test_the_last_legal_address_is_legal(source: str):
    assert make(source).run().cause is Trap.DONE


@pytest.mark.parametrize(
    ("source", "cause", "operand"),
    [
        # Matrix before vector, vector before FP_MEM, vector before HBM.
        ("S_ADDI_INT gp1, gp0, 3\nM_MM 0, gp1, gp1", Trap.MATRIX_ADDRESS, 3),
        ("S_ADDI_INT gp1, gp0, 3\nS_MAP_V_FP gp1, gp0, 9999", Trap.VECTOR_ADDRESS, 3),
        ("S_ADDI_INT gp1, gp0, 3\nH_PREFETCH_V gp1, gp1, a0", Trap.VECTOR_ADDRESS, 3),
        # Target, then rs2, then rs1.
        (
            "S_ADDI_INT gp1, gp0, 1\nS_ADDI_INT gp2, gp0, 2\nS_ADDI_INT gp3, gp0, 3\n"
            "V_ADD_VV gp1, gp2, gp3",
            Trap.VECTOR_ADDRESS,
            1,
        ),
        (
            "S_ADDI_INT gp2, gp0, 2\nS_ADDI_INT gp3, gp0, 3\nV_ADD_VV gp0, gp2, gp3",
            Trap.VECTOR_ADDRESS,
            3,
        ),
        # The policy before every address; FP_MEM before INT_MEM.
        ("S_ADDI_INT gp1, gp0, 9999\nV_TOPK gp1, gp1, gp1, 15", Trap.TOPK_POLICY_UNSET, 0),
        ("S_ADDI_INT gp1, gp0, 9999\nV_TOPK gp1, gp0, gp1, 0", Trap.FP_MEM_ADDRESS, 9999),
        # A zero count before a full stack.
        ("C_LOOP_START gp1, 1\n" * 8 + "C_LOOP_START gp1, 0", Trap.LOOP_COUNT_ZERO, 0),
    ],
)
def test_priorities(source: str, cause: Trap, operand: int):
    halt = make(source).run()
    assert (halt.cause, halt.operand) == (cause, operand)


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        (0x0D | 1 << 26, Trap.ILLEGAL_ENCODING),  # V_ADD_VV
        (0x0D | 2 << 18, Trap.ILLEGAL_ENCODING),  # rmask 2
        (0x37 | 2 << 18, Trap.ILLEGAL_ENCODING),  # V_TOPK rmask 2
        (0x01 | 1 << 6, Trap.ILLEGAL_ENCODING),  # M_MM with rd
        (0x34 | 1 << 31, Trap.ILLEGAL_ENCODING),  # C_BREAK
        (0x17 | 8 << 6, Trap.REGISTER_INDEX),  # f8
        (0x2B | 15 << 6, Trap.REGISTER_INDEX),  # a15
        (0x0E | 9 << 14, Trap.REGISTER_INDEX),  # f9 as the scalar
        (0x17 | 8 << 6 | 1 << 31, Trap.ILLEGAL_ENCODING),  # both: the encoding first
        (0x31 | 1 << 31, Trap.ILLEGAL_OPCODE),
    ],
)
def test_words_that_are_no_instructions(word: int, cause: Trap):
    assert make(f".word 0x{word:08X}\n").run() == Halt(cause, 0, word, word)


def test_every_opcode_has_a_meaning():
    assert BUILDERS.keys() == OPCODES.keys()


def test_the_image_must_fit_and_the_host_stay_inside():
    image = make("C_BREAK").image
    with pytest.raises(ImageError, match="made for 8"):
        Machine(SMALL, image, HbmDevice(SMALL))
    memories = Machine(TINY, image, HbmDevice(TINY)).memories
    with pytest.raises(IndexError, match="1023 to 1024"):
        memories.write_vector(1023, np.zeros((2, 8), np.uint16))
    with pytest.raises(IndexError):
        memories.read_matrix(16)
    with pytest.raises(TypeError, match="float32"):
        memories.write_fp(0, np.zeros(1, np.float32))  # type: ignore[arg-type]


def test_the_machine_shares_nothing_with_the_hardware():
    folder = Path(sim.machine.__file__).parent
    files = sorted(folder.glob("*.py"))
    assert len(files) >= 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in ("rtl", "testbench", "compiler")
