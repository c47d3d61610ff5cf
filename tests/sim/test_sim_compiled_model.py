"""A compiled model's limits: what it refuses, and that models are apart."""

from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import (
    ClockDomain,
    Instance,
    Module,
    Print,
    Signal,
)

from sim.compiled.build import build_model
from sim.compiled.lower import UnsupportedError
from tests.conftest import needs_compiler

pytestmark = needs_compiler


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
