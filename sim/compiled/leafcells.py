"""Leaves that stay whole in the elaborated design.

Leaves (`rtl.leaves.Leaf` without latency) are not elaborated where they stand: they become cells by
key, and each distinct one is converted once, by `sim.compiled.leaf`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.lib.wiring import Flow

from rtl.leaves.leaf import Leaf
from sim.private import fragments

__all__ = ["leaf_of", "leaves_as_cells"]

_PATCH_LOCK = threading.Lock()


def _leaf_fragment(leaf: Leaf) -> Any:
    """Stands for a leaf in the fragment tree; Amaranth's passes keep its parameters, so those hold
    the leaf."""
    ports = [
        ("i" if member.flow is Flow.In else "o", name, getattr(leaf, name))
        for name, member in leaf.signature.members.items()
    ]
    return fragments.Instance(type(leaf).__name__, ("p", "leaf", leaf), *ports)


def leaf_of(fragment: Any) -> Leaf | None:
    """The leaf that a fragment stands for, if it does."""
    leaf = fragment.parameters.get("leaf") if isinstance(fragment, fragments.Instance) else None
    return leaf if isinstance(leaf, Leaf) else None


@contextmanager
def leaves_as_cells() -> Iterator[None]:
    """Within this, a leaf without latency stays whole."""
    original = Leaf.elaborate

    def elaborate(self: Leaf, platform: Any) -> Any:
        return original(self, platform) if self.latency else _leaf_fragment(self)

    with _PATCH_LOCK:
        Leaf.elaborate = elaborate  # type: ignore[method-assign]
        try:
            yield
        finally:
            Leaf.elaborate = original
