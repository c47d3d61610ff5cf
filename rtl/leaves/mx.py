"""Conversion between BF16 and MX blocks: E4M3 elements under one E8M0 scale.

Source: OCP Microscaling Formats (MX) 1.0, sections 5.2, 5.3.1, 5.4.1 and 6.3. A scale byte b means
2^(b - 127).
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .format import BF16, E4M3, E8M0_BITS, E8M0_NAN
from .leading import leading_zero_cases
from .leaf import Leaf

__all__ = ["MxBlockScale", "MxDecode", "MxEncode"]


class MxDecode(Leaf):
    """``o`` = element ``code`` times its block's ``scale``, rounded once to BF16, subnormals kept.

    An element or a scale that is NaN gives the canonical NaN; a zero keeps its sign; a number
    beyond the range of BF16 gives infinity.

    Members
    -------
    code : In(8), E4M3
    scale : In(8), E8M0
    o : Out(16)
    """

    code: Value
    scale: Value
    o: Signal

    def __init__(self, *, latency: int = 0) -> None:
        ports = {"code": In(E4M3.width), "scale": In(E8M0_BITS), "o": Out(BF16.width)}
        super().__init__(ports, latency=latency)

    def _datapath(self, m: Module) -> None:
        code, man = self.code, E4M3.man
        # The exponent field of the result, plus `least` so that it is never negative: the smallest
        # element is 2^-9. A zero has the least exponent.
        least = E4M3.bias - 1 + man
        deepest = least + 1  # the furthest shift to the right
        unpacked = Signal(
            data.StructLayout(
                {
                    "exp": E8M0_BITS + 1,
                    "sig": man + 1,
                    "sign": 1,
                    "nan": 1,
                }
            )
        )

        m.submodules.unpack = unpack = Module()
        with unpack.Switch(E4M3.magnitude_of(code)):
            with unpack.Case(E4M3.nan):
                unpack.d.comb += unpacked.nan.eq(1)
            with unpack.Case(0):
                pass
            for zeros in range(man):
                pattern = "0" * (E4M3.exp + zeros) + "1" + "-" * (man - 1 - zeros)
                with unpack.Case(pattern):
                    unpack.d.comb += [
                        unpacked.sig.eq(code[:man] << (zeros + 1)),
                        unpacked.exp.eq(self.scale + (man - 1 - zeros)),
                    ]
            with unpack.Default():
                unpack.d.comb += [
                    unpacked.sig.eq(E4M3.significand_of(code)),
                    unpacked.exp.eq(self.scale + (E4M3.exp_of(code) + (man - 1))),
                ]
        unpack.d.comb += unpacked.sign.eq(E4M3.sign_of(code))
        with unpack.If(self.scale == E8M0_NAN):
            unpack.d.comb += unpacked.nan.eq(1)

        m.submodules.pack = pack = Module()
        exp, sig, sign = unpacked.exp, unpacked.sig, unpacked.sign
        right = (deepest - exp)[: bits_for(deepest)]
        frame = Cat(Const(0, deepest + BF16.man - man), sig) >> right
        up = (frame[:deepest] + frame[deepest]) > (1 << (deepest - 1))
        with pack.If(unpacked.nan):
            pack.d.comb += self.o.eq(BF16.nan)
        with pack.Elif(exp <= least):
            word = (frame[deepest:] + up)[: BF16.precision]  # a carry makes it normal
            pack.d.comb += self.o.eq(Cat(word, Const(0, BF16.exp - 1), sign))
        with pack.Elif(exp >= BF16.exp_max + least):
            pack.d.comb += self.o.eq(BF16.signed(BF16.inf, sign))
        with pack.Else():
            field = (exp - least)[: BF16.exp]
            pack.d.comb += self.o.eq(Cat(Const(0, BF16.man - man), sig[:man], field, sign))


class MxBlockScale(Leaf):
    """``o`` = the E8M0 scale byte of a block of BF16 values.

    That is floor(log2(max |x|)) - 8, clamped to [-127, 127], plus 127. An infinity counts as the
    largest finite number; a NaN does not count. A block of zeros, or of NaNs, has byte 0.

    Members
    -------
    i0 .. i{block-1} : In(16)
    o : Out(8)
    """

    o: Signal

    def __init__(self, *, block: int = 8, latency: int = 0) -> None:
        if block < 1:
            raise ValueError(f"MxBlockScale: block must be at least 1, not {block}")
        self._block = block
        ports = {f"i{k}": In(BF16.width) for k in range(block)}
        super().__init__({**ports, "o": Out(E8M0_BITS)}, latency=latency, block=block)

    @property
    def inputs(self) -> list[Value]:
        """The elements in order."""
        return [getattr(self, f"i{k}") for k in range(self._block)]

    def _datapath(self, m: Module) -> None:
        # floor(log2) of a normal number is its exponent field; that of a subnormal one is clamped.
        level = []
        m.submodules.exponents = exponents = Module()
        for k, value in enumerate(self.inputs):
            exp = Signal(BF16.exp, name=f"exp_{k}")
            exponents.d.comb += exp.eq(BF16.exp_of(value))
            with exponents.If(BF16.exp_of(value) == BF16.exp_max):
                exponents.d.comb += exp.eq(Mux(BF16.man_of(value) == 0, BF16.exp_max - 1, 0))
            level.append(exp)
        depth = 0
        while len(level) > 1:
            m.submodules[f"max_{depth}"] = step = Module()
            larger = []
            for k in range(0, len(level) - 1, 2):
                a, b = level[k : k + 2]
                larger.append(exp := Signal(BF16.exp, name=f"max_{depth}_{k // 2}"))
                step.d.comb += exp.eq(Mux(b > a, b, a))
            level = larger + level[len(larger) * 2 :]
            depth += 1
        emax = E4M3.exp_max - E4M3.bias  # 448 = 1.75 * 2^8
        with m.If(level[0] > emax):
            m.d.comb += self.o.eq(level[0] - emax)


class MxEncode(Leaf):
    """``code`` = ``i`` / 2^(``scale`` - 127) in E4M3, to nearest even, saturating at +-448.

    Infinities saturate; a NaN gives 0x7F with the sign kept, a zero keeps its sign. ``scale`` comes
    from MxBlockScale, so that 0xFF, which is no scale, is not looked for.

    Members
    -------
    i : In(16)
    scale : In(8), E8M0
    code : Out(8), E4M3
    """

    i: Value
    scale: Value
    code: Signal

    def __init__(self, *, latency: int = 0) -> None:
        ports = {"i": In(BF16.width), "scale": In(E8M0_BITS), "code": Out(E4M3.width)}
        super().__init__(ports, latency=latency)

    def _datapath(self, m: Module) -> None:
        fmt, bits = E4M3, BF16.precision
        deepest = bits + 1  # a shift that leaves only the sticky bit
        # The E4M3 exponent field that belongs to the top of the significand, plus `offset`.
        offset = E8M0_NAN - fmt.bias
        exp = (BF16.biased_exp_of(self.i) + E8M0_NAN - self.scale)[: BF16.exp + 1]
        sig = BF16.significand_of(self.i)
        scaled = Signal(data.StructLayout({"exp": BF16.exp + 1, "sig": bits}))
        m.submodules.rescale = rescale = Module()
        rescale.d.comb += [scaled.exp.eq(exp), scaled.sig.eq(sig)]

        # Normalise: to the left by the leading zeros of a subnormal number, but not below the least
        # exponent; or to the right, collecting the lost bits.
        normal = Signal(data.StructLayout({"exp": BF16.exp + 1, "sig": bits + 1}))
        m.submodules.normalise = normalise = Module()
        exp, frame = scaled.exp, Cat(Const(0, 1), scaled.sig)
        stop = Mux(exp <= offset + bits, (1 << (bits - 1)) >> (exp - offset - 1)[:3], 0)[:bits]
        with normalise.If(exp <= offset):
            deficit = (offset + 1 - exp)[: BF16.exp + 1]
            right = Mux(deficit < deepest, deficit, deepest)[: bits_for(deepest)]
            kept = frame >> right
            lost = (kept << right)[: bits + 1] != frame
            normalise.d.comb += [normal.sig.eq(kept | lost), normal.exp.eq(0)]
        with normalise.Else():
            for zeros in leading_zero_cases(normalise, scaled.sig | stop):
                left = (frame << zeros)[: bits + 1]
                normalise.d.comb += [
                    normal.sig.eq(left),
                    normal.exp.eq(Mux(left[-1], exp - (offset + zeros), 0)),
                ]

        m.submodules.round = rounding = Module()
        sig, exp = normal.sig, normal.exp
        low = bits + 1 - fmt.precision
        up = (sig[:low] + sig[low]) > (1 << (low - 1))
        word = Cat(sig[low:-1], exp) + up
        sign = BF16.sign_of(self.i)
        size = BF16.magnitude_of(self.i)
        with rounding.If(size > BF16.inf):
            rounding.d.comb += self.code.eq(fmt.signed(fmt.nan, sign))
        with rounding.Elif((word > fmt.max_finite) | (size == BF16.inf)):
            rounding.d.comb += self.code.eq(fmt.signed(fmt.max_finite, sign))
        with rounding.Else():
            rounding.d.comb += self.code.eq(Cat(word[: fmt.width - 1], sign))
