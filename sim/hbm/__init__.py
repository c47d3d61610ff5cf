"""The memory behind the HBM port, a host-side model: its bytes (`memory`), and when it takes and
answers requests (`device`)."""

from sim.hbm.device import BEAT_BYTES, HbmDevice
from sim.hbm.memory import PAGE_BYTES, HbmImageError, HbmMemory, HbmRangeError

__all__ = [
    "BEAT_BYTES",
    "PAGE_BYTES",
    "HbmDevice",
    "HbmImageError",
    "HbmMemory",
    "HbmRangeError",
]
