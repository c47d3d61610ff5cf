"""Waveforms and timelines of a run: written while it goes on, looked at and queried afterwards."""

from waveforms.timeline import Timeline
from waveforms.vcd import VcdWriter

__all__ = ["Timeline", "VcdWriter"]
