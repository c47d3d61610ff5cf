"""Scalar IEEE-754 arithmetic with fractions: slow, obvious, and independent of NumPy.

The oracle of the array code. Finite operands only; a result may overflow to infinity. Rounding is
to nearest, ties to even, with subnormals (numerics.md).
"""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, kw_only=True)
class Format:
    """A binary format: sign, exponent field, trailing significand, from the top bit down."""

    name: str
    exponent_bits: int
    trailing_bits: int

    @property
    def sign_bit(self) -> int:
        """The pattern of the sign alone, which is also the pattern of -0."""
        return 1 << (self.exponent_bits + self.trailing_bits)

    @property
    def infinity(self) -> int:
        """The pattern of +infinity."""
        return ((1 << self.exponent_bits) - 1) << self.trailing_bits

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - (1 << (self.exponent_bits - 1))


BF16 = Format(name="BF16", exponent_bits=8, trailing_bits=7)
FP32 = Format(name="FP32", exponent_bits=8, trailing_bits=23)


def floor_log2(value: Fraction) -> int:
    """Return floor(log2(value)) of a positive fraction, exactly."""
    if value <= 0:
        raise ValueError(f"floor_log2 needs a positive value, got {value}")
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if value >= Fraction(2) ** guess else guess - 1


def round_half_even(value: Fraction) -> int:
    """Round a fraction to the nearest integer, ties to even."""
    return round(value)  # Fraction.__round__ is defined as half-even


def bits_of(value: Fraction | int | float, fmt: Format, *, zero_sign: int = 0) -> int:
    """Round a real value once and return its pattern.

    `zero_sign` is the sign bit (0 or 1) of a result whose exact value is zero; a non-zero value
    that rounds to zero keeps its own sign. Overflow gives infinity.
    """
    value = Fraction(value)
    if value == 0:
        return fmt.sign_bit if zero_sign else 0
    sign = fmt.sign_bit if value < 0 else 0
    magnitude = abs(value)
    exponent = max(floor_log2(magnitude), fmt.emin)
    quantum = Fraction(2) ** (exponent - fmt.trailing_bits)
    # Counting quanta makes the carry into the next binade, and into infinity, free.
    count = round_half_even(magnitude / quantum)
    pattern = ((exponent - fmt.emin) << fmt.trailing_bits) + count
    return sign | min(pattern, fmt.infinity)


def value_of(bits: int, fmt: Format) -> Fraction:
    """Return the exact value of a finite pattern; raise ValueError for infinities and NaN."""
    magnitude = bits & (fmt.sign_bit - 1)
    if magnitude >= fmt.infinity:
        raise ValueError(f"{bits:#x} is not a finite {fmt.name} value")
    field, trailing = divmod(magnitude, 1 << fmt.trailing_bits)
    significand = trailing + (1 << fmt.trailing_bits if field else 0)
    value = significand * Fraction(2) ** (max(field, 1) - 1 + fmt.emin - fmt.trailing_bits)
    return -value if bits & fmt.sign_bit else value


def add_bits(a: int, b: int, fmt: Format) -> int:
    """Add two finite patterns, rounded once. An exact zero is -0 only for -0 + -0."""
    both_negative = bool(a & b & fmt.sign_bit)
    return bits_of(value_of(a, fmt) + value_of(b, fmt), fmt, zero_sign=int(both_negative))


def mul_bits(a: int, b: int, fmt: Format, result: Format) -> int:
    """Multiply two finite patterns of `fmt`, rounded once to `result`."""
    negative = bool((a ^ b) & fmt.sign_bit)
    return bits_of(value_of(a, fmt) * value_of(b, fmt), result, zero_sign=int(negative))


def convert_bits(bits: int, source: Format, target: Format) -> int:
    """Convert a finite pattern between formats, rounded once; the sign of zero is kept."""
    return bits_of(value_of(bits, source), target, zero_sign=int(bool(bits & source.sign_bit)))


def tree_sum_bits(terms: list[int], fmt: Format) -> int:
    """Sum a power-of-two count of patterns, neighbours first, each addition rounded to `fmt`."""
    while len(terms) > 1:
        terms = [add_bits(a, b, fmt) for a, b in zip(terms[0::2], terms[1::2], strict=True)]
    return terms[0]
