"""The compiled engine on small modules, feature by feature, in lock step with Amaranth's
simulator."""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import (
    Array,
    Cat,
    ClockDomain,
    Const,
    Instance,
    Module,
    Mux,
    Print,
    Signal,
    signed,
    unsigned,
)
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from sim.compiled.build import build_model
from sim.compiled.lower import UnsupportedError
from sim.compiled.toolchain import find_compiler

# Continuous integration must have a compiler: there the tests fail instead of passing by absence.
pytestmark = pytest.mark.skipif(
    find_compiler() is None and "CI" not in os.environ, reason="there is no C compiler"
)

CYCLES = 60


class Design:
    """A module with inputs that are driven at random and outputs that are compared in every
    cycle."""

    def __init__(self) -> None:
        self.m = Module()
        self.inputs: list[Signal] = []
        self.outputs: list[Signal] = []

    def input(self, width: Any, name: str) -> Signal:
        self.inputs.append(signal := Signal(width, name=name))
        return signal

    def output(self, value: Any, name: str, domain: str = "comb") -> Signal:
        """A signal as wide as the value, that follows it."""
        self.outputs.append(signal := Signal(value.shape(), name=name))
        self.m.d[domain] += signal.eq(value)
        return signal

    def watch(self, *signals: Any) -> None:
        self.outputs += signals


def pattern(signal: Signal, rng: random.Random) -> int:
    """A random bit pattern, often a special one."""
    width = len(signal)
    ones = (1 << width) - 1
    return rng.choice(
        (
            0,
            ones,
            1,
            1 << (width - 1),
            rng.getrandbits(width),
            rng.getrandbits(width),
            rng.getrandbits(width) & 7,
        )
    )


def unsigned_bits(signal: Signal, value: int) -> int:
    return value & ((1 << len(signal)) - 1)


def lock_step(build: Callable[[Design], None], folder: Any, seed: int = 1) -> None:
    """Runs both on the same inputs and compares all outputs in every cycle.

    One bus drives all inputs, since Amaranth's simulator settles after each signal that is set.
    """
    reference, compiled = Design(), Design()
    buses = []
    for design in (reference, compiled):
        build(design)
        bus = Signal(sum(len(s) for s in design.inputs))
        at = 0
        for number, signal in enumerate(design.inputs):
            # Every other one through a register, so that not all logic has the same inputs.
            domain = "sync" if number % 2 else "comb"
            design.m.d[domain] += signal.eq(bus[at : at + len(signal)])
            at += len(signal)
        buses.append(bus)
    model, (bus, *places), _, _ = build_model(compiled.m, [buses[1], *compiled.outputs], folder)
    rng = random.Random(seed)

    async def bench(ctx: Any) -> None:
        for cycle in range(CYCLES):
            value = at = 0
            for signal in reference.inputs:
                value |= pattern(signal, rng) << at
                at += len(signal)
            ctx.set(buses[0], value)
            model.set(bus, value)
            for signal, place in zip(reference.outputs, places, strict=True):
                want = unsigned_bits(signal, ctx.get(signal))
                assert model.get(place) == want, f"cycle {cycle}: {signal.name}, bus {value:#x}"
            await ctx.tick()
            model.step()

    simulator = Simulator(reference.m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


FEATURES: dict[str, Callable[[Design], None]] = {}


def feature(build: Callable[[Design], None]) -> Callable[[Design], None]:
    FEATURES[build.__name__] = build
    return build


def keep_clocked(d: Design) -> None:
    """A register, so that there is a clock."""
    d.output(Cat(d.inputs), "clocked", "sync")


def arithmetic_of(width: int) -> Callable[[Design], None]:
    def build(d: Design) -> None:
        for sign_a in (unsigned, signed):
            for sign_b in (unsigned, signed):
                tag = f"{sign_a.__name__[0]}{sign_b.__name__[0]}"
                a, b = (
                    d.input(sign_a(width), f"a{tag}"),
                    d.input(sign_b(max(1, width - 3)), f"b{tag}"),
                )
                for op, value in {
                    "add": a + b,
                    "sub": a - b,
                    "mul": a * b,
                    "and": a & b,
                    "or": a | b,
                    "xor": a ^ b,
                    "neg": -a,
                    "not": ~a,
                    "lt": a < b,
                    "le": a <= b,
                    "gt": a > b,
                    "ge": a >= b,
                    "eq": a == b,
                    "ne": a != b,
                    "mux": Mux(a < b, a, b),
                    "any": a.any(),
                    "all": a.all(),
                    "parity": a.xor(),
                    "bool": a.bool(),
                    "abs": abs(a),
                    "low": (a + b)[: width // 2 + 1],
                    "high": (a - b)[width // 2 :],
                    "mixed": (a ^ b)[width // 3 : width // 3 + 1],
                    "chosen": Mux(b[0], a, Cat(b, a))[: width // 2 + 1],
                }.items():
                    d.output(value, f"{op}_{tag}")
        keep_clocked(d)

    return build


for _width in (1, 2, 7, 31, 32, 33, 63, 64, 65, 130):
    FEATURES[f"arithmetic_on_{_width}_bits"] = arithmetic_of(_width)


@feature
def division_rounds_down_and_by_zero_is_zero(d: Design) -> None:
    for width in (4, 31, 33):
        for sign_a in (unsigned, signed):
            for sign_b in (unsigned, signed):
                tag = f"{width}{sign_a.__name__[0]}{sign_b.__name__[0]}"
                a, b = d.input(sign_a(width), f"a{tag}"), d.input(sign_b(width // 2 + 1), f"b{tag}")
                d.output(a // b, f"div_{tag}")
                d.output(a % b, f"mod_{tag}")
    keep_clocked(d)


@feature
def shifts_by_values_and_constants(d: Design) -> None:
    for width in (5, 32, 33, 64, 70, 200):
        for kind in (unsigned, signed):
            tag = f"{width}{kind.__name__[0]}"
            a, by, far = (
                d.input(kind(width), f"a{tag}"),
                d.input(4, f"by{tag}"),
                d.input(9, f"far{tag}"),
            )
            d.output(a << by, f"left_{tag}")
            d.output((a << by)[:width], f"kept_{tag}")
            d.output((a << far)[3:width], f"middle_{tag}")
            d.output(a >> by, f"right_{tag}")
            d.output(a >> far, f"gone_{tag}")
            d.output((a >> far)[1:4], f"window_{tag}")
            d.output(a.shift_left(3), f"constant_left_{tag}")
            d.output(a.shift_right(2), f"constant_right_{tag}")
            d.output(Cat(a, a) >> Cat(Const(0, 3), by), f"rotated_{tag}")
            d.output(a.rotate_left(3), f"rotl_{tag}")
    keep_clocked(d)


@feature
def parts_at_variable_offsets(d: Design) -> None:
    for width in (8, 33, 64, 100, 256):
        for kind in (unsigned, signed):
            tag = f"{width}{kind.__name__[0]}"
            a, at = d.input(kind(width), f"a{tag}"), d.input(5, f"at{tag}")
            d.output(a.bit_select(at, 3), f"bits_{tag}")
            d.output(a.bit_select(at, width), f"all_{tag}")
            d.output(a.word_select(at, 8), f"word_{tag}")
            d.output(a.word_select(at, 5), f"odd_{tag}")
            d.output(a.bit_select(at, 70), f"long_{tag}")
    keep_clocked(d)


@feature
def assignment_to_parts(d: Design) -> None:
    at, value, en = d.input(6, "at"), d.input(96, "value"), d.input(1, "en")
    for width in (7, 32, 50, 64, 100, 300):
        for domain in ("comb", "sync"):
            bits, word = (
                Signal(width, name=f"bits_{domain}{width}"),
                Signal(width, name=f"word_{domain}{width}"),
            )
            nested, wide = (
                Signal(width, name=f"nest_{domain}{width}"),
                Signal(width, name=f"wide_{domain}{width}"),
            )
            with d.m.If(en):
                d.m.d[domain] += [
                    bits.bit_select(at, 3).eq(value),
                    word.word_select(at[:3], 5).eq(value),
                    wide.bit_select(at, 96).eq(value),
                    nested[1:].bit_select(at, 4).eq(value),
                    nested[:3].eq(value[4:]),
                ]
            d.watch(bits, word, nested, wide)
    keep_clocked(d)


@feature
def assignment_to_slices_and_concatenations(d: Design) -> None:
    a, b, choose = d.input(40, "a"), d.input(130, "b"), d.input(2, "choose")
    x, y, z = Signal(20, init=5), Signal(100, init=9), Signal(signed(12), init=-7)
    d.m.d.comb += Cat(x[3:], y[:64], z).eq(b)
    with d.m.Switch(choose):
        with d.m.Case(1):
            d.m.d.comb += [x[2:9].eq(a), y[10:90].eq(b)]
        with d.m.Case(2):
            d.m.d.comb += [y[64:].eq(a), z.eq(a)]
            d.m.d.comb += y[1].eq(a[0])
    p, q = Signal(80), Signal(9, init=1)
    with d.m.If(choose[0]):
        d.m.d.sync += Cat(q, p[7:]).eq(b)
    with d.m.If(choose[1]):
        d.m.d.sync += [p[32:64].eq(a), q[:2].eq(a[7:])]
    d.watch(x, y, z, p, q)


@feature
def arrays_on_both_sides(d: Design) -> None:
    index, value = d.input(3, "index"), d.input(12, "value")
    items = Array([d.input(12, f"item{i}") for i in range(5)])
    signed_items = Array([d.input(signed(4 + i), f"signed{i}") for i in range(4)])
    d.output(items[index], "read")
    d.output(signed_items[index], "mixed")
    for domain in ("comb", "sync"):
        targets = [Signal(12, name=f"target_{domain}{i}", init=i) for i in range(5)]
        d.m.d[domain] += Array(targets)[index].eq(value)
        d.m.d[domain] += Array(targets)[index][2:5].eq(value[7:])
        d.watch(*targets)
    keep_clocked(d)


@feature
def switches_with_dont_cares_and_priorities(d: Design) -> None:
    s, w, x = d.input(7, "s"), d.input(90, "w"), d.input(20, "x")
    for domain in ("comb", "sync"):
        a, b, c = (
            Signal(9, name=f"a_{domain}", init=3),
            Signal(100, name=f"b_{domain}"),
            Signal(4, name=f"c_{domain}"),
        )
        with d.m.Switch(s):
            with d.m.Case("1------"):
                d.m.d[domain] += [a.eq(1), b.eq(x)]
            with d.m.Case("01--1-0", "0---111"):
                d.m.d[domain] += a.eq(x)
            with d.m.Case("-----0-"):
                with d.m.If(x[0]):
                    d.m.d[domain] += b.eq(w)
                with d.m.Elif(x[1:5] == 3):
                    d.m.d[domain] += b.eq(~w)
                with d.m.Elif(x[2]):
                    pass
                with d.m.Else():
                    d.m.d[domain] += [b.eq(5), c.eq(x)]
            with d.m.Default():
                d.m.d[domain] += a.eq(0)
        with d.m.Switch(w):
            with d.m.Case(0):
                d.m.d[domain] += c.eq(9)
            with d.m.Case("1" + "-" * 89):
                d.m.d[domain] += c.eq(2)
        with d.m.Switch(x[:3]):
            for i in range(8):
                with d.m.Case(i):
                    d.m.d[domain] += c[:2].eq(i + 1)
        with d.m.Switch(x[5:8]):
            with d.m.Case(1, 2, 6):
                d.m.d[domain] += a[1].eq(1)
            with d.m.Case():
                d.m.d[domain] += a.eq(511)
            for i in range(4):
                with d.m.Case(i):
                    d.m.d[domain] += a[4:6].eq(i)
        d.watch(a, b, c)
    keep_clocked(d)


@feature
def values_that_match_patterns(d: Design) -> None:
    s, w = d.input(6, "s"), d.input(70, "w")
    d.output(s.matches("1----1", "01-0--"), "some")
    d.output(s.matches(3), "one")
    d.output(s.matches(), "none")
    d.output(w.matches("1" + "-" * 68 + "0", 0), "wide")
    keep_clocked(d)


@feature
def combinational_chains_within_and_between_modules(d: Design) -> None:
    a, b = d.input(80, "a"), d.input(8, "b")
    d.m.submodules.inner = inner = Module()
    x, y, z, back = Signal(80), Signal(80), Signal(8), Signal(8)
    d.m.d.comb += z.eq(y[3:11] ^ b)  # y is assigned below, in another module
    inner.d.comb += y.eq(x + 1)
    d.m.d.comb += x.eq(a ^ back)
    inner.d.comb += back.eq(b + 3)
    chain = Signal(16)
    d.m.d.comb += chain[0].eq(b[0])
    for i in range(1, 16):
        d.m.d.comb += chain[i].eq(chain[i - 1] ^ b[i % 8])  # a loop of the net, not of its bits
    d.watch(x, y, z, back, chain)
    keep_clocked(d)


@feature
def bits_of_one_signal_driven_by_two_modules(d: Design) -> None:
    a, en = d.input(8, "a"), [d.input(1, "en0"), d.input(1, "en1")]
    d.m.submodules.one, d.m.submodules.two = one, two = Module(), Module()
    shared, register = Signal(16, init=0x1234), Signal(16, init=0xABCD)
    for module, bits, on in ((one, slice(0, 8), en[0]), (two, slice(8, 16), en[1])):
        with module.If(on):
            module.d.comb += shared[bits].eq(a)
            module.d.sync += register[bits].eq(~a)
    d.watch(shared, register)


@feature
def registers_with_initial_values_and_feedback(d: Design) -> None:
    a, en = d.input(70, "a"), d.input(1, "en")
    count = Signal(5, init=29)
    wide = Signal(200, init=(1 << 150) | 5)
    lfsr = Signal(signed(13), init=-3)
    d.m.d.sync += count.eq(count + 1)
    with d.m.If(en):
        d.m.d.sync += [wide.eq(Cat(a, wide)), lfsr.eq(lfsr - a[:3])]
    swap_a, swap_b = Signal(7, init=1), Signal(7, init=2)
    d.m.d.sync += [swap_a.eq(swap_b), swap_b.eq(swap_a)]
    stages = [Signal(9, name=f"stage{i}") for i in range(4)]
    for before, after in zip([a[:9], *stages], stages, strict=False):
        d.m.d.sync += after.eq(before)
    d.watch(count, wide, lfsr, swap_a, swap_b, *stages)


@feature
def a_synchronous_reset(d: Design) -> None:
    d.m.domains.sync = domain = ClockDomain("sync")
    reset, a = d.input(1, "reset"), d.input(90, "a")
    d.m.d.comb += domain.rst.eq(reset & a[0])
    kept, cleared, wide = Signal(8, init=3, reset_less=True), Signal(8, init=4), Signal(90, init=77)
    d.m.d.sync += [kept.eq(kept + 1), cleared.eq(cleared + a[:2])]
    with d.m.If(a[1]):
        d.m.d.sync += wide.eq(a)
    d.m.submodules.memory = memory = Memory(shape=8, depth=4, init=[1, 2, 3, 4])
    read = memory.read_port()
    d.m.d.comb += [read.addr.eq(a[3:5]), read.en.eq(a[5])]
    d.watch(kept, cleared, wide, read.data)


def memory_of(
    width: int, depth: int, grain: int | None, transparent: bool
) -> Callable[[Design], None]:
    def build(d: Design) -> None:
        memory = Memory(
            shape=width,
            depth=depth,
            init=[i * 0x9E3779B97F4A7C15 & (1 << width) - 1 for i in range(depth)],
        )
        d.m.submodules.memory = memory
        writers = [memory.write_port(granularity=grain) for _ in range(2)]
        readers = [
            memory.read_port(),
            memory.read_port(domain="comb"),
            memory.read_port(transparent_for=writers if transparent else ()),
        ]
        for i, port in enumerate(writers):
            en = d.input(len(port.en), f"we{i}")
            gate = d.input(1, f"gate{i}")
            address, data = (
                d.input(len(port.addr) if depth > 1 else 1, f"wa{i}"),
                d.input(width, f"wd{i}"),
            )
            d.m.d.comb += [port.en.eq(Mux(gate, en, 0)), port.addr.eq(address), port.data.eq(data)]
        for i, port in enumerate(readers):
            address = d.input(len(port.addr) if depth > 1 else 1, f"ra{i}")
            d.m.d.comb += port.addr.eq(address)
            if i != 1:
                d.m.d.comb += port.en.eq(d.input(1, f"re{i}"))
            d.watch(port.data)

    return build


for _width, _depth, _grain in (
    (8, 4, None), (12, 5, 4), (33, 8, 11), (36, 6, None), (64, 4, 8), (65, 4, 13), (128, 3, 16),
    (200, 8, 8),
    (1024, 4, 16), (256, 4, 2), (256, 1, 32), (1, 2, None),
):  # fmt: skip
    for _transparent in (False, True):
        _name = f"memory_{_width}x{_depth}_by_{_grain}{'_transparent' if _transparent else ''}"
        FEATURES[_name] = memory_of(_width, _depth, _grain, _transparent)


@pytest.mark.parametrize("name", FEATURES)
def test_a_module_behaves_as_in_amaranths_simulator(name, tmp_path):
    lock_step(FEATURES[name], tmp_path)


def refused(build: Callable[[Module], None], tmp_path: Any) -> str:
    m = Module()
    build(m)
    with pytest.raises(UnsupportedError) as caught:
        build_model(m, [], tmp_path)
    return str(caught.value)


def test_what_is_not_supported_is_refused_by_name(tmp_path):
    out = Signal(8)

    def instance(m: Module) -> None:
        m.submodules.x = Instance("box", o_o=out)

    def printing(m: Module) -> None:
        m.d.comb += Print("x")

    def two_domains(m: Module) -> None:
        m.d.one += Signal(name="a").eq(1)
        m.d.two += Signal(name="b").eq(1)

    def falling(m: Module) -> None:
        m.domains.sync = ClockDomain("sync", clk_edge="neg")
        m.d.sync += out.eq(1)

    def asynchronous(m: Module) -> None:
        m.domains.sync = ClockDomain("sync", async_reset=True)
        m.d.sync += out.eq(1)

    def wide_division(m: Module) -> None:
        a = Signal(80)
        m.d.comb += Signal(80, name="q").eq(a // (a + 1))

    for build, text in (
        (instance, "Instance"),
        (printing, "Print"),
        (two_domains, "more than one clock domain"),
        (falling, "negative clock edge"),
        (asynchronous, "asynchronous reset"),
        (wide_division, "udiv on 81 bits"),
    ):
        assert text in refused(build, tmp_path), build.__name__


def test_a_loop_that_oscillates_is_reported(tmp_path):
    m = Module()
    a, on = Signal(), Signal()
    m.d.comb += a.eq(~a & on)
    model, (place,), _, _ = build_model(m, [on], tmp_path)
    model.settle()
    model.set(place, 1)
    with pytest.raises(RuntimeError, match="oscillates"):
        model.settle()


def test_two_models_of_one_library_do_not_share_state(tmp_path):
    m = Module()
    a, out = Signal(8), Signal(8)
    m.d.sync += out.eq(out + a)
    first, (place_a, place_out), program, _ = build_model(m, [a, out], tmp_path)
    from sim.compiled.model import Model, describe

    second = Model(tmp_path / "model.so", describe(program))
    first.set(place_a, 3)
    second.set(place_a, 5)
    first.step(2)
    second.step(3)
    assert (first.get(place_out), second.get(place_out)) == (6, 15)
    first.reset()
    assert (first.get(place_out), second.get(place_out)) == (0, 15)


def test_setting_a_combinational_signal_is_refused(tmp_path):
    m = Module()
    a, b = Signal(8), Signal(8)
    m.d.comb += b.eq(a + 1)
    model, (_, place), _, _ = build_model(m, [a, b], tmp_path)
    with pytest.raises(ValueError, match="driven by combinational logic"):
        model.set(place, 1)
