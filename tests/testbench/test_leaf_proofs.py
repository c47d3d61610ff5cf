"""`python -m testbench.leaf_proofs`: what it proves, and that it can fail."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from rtl.leaves import BF16, FP32, FloatAdd, Leaf, RoundToBF16
from rtl.vector.lanes import AddLanes
from testbench.leaf_proofs import __main__ as command
from testbench.leaf_proofs.definitions import FP32 as FP32_FORMAT
from testbench.leaf_proofs.lanes import signs_hold
from testbench.leaf_proofs.native import Counterexample, NativeLeaf
from testbench.leaf_proofs.operands import crossed
from testbench.leaf_proofs.proofs import PROOFS
from tests.conftest import needs_compiler

pytestmark = needs_compiler

#: These take 2^32 inputs each.
LONG = ("bf16-add", "bf16-sub", "bf16-mul", "bf16-max", "bf16-min", "product", "round")
SOME_PAIRS = ["--pairs", "1000000", "--seed", "3"]


def test_the_table_is_complete():
    assert set(LONG) < PROOFS.keys()
    assert len(PROOFS) == len(LONG) + 3 + 6 + 3


@pytest.mark.parametrize("name", [name for name in PROOFS if name not in LONG])
def test_proofs(name, capsys):
    assert command.main(["--run", name, *SOME_PAIRS]) == 0
    assert capsys.readouterr().out.startswith(f"{name}: ")


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_long_proofs(name, capsys):
    assert command.main(["--run", name]) == 0
    assert "4,294,967,296 inputs" in capsys.readouterr().out


@pytest.mark.slow
def test_fp32_addition_of_a_hundred_million_pairs(capsys):
    assert len(crossed(FP32_FORMAT)[0]) >= 600_000
    assert command.main(["--run", "fp32-add", "--pairs", "100000000", "--seed", "20240229"]) == 0
    assert "100,7" in capsys.readouterr().out


class OneWrong(Leaf):
    """An adder that is wrong for one pair."""

    def __init__(self, *, latency: int = 0) -> None:
        super().__init__({"a": In(16), "b": In(16), "o": Out(16)}, latency=latency)

    def _datapath(self, m: Module) -> None:
        m.submodules.right = right = FloatAdd(BF16).bind(a=self.a, b=self.b)
        m.d.comb += self.o.eq(right.o)
        with m.If((self.a == 0xC01A) & (self.b == 0x7A13)):
            m.d.comb += self.o.eq(0)


class NeverRoundsUp(RoundToBF16):
    """Cuts off."""

    def _datapath(self, m: Module) -> None:
        m.d.comb += self.o.eq(self.i[16:])


def test_one_wrong_pair_is_found():
    with NativeLeaf(OneWrong(), "to_bf16(wide(x) + wide(y))", {"a": "x", "b": "y"}) as leaf:
        with pytest.raises(Counterexample, match="x C01A, y 7A13: got 0, wanted 7A13"):
            leaf.all_pairs(lambda _share: None, first=0xC000)


def test_the_first_wrong_word_is_shown():
    with NativeLeaf(NeverRoundsUp(), "to_bf16(as_float(x))", {"i": "x"}) as leaf:
        with pytest.raises(Counterexample, match="x 8001, y 0: got 0, wanted 1"):
            leaf.all_words(lambda _share: None)


def test_random_pairs_follow_from_the_seed_and_meet_close_exponents():
    # The wanted value is wrong where exponents are equal and signs are not.
    wanted = "(x ^ y) >> 23 == 0x100 ? 0xDEAD : fp32(as_float(x) + as_float(y))"
    found = []
    with NativeLeaf(FloatAdd(FP32), wanted, {"a": "x", "b": "y"}) as leaf:
        for seed in (1, 1, 2):
            with pytest.raises(Counterexample, match="wanted DEAD") as caught:
                leaf.random_pairs(2048, seed, lambda _share: None)
            found.append(str(caught.value))
    assert found[0] == found[1] != found[2]


class Swapped(AddLanes):
    """Inverts the other operand."""

    def elaborate(self, platform: Any) -> Module:
        self.negate_a, self.negate_b = self.negate_b, self.negate_a
        return super().elaborate(platform)


def test_a_wrong_sign_in_a_lane_is_found():
    assert not signs_hold(Swapped(1))


def test_evaluate_broadcasts_and_keeps_the_shape():
    with NativeLeaf(FloatAdd(BF16)) as leaf:
        got = leaf.evaluate(a=np.full((3, 1), 0x3F80), b=np.array([[0x3F80, 0x4000]]))
    assert got.tolist() == [[0x4000, 0x4040]] * 3


def test_a_broken_claim_ends_with_exit_code_1(capsys, monkeypatch):
    def broken(_options):
        raise Counterexample("a 1, b 2: got 3, wanted 4")

    monkeypatch.setitem(PROOFS, "sqrt", PROOFS["sqrt"].__class__("sqrt", "", "", "", broken))
    assert command.main(["--run", "sqrt", "--run", "reciprocal"]) == 1
    out = capsys.readouterr().out
    assert "FAIL: sqrt: a 1, b 2: got 3, wanted 4" in out
    assert "\nreciprocal: " in out


def test_requests_that_cannot_be_run(capsys):
    assert command.main(["--run", "cbrt"]) == 2
    assert "'cbrt': no such proof, see --list" in capsys.readouterr().err
    assert command.main(["--run", "fp32-add", "--pairs", "0"]) == 2
    assert "--pairs must be at least 1" in capsys.readouterr().err
    assert command.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in PROOFS)
