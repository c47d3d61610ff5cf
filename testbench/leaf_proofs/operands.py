"""Operand pairs in the manner of Berkeley TestFloat: crossed patterns, and several random kinds."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbench.leaf_proofs.definitions import Format, Words

SEED = 20240229


def exponents(fmt: Format) -> list[int]:
    """22 exponent fields around everything that an operation distinguishes."""
    top = (1 << fmt.exp) - 1
    bias, man = fmt.bias, fmt.man
    low = [0, 1, 2, 3, man - 1, man]
    middle = [bias + d for d in (-man - 2, -man - 1, -man, -2, -1, 0, 1, 2)]
    high = [bias + man + d for d in (-1, 0, 1, 2)]
    return [*low, *middle, *high, top - 3, top - 2, top - 1, top]


def patterns(fmt: Format, significands: Sequence[int] | None = None) -> Words:
    """22 exponents x 2 signs x the significands, of which there are 4 by default; zeros,
    subnormals, infinities and NaNs are among them."""
    if significands is None:
        significands = [0, 1, (1 << fmt.man) - 1, 1 << (fmt.man - 1)]
    return np.array(
        [
            sign << (fmt.width - 1) | exponent << fmt.man | significand
            for sign in (0, 1)
            for exponent in exponents(fmt)
            for significand in significands
        ],
        dtype=np.uint32,
    )


def crossed(fmt: Format) -> tuple[Words, Words]:
    """Patterns with patterns, with runs of ones from either end and single bits as significands:
    698,896 pairs for FP32."""
    man, whole = fmt.man, (1 << fmt.man) - 1
    cuts = (1, 2, man // 2, man // 2 + 1, man - 2, man - 1)
    significands = {0, 1, whole, whole - 1}
    for cut in cuts:
        significands |= {(1 << cut) - 1, whole ^ ((1 << cut) - 1), 1 << cut}
    ordered = patterns(fmt, sorted(significands))
    a, b = np.meshgrid(ordered, ordered)
    return a.ravel(), b.ravel()


def directed(a_fmt: Format, b_fmt: Format) -> tuple[Words, Words]:
    """Every pattern with every pattern: 30,976 pairs."""
    a, b = np.meshgrid(patterns(a_fmt), patterns(b_fmt))
    return a.ravel(), b.ravel()


def words(rng: np.random.Generator, count: int, fmt: Format) -> Words:
    """Uniform over all words."""
    return rng.integers(0, 1 << fmt.width, count, dtype=np.uint64).astype(np.uint32)


def sparse_significands(rng: np.random.Generator, values: Words, fmt: Format) -> Words:
    """Runs of zeros and ones in the low bits, where ties and long carries live."""
    cut = rng.integers(0, fmt.man + 1, len(values), dtype=np.uint32)
    mask = (np.uint32(1) << cut) - np.uint32(1)
    return np.where(rng.integers(0, 2, len(values)), values | mask, values & ~mask)


def with_exponent(values: Words, exponent: npt.NDArray[np.int64], fmt: Format) -> Words:
    """The values with other exponents, cut off to the range of the field."""
    field = np.clip(exponent, 0, (1 << fmt.exp) - 1).astype(np.uint32)
    others = np.uint32(((1 << fmt.width) - 1) ^ (((1 << fmt.exp) - 1) << fmt.man))
    return values & others | field << np.uint32(fmt.man)


def random_pairs(
    a_fmt: Format, b_fmt: Format, *, scale: int = 1, products: bool = False
) -> tuple[Words, Words]:
    """70,000 / scale pairs: uniform, related exponents, subnormal-heavy, cancelling."""
    rng = np.random.default_rng(SEED)
    chunks = []

    def pair(count: int) -> tuple[Words, Words]:
        count //= scale
        return (
            sparse_significands(rng, words(rng, count, a_fmt), a_fmt),
            sparse_significands(rng, words(rng, count, b_fmt), b_fmt),
        )

    chunks.append(pair(14_000))

    a, b = pair(28_000)
    exponent = (a >> np.uint32(a_fmt.man) & np.uint32(255)).astype(int)
    if products:  # around the least exponent, a few around the greatest
        total = np.where(
            rng.integers(0, 4, len(a)),
            rng.integers(85, 135, len(a)),
            rng.integers(376, 386, len(a)),
        )
        partner = total - exponent
    else:
        reach = a_fmt.man + 4
        partner = exponent + rng.integers(-reach, reach + 1, len(a))
    chunks.append((a, with_exponent(b, partner, b_fmt)))

    a, b = pair(14_000)
    chunks.append(
        (
            with_exponent(a, rng.integers(0, 3, len(a)), a_fmt),
            with_exponent(b, rng.integers(0, 3, len(b)), b_fmt),
        )
    )

    a, b = pair(14_000)
    if a_fmt == b_fmt:
        opposite = (a ^ np.uint32(1 << (a_fmt.width - 1))).astype(np.int64)
        close = opposite + rng.integers(-3, 4, len(a))
        b = (close & ((1 << b_fmt.width) - 1)).astype(np.uint32)
    chunks.append((a, b))
    return np.concatenate([a for a, _ in chunks]), np.concatenate([b for _, b in chunks])


def pairs(a_fmt: Format, b_fmt: Format, *, products: bool = False) -> tuple[Words, Words]:
    """About 101,000 pairs."""
    directed_a, directed_b = directed(a_fmt, b_fmt)
    random_a, random_b = random_pairs(a_fmt, b_fmt, products=products)
    return np.concatenate([directed_a, random_a]), np.concatenate([directed_b, random_b])
