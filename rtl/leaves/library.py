"""Leaves as instances: how a conversion meets each distinct leaf once."""

import re
from typing import TYPE_CHECKING

from amaranth.hdl import Fragment, Instance
from amaranth.lib.wiring import Flow

if TYPE_CHECKING:
    from .leaf import Leaf

__all__ = ["LeafLibrary"]


class LeafLibrary:
    """Elaborate a design with this as its platform, and every leaf without latency becomes an
    instance of a module that is named by the leaf's key.

    Amaranth converts every occurrence of a component anew, and a matrix array has hundreds of
    equal leaves. The modules themselves come from ``definition``.

    Attributes
    ----------
    leaves : module name -> the first leaf with that key, in the order of their appearance.
    """

    def __init__(self) -> None:
        self.leaves: dict[str, Leaf] = {}
        self._names: dict[object, str] = {}
        self._defined: Leaf | None = None

    def keeps_whole(self, leaf: "Leaf") -> bool:
        """Whether ``leaf`` is to be an instance: all are, but the one that is being defined."""
        return leaf.latency == 0 and leaf is not self._defined

    def instance(self, leaf: "Leaf") -> Instance:
        """What stands in for ``leaf``."""
        name = self._names.get(leaf.key)
        if name is None:
            name = _module_name(leaf)
            if name in self.leaves:
                name = f"{name}_{len(self.leaves)}"
            self._names[leaf.key] = name
            self.leaves[name] = leaf
        ports = [
            ("i" if member.flow is Flow.In else "o", port, getattr(leaf, port))
            for port, member in leaf.signature.members.items()
        ]
        return Instance(name, *ports)

    def definition(self, name: str) -> tuple["Leaf", Fragment]:
        """A fresh leaf with unbound ports, and its elaboration; leaves inside it are instances."""
        self._defined = leaf = self.leaves[name].unbound()
        return leaf, Fragment.get(leaf, self)


def _module_name(leaf: "Leaf") -> str:
    """``float_mul_bf16_fp32`` for FloatMul(BF16, FP32)."""
    kind, parameters, _ = leaf.key
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind)
    words = "_".join((words, *(str(getattr(value, "name", value)) for _, value in parameters)))
    return re.sub(r"\W+", "_", words).lower()
