"""Fixtures of the leaf tests."""

import gc
import warnings
from collections.abc import Iterator

import pytest
from amaranth.hdl import UnusedElaboratable


@pytest.fixture
def leaves_unused() -> Iterator[None]:
    """For tests that build leaves which nobody elaborates: collect them without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)
        yield
        gc.collect()
