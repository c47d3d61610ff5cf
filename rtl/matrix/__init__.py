"""The matrix unit, which makes BLEN x BLEN results with MLEN x BLEN multipliers, and its SRAM."""

from .sram import MatrixSram
from .unit import MatrixUnit

__all__ = ["MatrixSram", "MatrixUnit"]
