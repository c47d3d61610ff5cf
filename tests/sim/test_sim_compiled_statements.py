"""Assignments, wiring and registers on the compiled engine, as in Amaranth's simulator."""

import pytest
from amaranth.hdl import (
    Array,
    Cat,
    ClockDomain,
    Module,
    Signal,
    signed,
)
from amaranth.lib.memory import Memory

from tests.conftest import needs_compiler
from tests.sim.compiled_bench import Design, Features, keep_clocked, lock_step

pytestmark = needs_compiler

feature = FEATURES = Features()


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


@pytest.mark.parametrize("name", FEATURES)
def test_a_module_behaves_as_in_amaranths_simulator(name, tmp_path):
    lock_step(FEATURES[name], tmp_path)
