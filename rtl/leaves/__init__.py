"""Arithmetic leaves: pure functions of floating-point words, bit-exact to the numerics contract."""

from .add import FloatAdd
from .convert import RoundToBF16
from .exp import BF16Exp
from .format import BF16, E4M3, E4M3_IEEE, E8M0_BIAS, E8M0_BITS, E8M0_NAN, FP32, FloatFormat
from .leaf import Leaf
from .minmax import BF16MinMax
from .mul import FloatMul
from .mx_decode import MxDecode
from .mx_encode import MxBlockScale, MxEncode
from .reciprocal import BF16Reciprocal
from .sqrt import BF16Sqrt

__all__ = [
    "BF16",
    "E4M3",
    "E4M3_IEEE",
    "E8M0_BIAS",
    "E8M0_BITS",
    "E8M0_NAN",
    "FP32",
    "BF16Exp",
    "BF16MinMax",
    "BF16Reciprocal",
    "BF16Sqrt",
    "FloatAdd",
    "FloatFormat",
    "FloatMul",
    "Leaf",
    "MxBlockScale",
    "MxDecode",
    "MxEncode",
    "RoundToBF16",
]
