"""From MX blocks to BF16: E4M3 elements under one E8M0 scale, in either dialect.

Sources: OCP Microscaling Formats (MX) 1.0, sections 5.2, 5.3.1 and 5.4.1; the rules of the PLENA
emulator for dialect `plena` (`MxDecode`). A scale byte b means 2^(b - 127).
"""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .format import BF16, E4M3, E8M0_BITS, E8M0_NAN
from .leading import leading_zero_cases
from .leaf import Leaf
from .mx_dialect import DEFAULT_DIALECT, check_dialect

__all__ = ["MxDecode"]


class MxDecode(Leaf):
    """``o`` = element ``code`` times its block's ``scale``, rounded once to BF16, subnormals kept.

    A zero keeps its sign; a number beyond the range of BF16 gives infinity. The dialects differ in:

    ================ ============================ ==============================================
    \\                ocp                          plena
    ================ ============================ ==============================================
    exponent field 0 m/8 * 2^-6                   m/8 * 2^-7
    exponent field   m/8 and numbers up to 448;   infinity (m = 0) or NaN
    15               0x7F and 0xFF are NaN
    scale 0x00       2^-127                       0
    scale 0xFF       NaN                          infinity
    ================ ============================ ==============================================

    Zero times infinity is NaN, and every NaN is the canonical one.

    Members
    -------
    code : In(8), E4M3
    scale : In(8), E8M0
    o : Out(16)
    """

    code: Value
    scale: Value
    o: Signal

    def __init__(self, *, dialect: str = DEFAULT_DIALECT, latency: int = 0) -> None:
        self._dialect = check_dialect(type(self).__name__, dialect)
        ports = {"code": In(E4M3.width), "scale": In(E8M0_BITS), "o": Out(BF16.width)}
        super().__init__(ports, latency=latency, dialect=dialect)

    def _datapath(self, m: Module) -> None:
        code, man = self.code, E4M3.man
        # The exponent field of the result, plus `least` so that it is never negative: the smallest
        # element is 2^-9 in the one dialect, and in the other 2^-10 under at least 2^-126. A zero
        # has the least exponent.
        least = E4M3.bias - 1 + man
        deepest = least + 1  # the furthest shift to the right
        unpacked = Signal(
            data.StructLayout({"exp": E8M0_BITS + 1, "sig": man + 1, "sign": 1, "inf": 1, "nan": 1})
        )
        ocp = self._dialect == "ocp"

        m.submodules.unpack = unpack = Module()
        with unpack.If(E4M3.exp_of(code) != 0):
            unpack.d.comb += [
                unpacked.sig.eq(E4M3.significand_of(code)),
                unpacked.exp.eq(self.scale + (E4M3.exp_of(code) + (man - 1))),
            ]
        with unpack.Else():
            for zeros in leading_zero_cases(unpack, E4M3.man_of(code)):
                unpack.d.comb += [
                    unpacked.sig.eq(code[:man] << (zeros + 1)),
                    unpacked.exp.eq(self.scale + (man - 1 - zeros) - (0 if ocp else 1)),
                ]
        unpack.d.comb += unpacked.sign.eq(E4M3.sign_of(code))
        magnitude = E4M3.magnitude_of(code)
        if ocp:
            with unpack.If((magnitude == E4M3.nan) | (self.scale == E8M0_NAN)):
                unpack.d.comb += unpacked.nan.eq(1)
        else:
            top, zero_scale = E4M3.exp_of(code).all(), self.scale == 0
            with unpack.If((top & (E4M3.man_of(code) != 0)) | (top & zero_scale)):
                unpack.d.comb += unpacked.nan.eq(1)
            with unpack.If(self.scale.all() & (magnitude == 0)):
                unpack.d.comb += unpacked.nan.eq(1)
            with unpack.If(top | self.scale.all()):
                unpack.d.comb += unpacked.inf.eq(1)
            with unpack.If(zero_scale):
                unpack.d.comb += [unpacked.sig.eq(0), unpacked.exp.eq(0)]

        m.submodules.pack = pack = Module()
        exp, sig, sign = unpacked.exp, unpacked.sig, unpacked.sign
        right = (deepest - exp)[: bits_for(deepest)]
        frame = Cat(Const(0, deepest + BF16.man - man), sig) >> right
        up = (frame[:deepest] + frame[deepest]) > (1 << (deepest - 1))
        with pack.If(unpacked.nan):
            pack.d.comb += self.o.eq(BF16.nan)
        with pack.Elif((exp >= BF16.exp_max + least) | unpacked.inf):
            pack.d.comb += self.o.eq(BF16.signed(BF16.inf, sign))
        with pack.Elif(exp <= least):
            word = (frame[deepest:] + up)[: BF16.precision]  # a carry makes it normal
            pack.d.comb += self.o.eq(Cat(word, Const(0, BF16.exp - 1), sign))
        with pack.Else():
            field = (exp - least)[: BF16.exp]
            pack.d.comb += self.o.eq(Cat(Const(0, BF16.man - man), sig[:man], field, sign))
