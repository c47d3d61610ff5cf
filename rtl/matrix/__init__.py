"""The matrix unit and the matrix SRAM: BLEN x BLEN results from an array of MLEN x BLEN multipliers."""

from .sram import MatrixSram
from .unit import MatrixUnit

__all__ = ["MatrixSram", "MatrixUnit"]
