"""What the leaves must give: exact or float64 arithmetic, rounded once by `encode`.

Source: numerics.md alone; it knows nothing of the leaves. All words are uint32 arrays.
"""

from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.float64]


class Format(NamedTuple):
    """Exponent and stored significand bits; the properties follow IEEE 754-2019."""

    exp: int
    man: int

    @property
    def bias(self) -> int:
        """Exponent field of 1."""
        return (1 << (self.exp - 1)) - 1

    @property
    def width(self) -> int:
        """Bits in a word."""
        return 1 + self.exp + self.man

    @property
    def inf(self) -> int:
        """Positive infinity."""
        return ((1 << self.exp) - 1) << self.man

    @property
    def nan(self) -> int:
        """The canonical NaN."""
        return self.inf | 1 << (self.man - 1)


BF16 = Format(8, 7)
FP32 = Format(8, 23)
E4M3 = Format(4, 3)


def decode(words: Words, fmt: Format) -> Numbers:
    """The numbers as float64, exactly (BF16 and FP32)."""
    shifted = np.asarray(words, dtype=np.uint32) << np.uint32(32 - fmt.width)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return shifted.view(np.float32).astype(np.float64)


def grid(numbers: Numbers, fmt: Format) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Magnitudes to nearest even as (steps, exponent above the least), without an upper limit."""
    magnitude = np.abs(numbers)
    _, exponent = np.frexp(magnitude)
    least = 1 - fmt.bias
    exponent = np.where(magnitude == 0, least, np.maximum(exponent - 1, least))
    # Scaling by a power of two is exact here, so that rint is the only rounding.
    return np.rint(np.ldexp(magnitude, fmt.man - exponent)).astype(np.int64), exponent - least


def encode(numbers: Numbers, fmt: Format) -> Words:
    """float64 to words: rounded once to nearest even; every NaN is the canonical one."""
    numbers = np.atleast_1d(np.asarray(numbers, dtype=np.float64))
    finite = np.where(np.isfinite(numbers), numbers, 0.0)
    steps, above = grid(finite, fmt)
    words = np.minimum(steps + (above.astype(np.int64) << fmt.man), fmt.inf)
    words = np.where(np.isinf(numbers), fmt.inf, words)
    words = words | (np.signbit(numbers).astype(np.int64) << (fmt.width - 1))
    return np.where(np.isnan(numbers), fmt.nan, words).astype(np.uint32)


def encode_fraction(number: Fraction, fmt: Format) -> int:
    """The same for one exact number, with integers only (a check of `encode`)."""
    magnitude = abs(number)
    exponent = 1 - fmt.bias
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = round(magnitude / Fraction(2) ** (exponent - fmt.man))  # Fraction rounds half to even
    word = min(steps + (exponent - 1 + fmt.bias << fmt.man), fmt.inf)
    return word | (int(number < 0) << (fmt.width - 1))


def add(a: Words, b: Words, fmt: Format) -> Words:
    """float64 holds 53 >= 2 * 24 + 2 bits, so rounding its sum again changes nothing."""
    with np.errstate(invalid="ignore"):
        return encode(decode(a, fmt) + decode(b, fmt), fmt)


def mul(a: Words, b: Words, a_fmt: Format, b_fmt: Format, out: Format) -> Words:
    """Products of up to 48 bits are exact in float64."""
    with np.errstate(invalid="ignore"):
        return encode(decode(a, a_fmt) * decode(b, b_fmt), out)


def extremum(a: Words, b: Words, is_max: Words) -> Words:
    """NaN if either is NaN; +0 is above -0."""
    x, y = decode(a, BF16), decode(b, BF16)
    a_first = (x > y) | ((x == y) & (np.signbit(x) <= np.signbit(y)))  # +0 is above -0
    result = np.where(a_first == (is_max != 0), a, b)
    return np.where(np.isnan(x) | np.isnan(y), BF16.nan, result).astype(np.uint32)


def reciprocal(words: Words) -> Words:
    """A quotient of 8-bit numbers is never within 2^-40 of a rounding boundary unless on it."""
    with np.errstate(divide="ignore"):
        return encode(1.0 / decode(words, BF16), BF16)


def square_root(words: Words) -> Words:
    """A root of an 8-bit number is never a tie, and float64's is 2^-53 from it at most."""
    with np.errstate(invalid="ignore"):
        return encode(np.sqrt(decode(words, BF16)), BF16)


@cache
def exponentials() -> Words:
    """exp of all 65,536 arguments, clamped to +-88, from 120 bits of mpmath (extra `dev`)."""
    import mpmath

    words = np.arange(1 << 16, dtype=np.uint32)
    x = np.clip(decode(words, BF16), -88.0, 88.0)
    unique, inverse = np.unique(x, return_inverse=True)
    results = np.empty(len(unique), dtype=np.uint32)
    with mpmath.workprec(120):
        for k, number in enumerate(unique):
            if np.isnan(number):
                results[k] = BF16.nan
            elif abs(number) < 2.0**-10:  # within an eighth of an ulp of 1
                results[k] = 0x3F80
            else:
                value = mpmath.exp(mpmath.mpf(float(number)))
                results[k] = encode_fraction(Fraction(int(value * 2**280), 2**280), BF16)
    return results[inverse]
