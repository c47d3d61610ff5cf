"""That the vector unit's adders get their operands with the sign that a sum or a difference needs:
an SMT proof on the netlist of one lane, which with the proof of the leaf makes that of V_SUB."""

from typing import Any

from amaranth.hdl import Assert, Cat, Elaboratable, Module, Mux, Value

from rtl.leaves import BF16, FloatAdd
from rtl.vector.lanes import AddLanes

__all__ = ["LANE_INPUT_BITS", "SignProof", "signs_hold"]

#: Two operands, a scalar, and four controls: all values are looked at.
LANE_INPUT_BITS = 3 * BF16.width + 4
#: Cycle 0 loads the operands, cycle 1 shows the result.
_CYCLES = 2


class SignProof(Elaboratable):
    """One lane beside a leaf whose operands are written out: the same word in every cycle."""

    def __init__(self, lanes: AddLanes | None = None) -> None:
        self.machine = self
        self.lanes = AddLanes(1) if lanes is None else lanes
        self.shown: dict[str, Value] = {"o": self.lanes.o}

    def free_signals(self) -> dict[str, Any]:
        """The inputs of the lane."""
        names = ("load", "a", "b", "scalar", "use_scalar", "negate_a", "negate_b")
        return {name: getattr(self.lanes, name) for name in names}

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.lanes = lanes = self.lanes
        m.submodules.right = right = FloatAdd(BF16)

        def signed(word: Value, negate: Value) -> Value:
            return Cat(word[:-1], Mux(negate, ~word[-1], word[-1]))

        second = Mux(lanes.use_scalar, lanes.scalar, lanes.b)
        with m.If(lanes.load):
            m.d.sync += [
                right.a.eq(signed(lanes.a, lanes.negate_a)),
                right.b.eq(signed(second, lanes.negate_b)),
            ]
        m.d.sync += Assert(lanes.o == right.o, "the lane adds the operands with their signs")
        return m


def signs_hold(lanes: AddLanes | None = None) -> bool:
    """Whether it holds for all operands and controls in the cycle after a load.

    Raises FormalToolsMissing without the extra `formal`.
    """
    from testbench.formal.bmc import Checker

    return not Checker(SignProof(lanes), {}).bounded(_CYCLES).broken
