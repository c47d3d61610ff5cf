"""The top-k unit: selection of experts and their weights."""

from .unit import TopkUnit

__all__ = ["TopkUnit"]
