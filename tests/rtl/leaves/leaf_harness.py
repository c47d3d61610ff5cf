"""Runs many operands through a combinational leaf in Amaranth's simulator."""

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Flow
from amaranth.sim import Simulator

from rtl.leaves import Leaf

COPIES = 16


def evaluate(
    make: Callable[[], Leaf], operands: Mapping[str, np.ndarray], copies: int = COPIES
) -> np.ndarray:
    """The output of the leaf for every element of the operand arrays, which are broadcast.

    Several copies of the leaf work side by side, on one wide signal, so that the simulator settles
    once for all of them.
    """
    names = list(operands)
    columns = np.broadcast_arrays(*operands.values())
    shape, count = columns[0].shape, columns[0].size
    columns = [column.ravel().astype(np.uint32) for column in columns]
    copies = min(copies, count)

    m = Module()
    packed = Signal(copies * len(names) * 32)
    outputs = []
    for copy in range(copies):
        m.submodules[f"leaf_{copy}"] = leaf = make()
        for k, name in enumerate(names):
            word = packed.word_select(copy * len(names) + k, 32)
            port = getattr(leaf, name)
            m.d.comb += port.eq(word[: len(port)])
        [output] = [n for n, p in leaf.signature.members.items() if p.flow is Flow.Out]
        outputs.append(getattr(leaf, output))

    padded = np.zeros((len(names), -(-count // copies) * copies), dtype="<u4")
    padded[:, :count] = columns
    rows = padded.T.reshape(-1, copies * len(names))
    results: list[int] = []

    async def testbench(ctx) -> None:
        for row in rows:
            ctx.set(packed, int.from_bytes(row.tobytes(), "little"))
            results.extend(ctx.get(output) for output in outputs)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulator = Simulator(m)
    simulator.add_testbench(testbench)
    simulator.run()
    return np.array(results[:count], dtype=np.uint32).reshape(shape)


def expect(got: np.ndarray, wanted: np.ndarray, **operands: np.ndarray) -> None:
    """Compare bit patterns; on a difference, name the first operands in hexadecimal."""
    arrays = np.broadcast_arrays(got, wanted, *operands.values())
    got, wanted, *inputs = (np.asarray(array).ravel() for array in arrays)
    wrong = np.flatnonzero(got != wanted)
    if len(wrong):
        lines = [
            ", ".join(f"{n} {int(c[k]):X}" for n, c in zip(operands, inputs, strict=True))
            + f": got {int(got[k]):X}, wanted {int(wanted[k]):X}"
            for k in wrong[:5]
        ]
        raise AssertionError(f"{len(wrong)} of {len(got)} differ: " + "; ".join(lines))
