"""What a program leaves behind, to be compared with what another run of it left."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.simulation import Simulation


@dataclass(frozen=True)
class Final:
    """The whole state after a run, as byte strings by name; two runs are equal in every bit."""

    parts: Mapping[str, bytes]

    @classmethod
    def of(cls, simulation: Simulation) -> "Final":
        """The state of a machine that has halted."""
        m = simulation.memories
        arrays: dict[str, Any] = {
            "gp": m.read_gp(),
            "f": m.read_f(),
            "a": m.read_a(),
            "state registers": np.array(list(m.read_state().values()), np.uint64),
            "FP_MEM": m.read_fp(),
            "INT_MEM": m.read_int(),
            "vector SRAM": m.read_vector(),
            "matrix SRAM": m.read_tiles(),
        }
        arrays |= m.read_accumulators()
        parts = {name: array.tobytes() for name, array in arrays.items()}
        pages = simulation.hbm.image()
        parts |= {f"HBM 0x{address:X}": page for address, page in pages.items() if any(page)}
        return cls(parts)

    def difference(self, other: "Final") -> str:
        """The first part, and its first byte, that differ; empty when none does."""
        for name in dict.fromkeys([*self.parts, *other.parts]):
            ours, theirs = self.parts.get(name, b""), other.parts.get(name, b"")
            if ours != theirs:
                pairs = zip(ours, theirs, strict=False)
                at = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
                here, there = ours[at : at + 4].hex(" "), theirs[at : at + 4].hex(" ")
                return f"{name}, byte {at}: {here or 'nothing'} | {there or 'nothing'}"
        return ""

    @property
    def digest(self) -> str:
        """A hash of all of it."""
        digest = hashlib.sha256()
        for name in sorted(self.parts):
            digest.update(name.encode() + b"\0" + self.parts[name])
        return digest.hexdigest()[:16]
