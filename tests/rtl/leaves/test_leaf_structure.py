"""What leaves share: latency, binding, keys, formats, conversion to Verilog."""

import warnings

import pytest
from amaranth.back import verilog
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Flow
from amaranth.sim import Simulator

from rtl.leaves import (
    BF16,
    E4M3,
    E4M3_IEEE,
    FP32,
    BF16Exp,
    BF16MinMax,
    BF16Reciprocal,
    BF16Sqrt,
    FloatAdd,
    FloatFormat,
    FloatMul,
    MxBlockScale,
    MxDecode,
    MxEncode,
    RoundToBF16,
)

LEAVES = {
    "add_bf16": lambda **k: FloatAdd(BF16, **k),
    "add_fp32": lambda **k: FloatAdd(FP32, **k),
    "mul_bf16": lambda **k: FloatMul(BF16, BF16, **k),
    "mul_fp32": lambda **k: FloatMul(BF16, FP32, **k),
    "mul_mixed": lambda **k: FloatMul(FP32, FP32, b_fmt=BF16, **k),
    "round": RoundToBF16,
    "minmax": BF16MinMax,
    "exp": BF16Exp,
    "reciprocal": BF16Reciprocal,
    "sqrt": BF16Sqrt,
    "mx_decode": MxDecode,
    "mx_scale": MxBlockScale,
    "mx_encode": MxEncode,
    "mx_decode_plena": lambda **k: MxDecode(dialect="plena", **k),
    "mx_scale_plena": lambda **k: MxBlockScale(dialect="plena", **k),
    "mx_encode_plena": lambda **k: MxEncode(dialect="plena", **k),
}


UNUSED = pytest.mark.usefixtures("leaves_unused")


@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.parametrize("latency", [0, 2])
def test_converts_to_verilog(name, latency):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = verilog.convert(LEAVES[name](latency=latency), name=name, emit_src=False)
    assert f"module {name}(" in text
    assert ("posedge clk" in text) == (latency > 0)


@pytest.mark.parametrize("name", LEAVES)
def test_is_combinational_without_latency(name):
    leaf = LEAVES[name]()
    assert leaf.latency == 0
    assert "clk" not in verilog.convert(leaf, emit_src=False)


@pytest.mark.parametrize("latency", [0, 1, 2, 3])
def test_latency(latency):
    leaf = FloatAdd(FP32, latency=latency)
    assert leaf.latency == latency
    operands = [0x3F800000, 0x40000000, 0x40800000, 0x41000000, 0x41800000, 0x42000000]
    results: list[int] = []

    async def testbench(ctx):
        for word in operands:
            ctx.set(leaf.a, word)
            ctx.set(leaf.b, word)
            results.append(ctx.get(leaf.o))
            await ctx.tick()
        results.append(ctx.get(leaf.o))

    m = Module()
    m.submodules.leaf = leaf
    m.d.sync += Signal(name="keeps_the_clock_alive").eq(1)
    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    simulator.add_testbench(testbench)
    simulator.run()
    doubled = [word + 0x00800000 for word in operands]
    # One result per cycle, `latency` cycles after its operands; zeros from reset before.
    wanted = ([0] * latency + doubled)[: len(operands)]
    assert [f"{r:08X}" for r in results[: len(operands)]] == [f"{w:08X}" for w in wanted]


@UNUSED
@pytest.mark.parametrize("name", LEAVES)
def test_latency_must_not_be_negative(name):
    with pytest.raises(ValueError, match="latency must not be negative, not -1"):
        LEAVES[name](latency=-1)


@pytest.mark.parametrize("latency", [0, 1])
def test_bound_inputs_are_shared(latency):
    row = Signal(32)
    first = FloatAdd(BF16).bind(a=row[:16], b=row[16:])
    second = RoundToBF16(latency=latency)
    third = FloatAdd(BF16, latency=latency).bind(a=first.o, b=first.o)
    m = Module()
    m.submodules.first, m.submodules.second, m.submodules.third = first, second, third
    m.d.sync += Signal(name="keeps_the_clock_alive").eq(1)

    async def testbench(ctx):
        ctx.set(row, 0x40003F80)  # 2 and 1
        assert ctx.get(first.o) == 0x4040
        for _ in range(latency):
            await ctx.tick()
        assert ctx.get(third.o) == 0x40C0

    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    simulator.add_testbench(testbench)
    simulator.run()
    assert third.a is first.o


@UNUSED
def test_binding_is_checked():
    with pytest.raises(ValueError, match=r"FloatAdd has no input 'o', only \['a', 'b'\]"):
        FloatAdd(BF16).bind(o=Signal(16))
    with pytest.raises(ValueError, match=r"FloatAdd\.a is 16 bits wide, the bound value 32"):
        FloatAdd(BF16).bind(a=Signal(32))


@UNUSED
def test_keys_tell_equal_leaves():
    keys = [make(latency=latency).key for make in LEAVES.values() for latency in (0, 1)]
    assert len(set(keys)) == len(keys)
    assert keys == [make(latency=latency).key for make in LEAVES.values() for latency in (0, 1)]
    assert FloatMul().key == FloatMul(BF16, FP32, b_fmt=BF16).key


@UNUSED
def test_ports_are_narrow():
    # A later engine evaluates leaves on 32-bit words.
    for make in LEAVES.values():
        for member in make().signature.members.values():
            assert member.flow in (Flow.In, Flow.Out)
            assert member.shape <= 32


@pytest.mark.parametrize(
    ("fmt", "width", "bias", "nan", "largest"),
    [
        (BF16, 16, 127, 0x7FC0, 0x7F7F),
        (FP32, 32, 127, 0x7FC00000, 0x7F7FFFFF),
        (E4M3, 8, 7, 0x7F, 0x7E),
        (E4M3_IEEE, 8, 7, 0x7C, 0x77),
    ],
)
def test_format_constants(fmt, width, bias, nan, largest):
    assert (fmt.width, fmt.bias, fmt.nan, fmt.max_finite) == (width, bias, nan, largest)
    assert fmt.emin == 1 - bias
    assert fmt.precision == fmt.man + 1


def test_formats_are_checked():
    with pytest.raises(ValueError, match="E4M3 has no infinity"):
        _ = E4M3.inf
    with pytest.raises(ValueError, match="X: exp must be at least 2, not 1"):
        FloatFormat("X", exp=1, man=3)
    with pytest.raises(ValueError, match="X: man must be at least 1, not 0"):
        FloatFormat("X", exp=4, man=0)
