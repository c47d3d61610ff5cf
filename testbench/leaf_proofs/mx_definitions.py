"""What the MX leaves must give, in both dialects; all words are uint32 arrays.

Sources: numerics.md, "MX conversion", for `ocp`; the rules of the PLENA emulator, as `isa.config`
and the leaves state them, for `plena`, in integers alone.
"""

import numpy as np
import numpy.typing as npt

from testbench.leaf_proofs.definitions import BF16, E4M3, Numbers, Words, decode, encode, grid

Integers = npt.NDArray[np.int32]

__all__ = ["mx_decode", "mx_encode", "mx_scale"]


def mx_decode(codes: Words, scales: Words, dialect: str = "ocp") -> Words:
    """BF16 of every element under every scale."""
    field, man = codes >> 3 & 15, codes & 7
    least = -9 if dialect == "ocp" else -10
    normal = (8 + man) * np.ldexp(1.0, field.astype(int) - 10)
    element = np.where(field == 0, man * 2.0**least, normal)
    scale = np.ldexp(1.0, scales.astype(int) - 127)
    if dialect == "ocp":
        element = np.where((codes & 0x7F) == 0x7F, np.nan, element)
        scale = np.where(scales == 0xFF, np.nan, scale)
    else:
        element = np.where(field == 15, np.where(man == 0, np.inf, np.nan), element)
        scale = np.where(scales == 0, 0.0, np.where(scales == 0xFF, np.inf, scale))
    with np.errstate(invalid="ignore"):
        return encode(np.where(codes & 0x80, -element, element) * scale, BF16)


def mx_scale(blocks: Words, dialect: str = "ocp") -> Words:
    """The scale byte of each row."""
    numbers = np.abs(decode(blocks, BF16))
    largest_finite = decode(np.array([0x7F7F]), BF16)[0]
    numbers = np.where(np.isnan(numbers), 0.0, np.minimum(numbers, largest_finite))
    largest = numbers.max(axis=-1)
    _, exponent = np.frexp(np.where(largest == 0, 2.0**-200, largest))
    shared = exponent - 1 - (8 if dialect == "ocp" else 0)
    return (np.clip(shared, -127, 127) + 127).astype(np.uint32)


def mx_encode(words: Words, scales: Words, dialect: str = "ocp") -> Words:
    """The element of every number under every scale of a block, 0 to 254."""
    if dialect == "plena":
        return _plena_codes(words.astype(np.int32), scales.astype(np.int32)).astype(np.uint32)
    numbers: Numbers = np.ldexp(decode(words, BF16), 127 - scales.astype(int))
    special = ~np.isfinite(numbers)
    steps, above = grid(np.where(special, 0.0, numbers), E4M3)
    codes = np.minimum(steps + (above.astype(np.int64) << 3), 0x7E)
    codes = np.where(np.isinf(numbers), 0x7E, np.where(np.isnan(numbers), 0x7F, codes))
    return (codes | ((words >> 8) & 0x80)).astype(np.uint32)


def _plena_codes(words: Integers, scales: Integers) -> Integers:
    """The quotient is significand * 2^power; its quarters of a unit in the last place are whole
    numbers after a shift, which cuts off as the rule does."""
    sign, field, trailing = words >> 15, words >> 7 & 0xFF, words & 0x7F
    significand = np.where(field == 0, trailing, 128 + trailing)
    power = np.maximum(field, 1) - 127 - 7 - (scales - 127)
    bits = np.zeros_like(significand)
    for k in range(8):
        bits += significand >= 1 << k  # bit length
    wanted = power + bits - 1  # floor(log2) of a quotient that is not zero
    exponent = np.clip(wanted, -7, 7)
    shift = power - exponent + 5  # eighths, in quarters: 2^3 * 2^2
    quarters = np.where(
        shift >= 0,
        significand << np.clip(shift, 0, 16),
        significand >> np.clip(-shift, 0, 16),
    )
    quarters -= np.where(exponent == -7, 0, 32)
    whole, rest = quarters >> 2, quarters & 3
    rounded = np.minimum(whole + ((rest == 3) | ((rest == 2) & (whole % 2 == 1))), 7)
    code = exponent + 7 << 3 | rounded
    code = np.where((wanted > 7) | (field == 255), 0x77, code) | sign << 7
    code = np.where(significand == 0, 0, code)
    return np.where((field == 255) & (trailing != 0), 0x7F | sign << 7, code)
