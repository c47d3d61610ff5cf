"""The architectural state: memories, register files and accumulators (isa.md, "State")."""

import numpy as np
import numpy.typing as npt

from isa.config import PlenaConfig
from isa.operands import REGISTER_COUNT, Kind
from sim.hbm import BEAT_BYTES, HbmMemory
from sim.machine.effects import Effect, HbmWrite, RegisterWrite, RowWrite, WordWrite
from sim.numerics.bf16 import BF16, Bf16Array, F32Array

Bits = npt.NDArray[np.uint16]

WORD_MASK = 0xFFFF_FFFF


def as_bits(name: str, values: npt.ArrayLike) -> Bits:
    """Patterns of bfloat16 values, or of patterns (uint16); TypeError for any other type."""
    array = np.asarray(values)
    if array.dtype == BF16:
        return array.view(np.uint16)
    if array.dtype == np.uint16:
        return array
    raise TypeError(f"{name} holds bfloat16 (or its patterns as uint16), got {array.dtype}")


def widen(bits: Bits) -> F32Array:
    """BF16 patterns as FP32 values, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


class MachineState:
    """Everything that instructions read and write, and the host's access in the shapes of
    `sim.memories.Memories`.

    Registers are Python integers: `gp`, `f` (patterns), `a`. Index 0 of gp and f stays 0, since
    `set_gp` and `set_f` ignore it. `vram` is [rows, MLEN], `mram` [tiles, MLEN, MLEN], patterns.
    While `log` is a list, every write appends an `Effect` to it.

    Raises:
        IndexError: host access outside a memory. TypeError: other values than bfloat16.
    """

    def __init__(self, config: PlenaConfig, hbm: HbmMemory) -> None:
        self.config = config
        self.hbm = hbm
        self.log: list[Effect] | None = None
        mlen, heads = config.MLEN, config.heads
        self.gp = [0] * REGISTER_COUNT[Kind.GP]
        self.f = [0] * REGISTER_COUNT[Kind.F]
        self.a = [0] * REGISTER_COUNT[Kind.A]
        self.scale, self.stride, self.v_mask = 0, 1, 0
        self.topk: int | None = None
        self.loops: list[tuple[int, int]] = []  # pc of the C_LOOP_START, counter register
        self.vram: Bits = np.zeros((config.VRAM_ROWS, mlen), np.uint16)
        self.mram: Bits = np.zeros((config.MRAM_TILES, mlen, mlen), np.uint16)
        self.fp_mem: Bits = np.zeros(config.FP_MEM_WORDS, np.uint16)
        self.int_mem = np.zeros(config.INT_MEM_WORDS, np.uint32)
        self.m_acc = np.zeros((config.BLEN, config.BLEN), np.float32)
        self.v_acc = np.zeros((1, config.BLEN), np.float32)
        self.hm_acc = np.zeros((heads, mlen, mlen), np.float32)
        self.hv_acc = np.zeros((heads, 1, mlen), np.float32)
        self.all_lanes = (1 << mlen) - 1
        self._tiles: dict[int, F32Array] = {}

    # What instructions use.

    def set_gp(self, index: int, value: int) -> None:
        """gp[index] = value, modulo 2^32."""
        if index:
            self.gp[index] = value & WORD_MASK
            if self.log is not None:
                self.log.append(RegisterWrite("gp", index, value & WORD_MASK))

    def set_f(self, index: int, pattern: int) -> None:
        """f[index] = pattern."""
        if index:
            self.f[index] = pattern
            if self.log is not None:
                self.log.append(RegisterWrite("f", index, pattern))

    def set_a(self, index: int, value: int) -> None:
        """a[index] = value, 64 bits."""
        self.a[index] = value
        if self.log is not None:
            self.log.append(RegisterWrite("a", index, value))

    def f_value(self, index: int) -> Bf16Array:
        """f[index] as a BF16 array without dimensions."""
        return np.array(self.f[index], np.uint16).view(BF16)

    def rows(self, first: int, count: int = 1) -> Bf16Array:
        """[count, MLEN] BF16 values; a view, so copy before writing."""
        return self.vram[first : first + count].view(BF16)

    def row(self, index: int) -> Bf16Array:
        """[MLEN] BF16 values; a view."""
        return self.vram[index].view(BF16)

    def tile(self, index: int) -> F32Array:
        """[MLEN, MLEN] FP32 values of a matrix tile; not to be written."""
        tile = self._tiles.get(index)
        if tile is None:
            tile = self._tiles[index] = widen(self.mram[index])
        return tile

    def set_rows(self, first: int, values: Bf16Array, step: int = 1) -> None:
        """Whole rows `first`, `first + step`, ... from [count, MLEN] values."""
        self.set_lanes(first, 0, values, step)

    def set_lanes(self, first: int, lane: int, values: Bf16Array, step: int = 1) -> None:
        """Lanes from `lane` on of the rows `first`, `first + step`, ... from [count, n] values."""
        bits = values.view(np.uint16)
        count, width = bits.shape
        if step == 1:
            self.vram[first : first + count, lane : lane + width] = bits
        else:
            for i in range(count):
                self.vram[first + i * step, lane : lane + width] = bits[i]
        if self.log is not None:
            mask = ((1 << width) - 1) << lane
            for i in range(count):
                data = np.zeros(self.config.MLEN, np.uint16)
                data[lane : lane + width] = bits[i]
                self.log.append(RowWrite("vram", first + i * step, mask, data))

    def set_tile_rows(self, index: int, values: Bf16Array) -> None:
        """The first rows of a tile, [count, MLEN]."""
        bits = values.view(np.uint16)
        self.mram[index, : len(bits)] = bits
        self._tiles.pop(index, None)
        if self.log is not None:
            base = index * self.config.MLEN
            for i, row in enumerate(bits.copy()):
                self.log.append(RowWrite("mram", base + i, self.all_lanes, row))

    def set_fp_words(self, first: int, patterns: list[int]) -> None:
        """Consecutive words of FP_MEM."""
        self.fp_mem[first : first + len(patterns)] = patterns
        if self.log is not None:
            self.log += [WordWrite("FP_MEM", first + i, p) for i, p in enumerate(patterns)]

    def set_int_words(self, first: int, values: list[int]) -> None:
        """Consecutive words of INT_MEM."""
        self.int_mem[first : first + len(values)] = values
        if self.log is not None:
            self.log += [WordWrite("INT_MEM", first + i, v) for i, v in enumerate(values)]

    def set_state(self, name: str, value: int) -> None:
        """Record that a state register changed; its attribute is the caller's."""
        if self.log is not None:
            self.log.append(RegisterWrite("state", name, value))

    def set_hbm(self, address: int, content: bytes) -> None:
        """Bytes of the device memory, without those that lie in faulty beats."""
        end = address + len(content)
        whole = not self.hbm.is_faulty(address, len(content))
        start = address
        while start < end:
            stop = end if whole else min(end, start - start % BEAT_BYTES + BEAT_BYTES)
            if not self.hbm.is_faulty(start, stop - start):
                part = content[start - address : stop - address]
                self.hbm.write(start, part)
                if self.log is not None:
                    self.log.append(HbmWrite(start, part))
            start = stop

    # The host's access.

    def _check(self, name: str, first: int, count: int, size: int) -> None:
        if first < 0 or count < 0 or first + count > size:
            raise IndexError(f"{name}: {first} to {first + count - 1} do not all exist, of {size}")

    def write_vector(self, first_row: int, values: npt.ArrayLike) -> None:
        """Vector SRAM rows from `first_row`; `values` is [rows, VLEN]."""
        rows = as_bits("vector SRAM", values).reshape(-1, self.config.MLEN)
        self._check("vector SRAM rows", first_row, len(rows), self.config.VRAM_ROWS)
        self.vram[first_row : first_row + len(rows)] = rows

    def read_vector(self, first_row: int = 0, count: int | None = None) -> Bits:
        """[count, VLEN] patterns; all rows by default."""
        count = self.config.VRAM_ROWS - first_row if count is None else count
        self._check("vector SRAM rows", first_row, count, self.config.VRAM_ROWS)
        return self.vram[first_row : first_row + count].copy()

    def write_matrix(self, tile: int, values: npt.ArrayLike) -> None:
        """One tile of the matrix SRAM; `values` is [MLEN, MLEN], row-major."""
        self._check("matrix SRAM tiles", tile, 1, self.config.MRAM_TILES)
        bits = as_bits("matrix SRAM", values).reshape(self.config.MLEN, self.config.MLEN)
        self.mram[tile] = bits
        self._tiles.pop(tile, None)

    def read_matrix(self, tile: int) -> Bits:
        """[MLEN, MLEN] patterns of one tile."""
        self._check("matrix SRAM tiles", tile, 1, self.config.MRAM_TILES)
        return self.mram[tile].copy()

    def read_tiles(self) -> Bits:
        """[tiles, MLEN, MLEN] patterns of the whole matrix SRAM."""
        return self.mram.copy()

    def write_fp(self, first: int, values: npt.ArrayLike) -> None:
        """FP_MEM words from `first`."""
        words = as_bits("FP_MEM", values).reshape(-1)
        self._check("FP_MEM words", first, len(words), self.config.FP_MEM_WORDS)
        self.fp_mem[first : first + len(words)] = words

    def read_fp(self) -> Bits:
        """All of FP_MEM."""
        return self.fp_mem.copy()

    def write_int(self, first: int, values: npt.ArrayLike) -> None:
        """INT_MEM words from `first`, modulo 2^32."""
        words = [int(v) & WORD_MASK for v in np.asarray(values).reshape(-1)]
        self._check("INT_MEM words", first, len(words), self.config.INT_MEM_WORDS)
        self.int_mem[first : first + len(words)] = words

    def read_int(self) -> npt.NDArray[np.uint32]:
        """All of INT_MEM."""
        return self.int_mem.copy()

    def read_gp(self) -> npt.NDArray[np.uint32]:
        """gp0 to gp15."""
        return np.array(self.gp, np.uint32)

    def read_f(self) -> Bits:
        """f0 to f7, patterns."""
        return np.array(self.f, np.uint16)

    def read_a(self) -> npt.NDArray[np.uint64]:
        """a0 to a7."""
        return np.array(self.a, np.uint64)

    def read_state(self) -> dict[str, int]:
        """SCALE, STRIDE, V_MASK and the top-k policy."""
        return {
            "SCALE": self.scale,
            "STRIDE": self.stride,
            "V_MASK": self.v_mask,
            "TOPK": self.topk or 0,
            "TOPK_VALID": int(self.topk is not None),
        }
