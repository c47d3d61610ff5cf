"""The HBM port: requests, answers and MX conversion between memory and the SRAMs."""

from rtl.hbm.port import HbmPort

__all__ = ["HbmPort"]
