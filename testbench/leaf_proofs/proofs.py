"""The proofs, as a table: which leaf, for which inputs, against what."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from isa.config import MX_DIALECTS
from rtl.leaves import (
    BF16,
    FP32,
    BF16Exp,
    BF16MinMax,
    BF16Reciprocal,
    BF16Sqrt,
    FloatAdd,
    FloatMul,
    Leaf,
    MxBlockScale,
    MxDecode,
    MxEncode,
    RoundToBF16,
)
from testbench.leaf_proofs import definitions
from testbench.leaf_proofs.lanes import LANE_INPUT_BITS, signs_hold
from testbench.leaf_proofs.mx_definitions import mx_decode, mx_encode, mx_scale
from testbench.leaf_proofs.native import Counterexample, NativeLeaf, Progress, Words
from testbench.leaf_proofs.operands import crossed

__all__ = ["PROOFS", "RANDOM_PAIRS", "Options", "Proof"]

RANDOM_PAIRS = 10**8
#: Scale bytes that a block can be written with.
WRITTEN_SCALES = 255
_SHUFFLED_BLOCKS = 200_000

_AB = {"a": "x", "b": "y"}
_ALL = np.arange(1 << 16, dtype=np.uint32)


@dataclass(frozen=True)
class Options:
    """`pairs` random pairs of `seed`, for the proofs that are not exhaustive; `progress` is told
    the share that is done."""

    pairs: int = RANDOM_PAIRS
    seed: int = 1
    progress: Progress = field(default=lambda _share: None)


@dataclass(frozen=True)
class Proof:
    """`run` returns the number of inputs, or raises `Counterexample`."""

    name: str
    claim: str
    inputs: str
    against: str
    run: Callable[[Options], int]


def _every_pair(
    make: Callable[[], Leaf], wanted: str, operands: dict[str, str]
) -> Callable[[Options], int]:
    def run(options: Options) -> int:
        with NativeLeaf(make(), wanted, operands) as leaf:
            return leaf.all_pairs(options.progress)

    return run


def _every_word(make: Callable[[], Leaf], wanted: str) -> Callable[[Options], int]:
    def run(options: Options) -> int:
        with NativeLeaf(make(), wanted, {"i": "x"}) as leaf:
            return leaf.all_words(options.progress)

    return run


def _sampled(
    make: Callable[[], Leaf], wanted: str, operands: dict[str, str]
) -> Callable[[Options], int]:
    def run(options: Options) -> int:
        with NativeLeaf(make(), wanted, operands) as leaf:
            directed = leaf.these_pairs(*crossed(definitions.FP32))
            return directed + leaf.random_pairs(options.pairs, options.seed, options.progress)

    return run


def _signs(_: Options) -> int:
    if not signs_hold():
        raise Counterexample("a lane adds an operand with the wrong sign")
    return 1 << LANE_INPUT_BITS


def _unary(
    make: Callable[[], Leaf], definition: Callable[[Words], Words]
) -> Callable[[Options], int]:
    def run(_: Options) -> int:
        with NativeLeaf(make()) as leaf:
            return _same(leaf.evaluate(i=_ALL), definition(_ALL), i=_ALL)

    return run


def _mx_decode(dialect: str) -> Callable[[Options], int]:
    def run(_: Options) -> int:
        codes, scales = _ALL & np.uint32(0xFF), _ALL >> np.uint32(8)
        with NativeLeaf(MxDecode(dialect=dialect)) as leaf:
            got = leaf.evaluate(code=codes, scale=scales)
        return _same(got, mx_decode(codes, scales, dialect), code=codes, scale=scales)

    return run


def _mx_encode(dialect: str) -> Callable[[Options], int]:
    def run(options: Options) -> int:
        count = 0
        with NativeLeaf(MxEncode(dialect=dialect)) as leaf:
            for scale in range(WRITTEN_SCALES):
                scales = np.full(len(_ALL), scale, np.uint32)
                got = leaf.evaluate(i=_ALL, scale=scales)
                count += _same(got, mx_encode(_ALL, scales, dialect), i=_ALL, scale=scales)
                options.progress((scale + 1) / WRITTEN_SCALES)
        return count

    return run


def _mx_scale(dialect: str) -> Callable[[Options], int]:
    """Each number alone among zeros, in every place; and blocks of random numbers."""

    def run(options: Options) -> int:
        rng = np.random.default_rng(options.seed)
        blocks = rng.integers(0, 1 << 16, (_SHUFFLED_BLOCKS, 8)).astype(np.uint32)
        # Magnitudes that are close, so that the largest is not decided by the first bits.
        blocks[1::2] = (blocks[1::2] & 0x80FF) | rng.integers(0, 128, (len(blocks) // 2, 1)) << 8
        count = 0
        with NativeLeaf(MxBlockScale(dialect=dialect)) as leaf:
            for place in range(8):
                alone = np.zeros((len(_ALL), 8), np.uint32)
                alone[:, place] = _ALL
                for some in (alone, blocks):
                    got = leaf.evaluate(**{f"i{k}": some[:, k] for k in range(8)})
                    count += _same(got, mx_scale(some, dialect), block=some)
                blocks = np.roll(blocks, 1, axis=1)
                options.progress((place + 1) / 8)
        return count

    return run


def _same(got: Words, wanted: Words, **operands: object) -> int:
    wrong = np.flatnonzero(got != wanted)
    if len(wrong):
        k = int(wrong[0])
        given = ", ".join(
            f"{name} {' '.join(f'{int(v):X}' for v in np.atleast_1d(np.asarray(column)[k]))}"
            for name, column in operands.items()
        )
        raise Counterexample(
            f"{given}: got {int(got[k]):X}, wanted {int(wanted[k]):X} "
            f"({len(wrong)} of {len(got)} are wrong)"
        )
    return len(got)


_HOST = "the host's float, rounded once more to BF16"
_PAIRS, _ALL_16, _ALL_32 = "all 2^32 pairs", "all 2^16 words", "all 2^32 words"

PROOFS: dict[str, Proof] = {
    proof.name: proof
    for proof in (
        Proof(
            *("bf16-add", "FloatAdd(BF16) is a + b", _PAIRS, _HOST),
            _every_pair(lambda: FloatAdd(BF16), "to_bf16(wide(x) + wide(y))", _AB),
        ),
        Proof(
            *("bf16-sub", "FloatAdd(BF16) with b's sign inverted is a - b", _PAIRS, _HOST),
            _every_pair(
                lambda: FloatAdd(BF16),
                "to_bf16(wide(x) - wide(y))",
                {"a": "x", "b": "y ^ 0x8000"},
            ),
        ),
        Proof(
            *("bf16-signs", "AddLanes inverts the signs that make a sum a difference"),
            "all operands and controls",
            "SMT (bitwuzla), with the leaf as it is",
            _signs,
        ),
        Proof(
            *("bf16-mul", "FloatMul(BF16) is a * b", _PAIRS, _HOST),
            _every_pair(lambda: FloatMul(BF16, BF16), "to_bf16(wide(x) * wide(y))", _AB),
        ),
        Proof(
            *("bf16-max", "BF16MinMax is the maximum", _PAIRS, "the host's comparison"),
            _every_pair(BF16MinMax, "extremum(x, y, 1)", {**_AB, "is_max": "1"}),
        ),
        Proof(
            *("bf16-min", "BF16MinMax is the minimum", _PAIRS, "the host's comparison"),
            _every_pair(BF16MinMax, "extremum(x, y, 0)", {**_AB, "is_max": "0"}),
        ),
        Proof(
            *("product", "FloatMul(BF16, FP32) is a * b in FP32", _PAIRS, "the host's float"),
            _every_pair(lambda: FloatMul(BF16, FP32), "fp32(wide(x) * wide(y))", _AB),
        ),
        Proof(
            *("round", "RoundToBF16 is the nearest BF16 number, ties to even", _ALL_32),
            "distances in the host's double",
            _every_word(RoundToBF16, "to_bf16(as_float(x))"),
        ),
        Proof(
            *("exp", "BF16Exp is exp, correctly rounded", _ALL_16, "mpmath with 120 bits"),
            _unary(BF16Exp, lambda _: definitions.exponentials()),
        ),
        Proof(
            *("reciprocal", "BF16Reciprocal is 1/x, correctly rounded", _ALL_16, "float64"),
            _unary(BF16Reciprocal, definitions.reciprocal),
        ),
        Proof(
            *("sqrt", "BF16Sqrt is the square root, correctly rounded", _ALL_16, "float64"),
            _unary(BF16Sqrt, definitions.square_root),
        ),
        *(
            proof
            for dialect in MX_DIALECTS
            for proof in (
                Proof(
                    *(f"mx-decode-{dialect}", f"MxDecode follows {dialect}", "256 codes x 256"),
                    "exact products in float64, rounded once",
                    _mx_decode(dialect),
                ),
                Proof(
                    *(f"mx-encode-{dialect}", f"MxEncode follows {dialect}", "2^16 words x 255"),
                    "float64" if dialect == "ocp" else "integers",
                    _mx_encode(dialect),
                ),
                Proof(
                    *(f"mx-scale-{dialect}", f"MxBlockScale of 8 follows {dialect}"),
                    "2^16 words in 8 places, random blocks",
                    "frexp in float64",
                    _mx_scale(dialect),
                ),
            )
        ),
        Proof(
            *("fp32-add", "FloatAdd(FP32) is a + b (not exhaustive)"),
            "crossed patterns, --pairs random pairs",
            "the host's float",
            _sampled(lambda: FloatAdd(FP32), "fp32(as_float(x) + as_float(y))", _AB),
        ),
        Proof(
            *("fp32-scale", "FloatMul(FP32, FP32, b_fmt=BF16) is a * b (not exhaustive)"),
            "as fp32-add, b cut to BF16",
            "the host's float",
            _sampled(
                lambda: FloatMul(FP32, FP32, b_fmt=BF16),
                "fp32(as_float(x) * wide(y >> 16))",
                {"a": "x", "b": "y >> 16"},
            ),
        ),
    )
}
