"""A test case: program, data, memory device and issue policy; saved as a directory."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from isa.assembler import assemble
from isa.config import PlenaConfig
from isa.image import ProgramImage
from sim.hbm import HbmDevice
from sim.machine import MachineState
from sim.memories import Memories

Bits = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Line:
    """One instruction as source text."""

    text: str


@dataclass(frozen=True)
class Loop:
    """A loop; its counter is not written by the body."""

    register: int
    count: int
    body: tuple["Item", ...]


Item = Line | Loop


@dataclass(frozen=True)
class Device:
    """How the memory device disturbs the run; `faults` are byte addresses of faulty beats."""

    seed: int = 0
    capacity: int | None = None
    extra_latency: int = 0
    backpressure: float = 0.0
    faults: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contents:
    """What the memories hold at the start: from row, word or byte 0 of each; `matrix` by tile."""

    vector: Bits
    matrix: Bits
    fp: Bits
    ints: npt.NDArray[np.uint32]
    hbm: npt.NDArray[np.uint8]

    def load(self, memories: Memories | MachineState, hbm: HbmDevice) -> None:
        """Place everything."""
        memories.write_vector(0, self.vector)
        for tile, values in enumerate(self.matrix):
            memories.write_matrix(tile, values)
        memories.write_fp(0, self.fp)
        memories.write_int(0, self.ints)
        hbm.write(0, self.hbm)


@dataclass(frozen=True)
class FuzzCase:
    """Everything that a run depends on, but the engine."""

    config: PlenaConfig
    items: tuple[Item, ...]
    contents: Contents = field(repr=False)
    device: Device = Device()
    issue: str = "overlap"

    def source(self) -> str:
        """The program as assembly."""
        return "\n".join(_lines(self.items, 0)) + "\n"

    def image(self) -> ProgramImage:
        """The program, assembled for the configuration."""
        return _assembled(self.source(), self.config)

    def hbm(self) -> HbmDevice:
        """The device, still without contents."""
        d = self.device
        device = HbmDevice(
            self.config,
            capacity=d.capacity,
            seed=d.seed,
            extra_latency=d.extra_latency,
            backpressure=d.backpressure,
        )
        for address in d.faults:
            device.inject_fault(address)
        return device

    def save(self, folder: Path, report: str) -> None:
        """Write program.asm, data.npz, case.json, report.txt and the command that runs it again."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "program.asm").write_text(self.source())
        np.savez_compressed(folder / "data.npz", **asdict(self.contents))
        content = {
            "config": asdict(self.config),
            "device": asdict(self.device),
            "issue": self.issue,
        }
        (folder / "case.json").write_text(json.dumps(content, indent=2) + "\n")
        (folder / "report.txt").write_text(report + "\n")
        (folder / "command.txt").write_text(f"python -m testbench.fuzz --replay {folder}\n")

    @classmethod
    def load(cls, folder: Path) -> "FuzzCase":
        """Read a saved case; its program is flat, as it can no longer be shrunk by loops."""
        content = json.loads((folder / "case.json").read_text())
        device = content["device"]
        device["faults"] = tuple(device["faults"])
        with np.load(folder / "data.npz") as data:
            contents = Contents(**{name: data[name] for name in data.files})
        lines = (folder / "program.asm").read_text().splitlines()
        return cls(
            PlenaConfig(**content["config"]),
            tuple(Line(text) for text in lines),
            contents,
            Device(**device),
            content["issue"],
        )


@lru_cache(maxsize=4)
def _assembled(source: str, config: PlenaConfig) -> ProgramImage:
    """A program runs several times: under both policies, and on two engines."""
    return assemble(source, config=config)


def _lines(items: Sequence[Item], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for item in items:
        if isinstance(item, Line):
            yield indent + item.text
        else:
            yield f"{indent}C_LOOP_START gp{item.register}, {item.count}"
            yield from _lines(item.body, depth + 1)
            yield f"{indent}C_LOOP_END gp{item.register}"
