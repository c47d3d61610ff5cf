"""From BF16 to MX blocks: E4M3 elements under one E8M0 scale, in either dialect.

Sources: OCP Microscaling Formats (MX) 1.0, section 6.3; the rules of the PLENA emulator for dialect
`plena` (`MxBlockScale`, `MxEncode`). A scale byte b means 2^(b - 127).
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .format import BF16, E4M3, E4M3_IEEE, E8M0_BITS, E8M0_NAN
from .leading import leading_zero_cases
from .leaf import Leaf
from .mx_dialect import DEFAULT_DIALECT, check_dialect

__all__ = ["MxBlockScale", "MxEncode"]


class MxBlockScale(Leaf):
    """``o`` = the E8M0 scale byte of a block of BF16 values.

    That is floor(log2(max |x|)) - 8, clamped to [-127, 127], plus 127; dialect `plena` does not
    subtract 8. An infinity counts as the largest finite number; a NaN does not count. A block of
    zeros, or of NaNs, has byte 0.

    Members
    -------
    i0 .. i{block-1} : In(16)
    o : Out(8)
    """

    o: Signal

    def __init__(self, *, block: int = 8, dialect: str = DEFAULT_DIALECT, latency: int = 0) -> None:
        if block < 1:
            raise ValueError(f"MxBlockScale: block must be at least 1, not {block}")
        self._dialect = check_dialect(type(self).__name__, dialect)
        self._block = block
        ports = {f"i{k}": In(BF16.width) for k in range(block)}
        super().__init__(
            {**ports, "o": Out(E8M0_BITS)}, latency=latency, block=block, dialect=dialect
        )

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
        if self._dialect == "plena":
            m.d.comb += self.o.eq(level[0])
            return
        emax = E4M3.exp_max - E4M3.bias  # 448 = 1.75 * 2^8
        with m.If(level[0] > emax):
            m.d.comb += self.o.eq(level[0] - emax)


class MxEncode(Leaf):
    """``code`` = ``i`` / 2^(``scale`` - 127) in E4M3, saturating; a NaN gives 0x7F, its sign kept.

    Dialect `ocp`: to nearest even, at most +-448, infinities too; a zero keeps its sign.

    Dialect `plena`: the exponent is that of the quotient, at least -7 and at most 7. At -7, which
    stands for all quotients below 2^-6, the significand is quotient * 2^7, else the part behind the
    hidden one. It is cut off to two bits beyond the three that are kept, then rounded to nearest
    even, and 7 if that carries: 1.9921875 is 0x3F, and all from 2^-7 to 2^-6 is 0x07. Quotients
    from 2^8 on, and infinities, are +-240. A zero is 0x00, whatever its sign.

    ``scale`` comes from MxBlockScale, so that 0xFF is not looked for.

    Members
    -------
    i : In(16)
    scale : In(8), E8M0
    code : Out(8), E4M3
    """

    i: Value
    scale: Value
    code: Signal

    def __init__(self, *, dialect: str = DEFAULT_DIALECT, latency: int = 0) -> None:
        self._dialect = check_dialect(type(self).__name__, dialect)
        ports = {"i": In(BF16.width), "scale": In(E8M0_BITS), "code": Out(E4M3.width)}
        super().__init__(ports, latency=latency, dialect=dialect)

    def _datapath(self, m: Module) -> None:
        if self._dialect == "ocp":
            self._ocp(m)
        else:
            self._plena(m)

    def _ocp(self, m: Module) -> None:
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

    def _plena(self, m: Module) -> None:
        fmt, bits = E4M3_IEEE, BF16.precision
        # The element's exponent field if the significand had no leading zeros, plus `offset`.
        offset = E8M0_NAN - fmt.bias
        exp = (BF16.biased_exp_of(self.i) + E8M0_NAN - self.scale)[: BF16.exp + 1]
        sig = BF16.significand_of(self.i)
        scaled = Signal(data.StructLayout({"exp": BF16.exp + 1, "sig": bits}))
        m.submodules.rescale = rescale = Module()
        rescale.d.comb += [scaled.exp.eq(exp), scaled.sig.eq(sig)]

        # Normalise to a hidden bit and five bits behind it, or, in the least binade, to units of
        # 2^-12: to the left by the leading zeros of a subnormal number while the exponent lasts, or
        # to the right. The bits that fall off do not matter: the rule cuts them off.
        kept = fmt.man + 2
        normal = Signal(data.StructLayout({"exp": BF16.exp + 1, "sig": kept + 1}))
        m.submodules.normalise = normalise = Module()
        exp, sig = scaled.exp, scaled.sig
        stop = Mux(exp <= offset + bits, (1 << (bits - 1)) >> (exp - offset - 1)[:3], 0)[:bits]
        with normalise.If(exp <= offset):
            deficit = (offset - exp)[: BF16.exp + 1]
            right = Mux(deficit < bits, deficit, bits)[: bits_for(bits)]
            normalise.d.comb += normal.sig.eq((sig >> right)[bits - kept - 1 :])
        with normalise.Else():
            for zeros in leading_zero_cases(normalise, sig | stop):
                left = (sig << zeros)[:bits]
                with normalise.If(left[-1]):
                    normalise.d.comb += [
                        normal.sig.eq(left[bits - kept - 1 :]),
                        normal.exp.eq(exp - (offset + zeros)),
                    ]
                with normalise.Else():  # the least binade weighs half of the next
                    normalise.d.comb += normal.sig.eq(left[bits - kept - 2 : -1])

        m.submodules.round = rounding = Module()
        sig, exp = normal.sig, normal.exp
        half_up = (sig[:2] + sig[2]) > 2
        carries = (exp == 0) & sig[-1]  # a significand of 1 and more in the least binade
        man = Mux(carries | sig[2:-1].all(), (1 << fmt.man) - 1, sig[2:-1] + half_up)[: fmt.man]
        sign = BF16.sign_of(self.i)
        size = BF16.magnitude_of(self.i)
        with rounding.If(size > BF16.inf):
            rounding.d.comb += self.code.eq(E4M3.signed(E4M3.nan, sign))
        with rounding.Elif((exp >= fmt.exp_max) | (size == BF16.inf)):
            rounding.d.comb += self.code.eq(fmt.signed(fmt.max_finite, sign))
        with rounding.Else():
            field = exp[: fmt.exp]
            rounding.d.comb += self.code.eq(Cat(man, field, sign & (size != 0)))
