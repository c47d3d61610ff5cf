"""The host loader: arrays in and out of every memory and register file of the machine, around the
clock."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from amaranth.hdl import MemoryData

from isa.config import PlenaConfig
from sim.engine import Engine

Bits = npt.NDArray[np.uint16]


def bf16_bits(name: str, values: npt.ArrayLike) -> Bits:
    """BF16 bit patterns of an array of bfloat16 values, or of the patterns themselves (uint16).

    Raises TypeError for any other type: the host never rounds on the way in.
    """
    array = np.asarray(values)
    if array.dtype == ml_dtypes.bfloat16:
        return array.view(np.uint16)
    if array.dtype == np.uint16:
        return array
    raise TypeError(
        f"{name}: got an array of {array.dtype}, but the memory holds bfloat16; "
        "round it once with astype(ml_dtypes.bfloat16), or pass bit patterns as uint16"
    )


class Memories:
    """Reads and writes the memories of an engine; shapes are in lanes, rows and tiles of
    `config`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._config: PlenaConfig = engine.config
        self._top = engine.top

    def _check(self, name: str, first: int, count: int, size: int, unit: str) -> None:
        if first < 0 or count < 0 or first + count > size:
            raise IndexError(
                f"{name}: {unit} {first} to {first + count - 1} do not exist; it has {size} {unit}"
            )

    def _pack(self, rows: Bits) -> list[int]:
        little = np.ascontiguousarray(rows, dtype="<u2")
        return [int.from_bytes(row.tobytes(), "little") for row in little]

    def _read(
        self, memory: MemoryData, start: int, count: int, word: str = "<u2"
    ) -> npt.NDArray[Any]:
        """[count, words of a row] of a memory."""
        content = self._engine.read_bytes(memory, start, count)
        words = np.frombuffer(content, np.dtype(word))
        return words.reshape(count, -1).astype(words.dtype.newbyteorder("="))

    def write_vector(self, first_row: int, values: npt.ArrayLike) -> None:
        """Vector SRAM rows from `first_row`; `values` is [rows, VLEN]."""
        rows = bf16_bits("vector SRAM", values).reshape(-1, self._config.MLEN)
        self._check("vector SRAM", first_row, len(rows), self._config.VRAM_ROWS, "rows")
        self._engine.write_memory(self._top.vector_sram.storage, first_row, self._pack(rows))

    def read_vector(self, first_row: int = 0, count: int | None = None) -> Bits:
        """[count, VLEN] bit patterns; all rows by default."""
        count = self._config.VRAM_ROWS - first_row if count is None else count
        self._check("vector SRAM", first_row, count, self._config.VRAM_ROWS, "rows")
        return self._read(self._top.vector_sram.storage, first_row, count)

    def write_matrix(self, tile: int, values: npt.ArrayLike) -> None:
        """One tile of the matrix SRAM; `values` is [MLEN, MLEN], row-major."""
        mlen = self._config.MLEN
        bits = bf16_bits("matrix SRAM", values).reshape(mlen, mlen)
        self._check("matrix SRAM", tile, 1, self._config.MRAM_TILES, "tiles")
        for bank, storage in enumerate(self._top.matrix_sram.banks):
            words = [int(bits[row, (bank - row) % mlen]) for row in range(mlen)]
            self._engine.write_memory(storage, tile * mlen, words)

    def read_matrix(self, tile: int) -> Bits:
        """[MLEN, MLEN] bit patterns of one tile."""
        self._check("matrix SRAM", tile, 1, self._config.MRAM_TILES, "tiles")
        return self._tiles(tile, 1)[0]

    def read_tiles(self) -> Bits:
        """[tiles, MLEN, MLEN] bit patterns of the whole matrix SRAM."""
        return self._tiles(0, self._config.MRAM_TILES)

    def _tiles(self, first: int, count: int) -> Bits:
        mlen = self._config.MLEN
        bits = np.zeros((count, mlen, mlen), np.uint16)
        rows = np.arange(mlen)
        for bank, storage in enumerate(self._top.matrix_sram.banks):
            column = self._read(storage, first * mlen, count * mlen)
            bits[:, rows, (bank - rows) % mlen] = column.reshape(count, mlen)
        return bits

    def write_fp(self, first: int, values: npt.ArrayLike) -> None:
        """FP_MEM words from `first`; `values` is a vector."""
        words = bf16_bits("FP_MEM", values).reshape(-1)
        self._check("FP_MEM", first, len(words), self._config.FP_MEM_WORDS, "words")
        whole = self.read_fp()
        whole[first : first + len(words)] = words
        self._engine.write_memory(
            self._top.scalar.fp_mem, 0, self._pack(whole.reshape(-1, self._config.MLEN))
        )

    def read_fp(self) -> Bits:
        """All of FP_MEM."""
        depth = self._config.FP_MEM_WORDS // self._config.MLEN
        return self._read(self._top.scalar.fp_mem, 0, depth).reshape(-1)

    def write_int(self, first: int, values: npt.ArrayLike) -> None:
        """INT_MEM words from `first`, modulo 2^32."""
        words = [int(v) & 0xFFFFFFFF for v in np.asarray(values).reshape(-1)]
        self._check("INT_MEM", first, len(words), self._config.INT_MEM_WORDS, "words")
        self._engine.write_memory(self._top.scalar.int_mem, first, words)

    def read_int(self) -> npt.NDArray[np.uint32]:
        """All of INT_MEM."""
        count = self._config.INT_MEM_WORDS
        return self._read(self._top.scalar.int_mem, 0, count, "<u4").reshape(-1)

    def read_accumulators(self) -> dict[str, npt.NDArray[np.float32]]:
        """m_acc, v_acc, hm_acc and hv_acc, in the shapes of isa.md."""
        words = self._top.matrix.accumulators(self._engine.get, self._engine.read_memory)
        return {name: np.array(w, np.uint32).view(np.float32) for name, w in words.items()}

    def read_gp(self) -> npt.NDArray[np.uint32]:
        """gp0 to gp15."""
        words = self._engine.read_memory(self._top.dispatcher.gp.storage, 0, 16)
        return np.array([0, *words[1:]], np.uint32)

    def read_f(self) -> Bits:
        """f0 to f7, bit patterns."""
        words = self._engine.read_memory(self._top.dispatcher.f.storage, 0, 8)
        return np.array([0, *words[1:]], np.uint16)

    def read_a(self) -> npt.NDArray[np.uint64]:
        """a0 to a7."""
        return np.array(self._engine.read_memory(self._top.dispatcher.a, 0, 8), np.uint64)

    def read_state(self) -> dict[str, int]:
        """SCALE, STRIDE, V_MASK and the top-k policy."""
        registers = self._engine.probe.state_registers
        return {name: self._engine.get(signal) for name, signal in registers.items()}
