"""Memories on the compiled engine, as in Amaranth's simulator."""

from collections.abc import Callable

import pytest
from amaranth.hdl import (
    Mux,
)
from amaranth.lib.memory import Memory

from tests.conftest import needs_compiler
from tests.sim.compiled_bench import Design, Features, lock_step

pytestmark = needs_compiler

feature = FEATURES = Features()


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
