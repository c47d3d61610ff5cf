"""What a testbench runs: a program with operands, expected results and expected stages.

`Workload` is what the commands need of it; `Case` is one whose operands and results are lists.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from compiler import HbmTensor, VramMatrix
from isa.config import PlenaConfig
from isa.image import ProgramImage
from isa.stages import Stage
from sim.hbm import HbmDevice
from sim.mismatch import Comparison, compare, compare_words
from sim.numerics import bf16, mx
from sim.result import RunResult
from sim.simulation import Simulation

Bits = npt.NDArray[np.uint16]
Values = npt.NDArray[np.generic]


class Workload(Protocol):
    """A program, its data, and the checks of a finished run."""

    @property
    def config(self) -> PlenaConfig:
        """The machine."""
        ...

    @property
    def image(self) -> ProgramImage:
        """The program."""
        ...

    @property
    def title(self) -> str:
        """One line for a person: what is computed, in which size."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """The same for a script: entries of the report."""
        ...

    @property
    def note(self) -> str:
        """The caveat about a shared-to-routed ratio of this program."""
        ...

    @property
    def projection_stages(self) -> tuple[Stage, ...]:
        """The stages whose cycles the multipliers should fill."""
        ...

    def hbm(self) -> HbmDevice:
        """A memory device with the quantised operands in place."""
        ...

    def load(self, simulation: Simulation) -> None:
        """Places what the program finds in the on-chip memories."""
        ...

    def check(self, simulation: Simulation) -> list[Comparison]:
        """Compares what a finished run left with the reference, in the order of the data flow."""
        ...

    def check_stages(self, result: RunResult) -> list[str]:
        """What is wrong with the stages of a finished run."""
        ...

    def result(self, simulation: Simulation) -> Bits:
        """The result, bit patterns [rows, columns]."""
        ...

    @property
    def reference(self) -> Bits:
        """What `result` must be."""
        ...


@dataclass(frozen=True, kw_only=True)
class Expected:
    """BF16 values [rows, cols] that a matrix must hold when the program ends."""

    name: str
    matrix: VramMatrix
    values: Values


@dataclass(frozen=True, kw_only=True)
class ExpectedWords:
    """Words of INT_MEM (integers) or FP_MEM (BF16) that must be there when the program ends."""

    name: str
    start: int
    values: Values


@dataclass(frozen=True, kw_only=True)
class ExpectedTensor:
    """A tensor in HBM, as stored from `matrix` with the values [rows, cols], every MX byte."""

    name: str
    tensor: HbmTensor
    matrix: VramMatrix
    values: Values


@dataclass(frozen=True, kw_only=True)
class Case:
    """A workload made of lists; the last of `expected` is its result.

    Attributes:
        tensors: what the host encodes to MX and writes to HBM.
        matrices: what it places in vector SRAM, BF16.
        vector_rows: (first row, rows [n, MLEN]) that it places there too.
        fp_words, int_words: (first word, values) for FP_MEM and INT_MEM, in this order.
        stages: those that must have instructions; every other one must have none.
    """

    config: PlenaConfig
    image: ProgramImage
    title: str
    facts: Mapping[str, Any]
    note: str
    stages: frozenset[Stage]
    projection_stages: tuple[Stage, ...]
    tensors: Sequence[tuple[HbmTensor, Values]] = ()
    matrices: Sequence[tuple[VramMatrix, Values]] = ()
    vector_rows: Sequence[tuple[int, Values]] = ()
    fp_words: Sequence[tuple[int, Values]] = ()
    int_words: Sequence[tuple[int, Values]] = ()
    expected: Sequence[Expected]
    expected_words: Sequence[ExpectedWords] = ()
    expected_tensors: Sequence[ExpectedTensor] = ()

    def hbm(self) -> HbmDevice:
        """A memory device with the quantised operands in place."""
        device = HbmDevice(self.config)
        for tensor, values in self.tensors:
            store_tensor(device, tensor, values)
        return device

    def load(self, simulation: Simulation) -> None:
        """Places what the program finds in the on-chip memories."""
        memories = simulation.memories
        for matrix, values in self.matrices:
            memories.write_vector(matrix.first_row, matrix.place(values))
        for row, values in self.vector_rows:
            memories.write_vector(row, values)
        for start, values in self.fp_words:
            memories.write_fp(start, values)
        for start, values in self.int_words:
            memories.write_int(start, values)

    def check(self, simulation: Simulation) -> list[Comparison]:
        """Words first, then matrices, each with the writer of the first wrong lanes."""
        words = [self._check_words(simulation, wanted) for wanted in self.expected_words]
        matrices = [
            compare(
                wanted.name,
                read_matrix(simulation, wanted.matrix),
                bf16.to_bits(wanted.values),  # type: ignore[arg-type]
                locate=locator(wanted.matrix),
                writers=simulation.last_writer,
                image=simulation.image,
            )
            for wanted in self.expected
        ]
        return [*words, *matrices, *(compare_stored(simulation, w) for w in self.expected_tensors)]

    def _check_words(self, simulation: Simulation, wanted: ExpectedWords) -> Comparison:
        end = wanted.start + len(wanted.values)
        if wanted.values.dtype == bf16.BF16:
            got = simulation.memories.read_fp()[wanted.start : end]
            return compare_words(wanted.name, got, bf16.to_bits(wanted.values))  # type: ignore[arg-type]
        got = simulation.memories.read_int()[wanted.start : end]
        return compare_words(wanted.name, got, wanted.values.astype(np.uint32))

    def check_stages(self, result: RunResult) -> list[str]:
        """Time that is not accounted for, empty or foreign stages."""
        return stage_problems(result, self.stages)

    def result(self, simulation: Simulation) -> Bits:
        """The last expected matrix, as it is."""
        return read_matrix(simulation, self.expected[-1].matrix)

    @property
    def reference(self) -> Bits:
        """The last expected matrix, as it must be."""
        return bf16.to_bits(self.expected[-1].values)  # type: ignore[arg-type]


def stage_problems(result: RunResult, must: frozenset[Stage]) -> list[str]:
    """Whether the stages add up, each of `must` has instructions, and no other one has any."""
    problems = []
    wall, completed = result.counters["wall"], completed_per_stage(result)
    if sum(wall) != result.cycles:
        problems.append(f"the stages sum to {sum(wall)} cycles, the run took {result.cycles}")
    for stage in Stage:
        # By instructions: under overlap, a short stage may hide behind an older one's last cycles.
        if stage in must and not completed[stage]:
            problems.append(f"stage {stage.label} is empty, but this program must contain it")
        if stage not in must and (wall[stage] or completed[stage]):
            problems.append(
                f"stage {stage.label} has {wall[stage]} cycles and {completed[stage]} "
                "instructions, but this program cannot contain it"
            )
    return problems


def completed_per_stage(result: RunResult) -> list[int]:
    """Completed instructions per stage, over all ports."""
    ports = [values for name, values in result.counters.items() if name.startswith("completed_")]
    return [sum(port[stage] for port in ports) for stage in Stage]


def compare_stored(simulation: Simulation, wanted: ExpectedTensor) -> Comparison:
    """Compares element codes, beside them scales; the writer is that of the matrix's lane."""
    tensor, rows = wanted.tensor, len(wanted.values)
    codes, scales = tensor.gather(simulation.hbm.read)
    dialect = simulation.config.mx_dialect
    want_codes, want_scales = mx.encode(wanted.values, tensor.block, dialect)
    got = np.concatenate([codes[:rows], scales[:rows]], axis=1).astype(np.uint16)
    want = np.concatenate([want_codes, want_scales], axis=1).astype(np.uint16)

    def locate(row: int, column: int) -> tuple[int, int]:
        # A scale byte belongs to its block's first element.
        element = column if column < tensor.cols else (column - tensor.cols) * tensor.block
        return locator(wanted.matrix)(row, element)

    return compare(
        wanted.name,
        got,
        want,
        locate=locate,
        writers=simulation.last_writer,
        image=simulation.image,
    )


def store_tensor(device: HbmDevice, tensor: HbmTensor, values: Values) -> None:
    """Quantises `values` in the device's dialect and writes codes and scales where `tensor` has
    them."""
    codes, scales = mx.encode(values, tensor.block, device.mx_dialect)
    for address, content in tensor.place(codes, scales):
        device.write(address, content)


def read_matrix(simulation: Simulation, matrix: VramMatrix) -> Bits:
    """The logical [rows, cols] of a vector SRAM matrix, as bit patterns."""
    return matrix.gather(simulation.memories.read_vector(matrix.first_row, matrix.memory_rows))


def locator(matrix: VramMatrix):
    """Maps (row, column) of `matrix` to its vector SRAM row and lane."""

    def locate(row: int, column: int) -> tuple[int, int]:
        return matrix.row_address(row, column // matrix.mlen) // matrix.mlen, column % matrix.mlen

    return locate
