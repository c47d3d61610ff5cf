"""What one instruction changed: the records that lock step compares with the hardware."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class RowWrite:
    """A row of an SRAM: `memory` is "vram" or "mram" (row = tile * MLEN + row in the tile).

    `lanes` has a bit per written lane; `data` are all MLEN patterns, of which those lanes count.
    """

    memory: str
    row: int
    lanes: int
    data: npt.NDArray[np.uint16]

    def __str__(self) -> str:
        values = " ".join(
            f"{int(v):04X}" if self.lanes >> lane & 1 else "----"
            for lane, v in enumerate(self.data)
        )
        return f"{self.memory} row {self.row}: {values}"


@dataclass(frozen=True)
class RegisterWrite:
    """A register: `file` is "gp", "f", "a", or "state" with a state register's name as `index`."""

    file: str
    index: int | str
    value: int

    def __str__(self) -> str:
        name = self.index if isinstance(self.index, str) else f"{self.file}{self.index}"
        return f"{name} = 0x{self.value:X}"


@dataclass(frozen=True)
class WordWrite:
    """A word of "FP_MEM" (BF16 pattern) or "INT_MEM"."""

    memory: str
    address: int
    value: int

    def __str__(self) -> str:
        return f"{self.memory}[{self.address}] = 0x{self.value:X}"


@dataclass(frozen=True)
class HbmWrite:
    """Bytes of the device memory from `address` on."""

    address: int
    content: bytes

    def __str__(self) -> str:
        return f"HBM 0x{self.address:X}: {self.content.hex(' ')}"


Effect = RowWrite | RegisterWrite | WordWrite | HbmWrite
