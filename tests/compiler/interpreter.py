"""A small interpreter of the instructions that the compiler emits, bit-exact by numerics.md.

Not the architectural machine: no timing, no traps beyond an exception, only what programs here use.
Memories start as NaN, so that a value nobody wrote shows.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np

from isa import Instruction, PlenaConfig, ProgramImage
from sim.numerics import bf16, mx
from sim.numerics.matrix import mm_tile
from sim.numerics.reduce import red_sum

NAN = np.uint16(0x7FC0)
DECODE = cache(Instruction.decode)


class Interpreter:
    """Runs an image; `vram` is [VRAM_ROWS, MLEN] BF16, `hbm` a bytearray, `fp_mem` BF16."""

    def __init__(self, config: PlenaConfig, hbm_bytes: int) -> None:
        mlen = config.MLEN
        self.config, self.m = config, mlen
        self.hbm = bytearray(hbm_bytes)
        self.vram = np.full((config.VRAM_ROWS, mlen), NAN).view(bf16.BF16)
        self.mram = np.full((config.MRAM_TILES, mlen, mlen), NAN).view(bf16.BF16)
        self.fp_mem = np.full(config.FP_MEM_WORDS, NAN).view(bf16.BF16)
        self.gp, self.a = [0] * 16, [0] * 8
        self.f = np.zeros(8, bf16.BF16)
        self.scale, self.stride = 0, 1
        self.m_acc = np.zeros((config.BLEN, config.BLEN), np.float32)
        self.issued: Counter[tuple[str, str]] = Counter()

    def run(self, image: ProgramImage) -> None:
        """Execute to the end; AssertionError on what the machine would trap on."""
        program = [DECODE(word) for word in image.words.tolist()]
        stages = [image.vocabulary[s] for s in image.stages.tolist()]
        pc, loops = 0, []
        while pc < len(program):
            values, name = program[pc].values, program[pc].opcode.mnemonic
            self.issued[stages[pc], name] += 1
            if name == "C_LOOP_START":
                assert values[1] >= 1, f"pc {pc}: loop of count 0"
                self._set(values[0], values[1])
                loops.append((pc, values[0]))
                assert len(loops) <= self.config.LOOP_DEPTH, f"pc {pc}: loops too deep"
            elif name == "C_LOOP_END":
                start, counter = loops[-1]
                assert counter == values[0], f"pc {pc}: ends another loop"
                left = self.gp[counter]
                self._set(counter, left - 1 if left > 1 else 0)
                if left > 1:
                    pc = start
                else:
                    loops.pop()
            else:
                OPERATIONS[name](self, *values)
            pc += 1
        assert not loops

    def _set(self, register: int, value: int) -> None:
        if register:
            self.gp[register] = value % (1 << 32)

    def _row(self, address: int, rows: int = 1) -> slice:
        assert address % self.m == 0, f"vector address {address} is not a row"
        first = address // self.m
        assert first + rows <= self.config.VRAM_ROWS, f"vector address {address} out of range"
        return slice(first, first + rows)

    def _vector(self, register: int) -> np.ndarray:
        return self.vram[self._row(self.gp[register])]

    def _fp(self, register: int, value: np.ndarray) -> None:
        if register:
            self.f[register] = value

    def set_f(self, operation: Callable[..., np.ndarray], rd: int, *sources: int) -> None:
        self._fp(rd, operation(*(self.f[s : s + 1] for s in sources))[0])

    def vv(self, op: Callable[..., np.ndarray], rd: int, rs1: int, rs2: int, rmask: int) -> None:
        assert rmask == 0
        self.vram[self._row(self.gp[rd])] = op(self._vector(rs1), self._vector(rs2))

    def vf(self, op: Callable[..., np.ndarray], rd: int, rs1: int, rs2: int, rmask: int) -> None:
        assert rmask == 0
        self.vram[self._row(self.gp[rd])] = op(self._vector(rs1), self.f[rs2 : rs2 + 1])

    def v(self, operation: Callable[..., np.ndarray], rd: int, rs1: int, rmask: int) -> None:
        assert rmask == 0
        self.vram[self._row(self.gp[rd])] = operation(self._vector(rs1))

    def red_sum(self, rd: int, rs1: int, rmask: int) -> None:
        assert rmask == 0
        self._fp(rd, red_sum(self.f[rd : rd + 1], self._vector(rs1))[0])

    def m_mm(self, _zero: int, rs1: int, rs2: int) -> None:
        tile, offset = divmod(self.gp[rs1], self.m * self.m)
        column, rest = divmod(offset, self.m)
        assert (rest, column % self.config.BLEN) == (0, 0), f"matrix address {self.gp[rs1]}"
        vectors = self.vram[self._row(self.gp[rs2], self.config.BLEN)]
        weights = self.mram[tile][:, column : column + self.config.BLEN]
        self.m_acc = mm_tile(self.m_acc, vectors, weights)

    def m_mm_wo(self, rd: int, rs1: int, imm: int) -> None:
        row, lane = divmod(self.gp[rd] + imm, self.m)
        assert lane % self.config.BLEN == 0
        step = self.gp[rs1] if rs1 else 1
        for i in range(self.config.BLEN):
            target = self.vram[self._row((row + i * step) * self.m)]
            target[0, lane : lane + self.config.BLEN] = bf16.round_to_bf16(self.m_acc[i])
        self.m_acc = np.zeros_like(self.m_acc)

    def _hbm_rows(self, rs1: int, rs2: int, rstride: int, rows: int) -> list[tuple[int, int]]:
        step = self.stride if rstride else self.m
        offsets = [self.gp[rs1] + r * step for r in range(rows)]
        assert all(o % self.config.MX_BLOCK == 0 for o in offsets)
        base = self.a[rs2]
        return [(base + o, base + self.scale + o // self.config.MX_BLOCK) for o in offsets]

    def _read(self, rs1: int, rs2: int, rstride: int, rows: int) -> np.ndarray:
        lanes = []
        for element, scale in self._hbm_rows(rs1, rs2, rstride, rows):
            blocks = self.m // self.config.MX_BLOCK
            assert max(element + self.m, scale + blocks) <= len(self.hbm), "HBM out of range"
            codes = np.frombuffer(self.hbm, np.uint8, self.m, element)
            scales = np.frombuffer(self.hbm, np.uint8, blocks, scale)
            lanes.append(mx.decode(codes, scales, self.config.MX_BLOCK))
        return np.stack(lanes)

    def prefetch_m(self, rd: int, rs1: int, rs2: int, rstride: int, precision: int) -> None:
        tile, rest = divmod(self.gp[rd], self.m * self.m)
        assert (rest, precision) == (0, 0)
        self.mram[tile] = self._read(rs1, rs2, rstride, self.config.m_prefetch)

    def prefetch_v(self, rd: int, rs1: int, rs2: int, rstride: int, precision: int) -> None:
        rows = self.config.v_prefetch
        assert precision == 0
        self.vram[self._row(self.gp[rd], rows)] = self._read(rs1, rs2, rstride, rows)

    def store_v(self, rd: int, rs1: int, rs2: int, rstride: int, precision: int) -> None:
        rows = self.config.v_writeback
        assert precision == 0
        codes, scales = mx.encode(self.vram[self._row(self.gp[rd], rows)], self.config.MX_BLOCK)
        for i, (element, scale) in enumerate(self._hbm_rows(rs1, rs2, rstride, rows)):
            self.hbm[element : element + self.m] = codes[i].tobytes()
            self.hbm[scale : scale + scales.shape[1]] = scales[i].tobytes()

    def map_v(self, rd: int, rs1: int, imm: int) -> None:
        start = self.gp[rs1] + imm
        self.vram[self._row(self.gp[rd])] = self.fp_mem[start : start + self.m]

    def load_f(self, rd: int, rs1: int, imm: int) -> None:
        self._fp(rd, self.fp_mem[self.gp[rs1] + imm])

    def store_f(self, rd: int, rs1: int, imm: int) -> None:
        self.fp_mem[self.gp[rs1] + imm] = self.f[rd]

    def v_sub_vf(self, rd: int, rs1: int, rs2: int, rmask: int, rorder: int) -> None:
        self.vf((lambda v, f: bf16.sub(f, v)) if rorder else bf16.sub, rd, rs1, rs2, rmask)

    def set_address(self, rd: int, rs1: int, rs2: int) -> None:
        self.a[rd] = self.gp[rs1] << 32 | self.gp[rs2]

    def set_scale(self, rd: int) -> None:
        self.scale = self.gp[rd]

    def set_stride(self, rd: int) -> None:
        self.stride = self.gp[rd]


OPERATIONS: dict[str, Callable[..., None]] = {
    "M_MM": Interpreter.m_mm,
    "M_MM_WO": Interpreter.m_mm_wo,
    "V_ADD_VV": lambda s, *o: s.vv(bf16.add, *o),
    "V_ADD_VF": lambda s, *o: s.vf(bf16.add, *o),
    "V_MUL_VV": lambda s, *o: s.vv(bf16.mul, *o),
    "V_MUL_VF": lambda s, *o: s.vf(bf16.mul, *o),
    "V_SUB_VF": Interpreter.v_sub_vf,
    "V_EXP_V": lambda s, *o: s.v(bf16.exp, *o),
    "V_RECI_V": lambda s, *o: s.v(bf16.reciprocal, *o),
    "V_RED_SUM": Interpreter.red_sum,
    "S_ADD_FP": lambda s, *o: s.set_f(bf16.add, *o),
    "S_SUB_FP": lambda s, *o: s.set_f(bf16.sub, *o),
    "S_MUL_FP": lambda s, *o: s.set_f(bf16.mul, *o),
    "S_EXP_FP": lambda s, *o: s.set_f(bf16.exp, *o),
    "S_RECI_FP": lambda s, *o: s.set_f(bf16.reciprocal, *o),
    "S_LD_FP": Interpreter.load_f,
    "S_ST_FP": Interpreter.store_f,
    "S_MAP_V_FP": Interpreter.map_v,
    "S_ADD_INT": lambda s, d, x, y: s._set(d, s.gp[x] + s.gp[y]),
    "S_ADDI_INT": lambda s, d, x, imm: s._set(d, s.gp[x] + imm),
    "S_SUB_INT": lambda s, d, x, y: s._set(d, s.gp[x] - s.gp[y]),
    "S_LUI_INT": lambda s, d, imm: s._set(d, imm << 12),
    "H_PREFETCH_M": Interpreter.prefetch_m,
    "H_PREFETCH_V": Interpreter.prefetch_v,
    "H_STORE_V": Interpreter.store_v,
    "C_SET_ADDR_REG": Interpreter.set_address,
    "C_SET_SCALE_REG": Interpreter.set_scale,
    "C_SET_STRIDE_REG": Interpreter.set_stride,
}
