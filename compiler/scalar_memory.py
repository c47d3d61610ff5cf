"""FP_MEM and INT_MEM: named constants, windows of slots, and the initial contents for the host."""

import math
import struct
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from compiler.arena import Arena, Interval
from compiler.errors import CompileError, require
from isa.config import PlenaConfig

_BF16_SIGNIFICAND = 8
_BF16_MIN_EXPONENT = -126

#: Constants that every program finds in FP_MEM, in slot order from 0; lowering.md, "FP_MEM". Slot 0
#: must hold 0.0. The alphas are rounded to BF16: -1.702 becomes -1.703125.
NAMED_CONSTANTS: dict[str, float] = {
    "zero": 0.0,
    "one": 1.0,
    "minus_one": -1.0,
    "minus_infinity": -math.inf,
    "clamp_limit": 7.0,
    "minus_clamp_limit": -7.0,
    "minus_alpha": -1.702,
    "alpha": 1.702,
}

#: The window of VLEN zeros behind true zeroing (`elementwise.zero_rows`).
ZERO_ROW = "zero row"


def bf16_bits(value: float) -> int:
    """The BF16 pattern of `value`, rounded once to nearest even; NaN is 0x7FC0."""
    if math.isnan(value):
        return 0x7FC0
    sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
    if math.isinf(value):
        return sign | 0x7F80
    if value == 0:
        return sign
    _, exponent = math.frexp(value)
    quantum = max(exponent - _BF16_SIGNIFICAND, _BF16_MIN_EXPONENT - _BF16_SIGNIFICAND + 1)
    # Scaling by a power of two is exact, round() is half-even, and the rounded value fits FP32.
    rounded = math.ldexp(round(math.ldexp(abs(value), -quantum)), quantum)
    try:
        bits = int.from_bytes(struct.pack("<f", rounded), "little")
    except OverflowError:
        bits = 0x7F80_0000
    return sign | bits >> 16


class FpMem:
    """FP_MEM of one program: constants by name first, then windows of slots for emitters.

    Emitters ask for a constant by name and get its slot; the host loads `initial()`.
    """

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._arena = Arena(
            "FP_MEM", "slots", config.FP_MEM_WORDS, "lower rows, or raise FP_MEM_WORDS"
        )
        self._constants: dict[str, tuple[int, float]] = {}
        for name, value in NAMED_CONSTANTS.items():
            self.define(name, value)

    def define(self, name: str, value: float) -> int:
        """Reserve a slot for a constant (an epsilon, 1/hidden, an attention scale); its slot.

        The same name with the same value gets the same slot; with another, CompileError.
        """
        if name in self._constants:
            slot, known = self._constants[name]
            require(
                known == value,
                f"FP_MEM constant {name!r} = {value}",
                f"was defined as {known}",
                "use another name",
            )
            return slot
        slot = self._arena.allocate(name, 1, fresh=True).start
        self._constants[name] = (slot, value)
        return slot

    def defines(self, name: str) -> bool:
        """Whether a constant called `name` has a slot."""
        return name in self._constants

    def constant(self, name: str) -> int:
        """The slot of a named constant; CompileError lists the names when it was never defined."""
        if name not in self._constants:
            raise CompileError(
                f"FP_MEM: no constant {name!r}; defined: {', '.join(self._constants)} "
                "(define it first)"
            )
        return self._constants[name][0]

    def window(self, name: str, size: int, *, preloaded: bool = False, spare: int = 0) -> Interval:
        """`size` consecutive slots for an emitter, such as one scalar per row.

        `preloaded`: the host writes them before the run, so nothing used them before. `spare`: that
        many slots behind the last one are held too.
        """
        held = self._arena.allocate(self._arena.unique(name), size + spare, fresh=preloaded)
        return replace(held, size=size)

    def free(self, *windows: Interval) -> None:
        """Give back windows that no later instruction reads."""
        for window in windows:
            self._arena.release(window.name)

    def zero_row(self) -> tuple[int, bool]:
        """The first of VLEN reserved zero slots, and whether this call reserved them.

        The caller of the reserving call fills them on the device; nobody else may write them.
        """
        for interval in self._arena.held:
            if interval.name == ZERO_ROW:
                return interval.start, False
        return self._arena.allocate(ZERO_ROW, self._config.VLEN).start, True

    def initial(self) -> npt.NDArray[np.uint16]:
        """The contents to load before a run: BF16 patterns, FP_MEM_WORDS of them."""
        image = np.zeros(self._config.FP_MEM_WORDS, np.uint16)
        for slot, value in self._constants.values():
            image[slot] = bf16_bits(value)
        return image


class IntMem:
    """INT_MEM of one program: windows of words, each with optional host-loaded contents."""

    def __init__(self, config: PlenaConfig) -> None:
        self._config = config
        self._arena = Arena(
            "INT_MEM", "words", config.INT_MEM_WORDS, "use fewer tokens, or raise INT_MEM_WORDS"
        )
        self._contents: dict[int, npt.NDArray[np.uint32]] = {}

    def window(self, name: str, size: int) -> Interval:
        """`size` consecutive words that the program fills."""
        return self._arena.allocate(self._arena.unique(name), size)

    def free(self, *windows: Interval) -> None:
        """Give back windows that no later instruction reads."""
        for window in windows:
            self._arena.release(window.name)

    @property
    def left(self) -> int:
        """Words that nobody holds."""
        return sum(size for _, size in self._arena.gaps())

    def table(self, name: str, values: npt.NDArray[np.uint32]) -> Interval:
        """A window that the host fills with `values` before the run."""
        interval = self._arena.allocate(self._arena.unique(name), len(values), fresh=True)
        self._contents[interval.start] = values.astype(np.uint32)
        return interval

    def initial(self) -> npt.NDArray[np.uint32]:
        """The contents to load before a run: INT_MEM_WORDS words."""
        image = np.zeros(self._config.INT_MEM_WORDS, np.uint32)
        for start, values in self._contents.items():
            image[start : start + len(values)] = values
        return image
