"""Number formats: the only place where the bit positions of a floating-point word are known.

Source: IEEE 754-2019, and for E4M3 the OCP 8-bit Floating Point Specification (OFP8) 1.0.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Value, ValueLike

__all__ = [
    "BF16",
    "E4M3",
    "E4M3_IEEE",
    "E8M0_BIAS",
    "E8M0_BITS",
    "E8M0_NAN",
    "FP32",
    "FloatFormat",
    "fields",
]


def fields(packed: Value, *widths: int) -> list[Value]:
    """The parts of ``packed``, from the low end on, that have these widths."""
    parts: list[Value] = []
    start = 0
    for width in widths:
        parts.append(packed[start : start + width])
        start += width
    return parts


@dataclass(frozen=True)
class FloatFormat:
    """A binary format: sign, ``exp`` exponent bits, ``man`` stored significand bits.

    ``finite_only`` marks the OCP "fn" kind: no infinities, and only the all-ones word is NaN.
    """

    name: str
    exp: int
    man: int
    finite_only: bool = False

    def __post_init__(self) -> None:
        if self.exp < 2:
            raise ValueError(f"{self.name}: exp must be at least 2, not {self.exp}")
        if self.man < 1:
            raise ValueError(f"{self.name}: man must be at least 1, not {self.man}")

    @property
    def width(self) -> int:
        """Bits in a word."""
        return 1 + self.exp + self.man

    @property
    def precision(self) -> int:
        """Significand bits, the hidden one included."""
        return self.man + 1

    @property
    def bias(self) -> int:
        """Exponent field of 1.0."""
        return (1 << (self.exp - 1)) - 1

    @property
    def exp_max(self) -> int:
        """Largest exponent field."""
        return (1 << self.exp) - 1

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number (and of every subnormal)."""
        return 1 - self.bias

    @property
    def sign_mask(self) -> int:
        """The word with only the sign set."""
        return 1 << (self.width - 1)

    @property
    def hidden(self) -> int:
        """Weight of the hidden bit in an integer significand, and of one in the exponent field."""
        return 1 << self.man

    @property
    def inf(self) -> int:
        """Positive infinity."""
        if self.finite_only:
            raise ValueError(f"{self.name} has no infinity")
        return self.exp_max << self.man

    @property
    def nan(self) -> int:
        """The canonical NaN."""
        if self.finite_only:
            return self.sign_mask - 1
        return self.inf | (self.hidden >> 1)

    @property
    def max_finite(self) -> int:
        """The largest positive number."""
        return self.nan - 1 if self.finite_only else self.inf - 1

    def sign_of(self, word: Value) -> Value:
        """The sign bit."""
        return word[self.width - 1]

    def exp_of(self, word: Value) -> Value:
        """The exponent field."""
        return word[self.man : self.width - 1]

    def man_of(self, word: Value) -> Value:
        """The stored significand, without the hidden bit."""
        return word[: self.man]

    def magnitude_of(self, word: Value) -> Value:
        """The word without its sign: unsigned order of these is order of absolute values."""
        return word[: self.width - 1]

    def significand_of(self, word: Value) -> Value:
        """The significand with the hidden bit, ``precision`` bits."""
        return Cat(self.man_of(word), self.exp_of(word) != 0)

    def biased_exp_of(self, word: Value) -> Value:
        """The exponent field with 1 in place of 0, which gives subnormals their true weight."""
        field = self.exp_of(word)
        return field | (field == 0)

    def signed(self, magnitude: int, sign: ValueLike) -> Value:
        """A constant magnitude with a variable sign."""
        return Cat(Const(magnitude, self.width - 1), sign)


BF16 = FloatFormat("BF16", exp=8, man=7)
FP32 = FloatFormat("FP32", exp=8, man=23)
E4M3 = FloatFormat("E4M3", exp=4, man=3, finite_only=True)
# The same layout with the top exponent field for infinities and NaNs: MX dialect `plena`.
E4M3_IEEE = FloatFormat("E4M3 with infinities", exp=4, man=3)

# E8M0 is a bare exponent, 2^(byte - 127), and no FloatFormat: it has neither sign nor significand.
E8M0_BITS = 8
E8M0_BIAS = 127
E8M0_NAN = 0xFF
