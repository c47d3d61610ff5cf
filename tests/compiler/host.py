"""What a host does around a compiled program: encode, place, run, read back."""

from collections.abc import Sequence

import numpy as np

from compiler import HbmTensor, Program, SharedExpertProgram, VramMatrix
from compiler.hbm import Order
from compiler.linear import linear_projection
from compiler.weight_panels import WeightPanels
from isa import PlenaConfig
from sim.numerics import bf16, mx
from testbench.reference.data import SharedExpertData
from tests.compiler.interpreter import Interpreter

#: A byte that no test data encodes to, around and inside regions that must stay untouched.
UNTOUCHED = 0xA5


def write_tensor(machine: Interpreter, tensor: HbmTensor, values: np.ndarray) -> None:
    codes, scales = mx.encode(values, tensor.block)
    for address, data in tensor.place(codes, scales):
        machine.hbm[address : address + len(data)] = data


def read_tensor(machine: Interpreter, tensor: HbmTensor) -> np.ndarray:
    codes, scales = tensor.gather(
        lambda address, size: bytes(machine.hbm[address : address + size])
    )
    return mx.decode(codes, scales, tensor.block)


def write_matrix(machine: Interpreter, matrix: VramMatrix, values: np.ndarray) -> None:
    machine.vram[matrix.first_row : matrix.first_row + matrix.memory_rows] = matrix.place(values)


def read_matrix(machine: Interpreter, matrix: VramMatrix) -> np.ndarray:
    return matrix.gather(machine.vram[matrix.first_row : matrix.first_row + matrix.memory_rows])


def run_shared(
    program: SharedExpertProgram, data: SharedExpertData, accumulator: np.ndarray | None = None
) -> Interpreter:
    """Load everything the program declares, run it, and return the machine."""
    size = max(t.base + t.extent for t in program.hbm.values())
    machine = Interpreter(program.config, size + 64)
    machine.hbm[:] = bytes([UNTOUCHED]) * len(machine.hbm)
    for name in ("x", "w_gate", "w_up", "w_down"):
        write_tensor(machine, program.hbm[name], getattr(data, name))
    host = {"accumulator": accumulator, "gate_row": data.gate_weight}
    if data.biases is not None:
        rows = {"bias_gate": data.biases.gate, "bias_up": data.biases.up}
        rows["bias_down"] = data.biases.down
        host |= {name: row.reshape(1, -1) for name, row in rows.items()}
    for name in program.preloaded:
        first, rows = program.preload(name, host[name])
        machine.vram[first : first + len(rows)] = rows
    machine.fp_mem = program.fp_mem.view(bf16.BF16).copy()
    machine.run(program.image)
    return machine


def projected(
    config: PlenaConfig,
    act: np.ndarray,
    weights: Sequence[np.ndarray],
    *,
    cap: int | None = None,
    order: Order = Order.TILES,
) -> tuple[Interpreter, list[np.ndarray], list[VramMatrix], Program]:
    """Run act @ w for each weight in one program, each prefetched under the one before."""
    prog = Program(config, "projection")
    rows, depth = act.shape
    matrix = prog.vram.matrix("act", rows, depth)
    tensors = [prog.hbm.tensor(f"w{i}", *w.shape, order=order) for i, w in enumerate(weights)]
    outs = [prog.vram.matrix(f"out{i}", rows, w.shape[1]) for i, w in enumerate(weights)]
    prog.stage("shared_expert_projection")
    with prog.a("weights") as address:
        panels = WeightPanels(prog, address, cap)
        for tensor, out, then in zip(tensors, outs, [*tensors[1:], None], strict=True):
            linear_projection(
                prog, panels, act=matrix, weight=tensor, out=out, rows=rows, then=then
            )
    machine = Interpreter(config, max(t.base + t.extent for t in tensors))
    for tensor, weight in zip(tensors, weights, strict=True):
        write_tensor(machine, tensor, weight)
    write_matrix(machine, matrix, act)
    machine.run(prog.build())
    return machine, [read_matrix(machine, out) for out in outs], outs, prog
