"""What a run leaves behind: files in one build directory, each complete or absent."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from isa.image import ProgramImage, write_atomically
from sim.hbm import HbmDevice
from sim.mismatch import Comparison
from sim.profile import write_profile
from sim.result import RunResult
from sim.simulation import Simulation
from testbench.workload import Workload

#: Every file, by what it holds.
FILES = {
    "listing": "listing.txt",
    "source": "program.asm",
    "image": "image.json",
    "HBM before the run": "hbm.npz",
    "HBM after the run": "hbm_after.npz",
    "stage profile": "stage_profile.json",
    "result": "result.npy",
    "reference": "reference.npy",
    "report": "report.json",
}
#: The waves of a lock-step mismatch and the viewers' files, which a run without one does not leave.
MISMATCH_FILES = ("mismatch.vcd", "mismatch.gtkw", "mismatch.sucl")


class Artefacts:
    """The build directory; made when the first file is written, older files of the same names are
    replaced."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, what: str) -> Path:
        """Where the file for `what` goes."""
        return self.directory / FILES[what]

    def write_program(self, image: ProgramImage, hbm: HbmDevice) -> None:
        """Listing, source, image and memory, as they are before the run; results of an older run
        are removed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            self.path(name).unlink(missing_ok=True)
        for name in MISMATCH_FILES:
            (self.directory / name).unlink(missing_ok=True)
        self._text("listing", image.listing())
        self._text("source", "\n".join(image.source) + "\n")
        image.save(self.path("image"))
        hbm.save(self.path("HBM before the run"))

    def write_results(
        self,
        case: Workload,
        simulation: Simulation,
        result: RunResult,
        comparisons: list[Comparison],
    ) -> dict[str, Any]:
        """Profile, result and reference arrays (BF16 patterns, [rows, columns]); returns the
        profile."""
        profile = simulation.profile(result, shared_vs_routed_note=case.note)
        write_profile(profile, self.path("stage profile"))
        if comparisons:
            self._array("result", case.result(simulation))
        self._array("reference", case.reference)
        simulation.hbm.save(self.path("HBM after the run"))
        return profile

    def write_report(self, report: dict[str, Any]) -> None:
        """The machine-readable report of the run."""
        self._text("report", json.dumps(report, indent=2) + "\n")

    def _text(self, what: str, text: str) -> None:
        write_atomically(self.path(what), text.encode())

    def _array(self, what: str, array: np.ndarray) -> None:
        buffer = io.BytesIO()
        np.save(buffer, array)
        write_atomically(self.path(what), buffer.getvalue())
