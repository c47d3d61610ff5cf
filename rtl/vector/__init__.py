"""The vector unit and the vector SRAM it shares with the other units."""

from .sram import VectorSram
from .unit import VectorUnit

__all__ = ["VectorSram", "VectorUnit"]
