"""What every leaf has in common: latency, shared inputs, and a key that tells equal leaves."""

from collections.abc import Hashable, Mapping
from typing import Any, Self

from amaranth.hdl import Instance, Module, Shape, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, Member

from .library import LeafLibrary

__all__ = ["Leaf"]


class Leaf(wiring.Component):
    """Base of the arithmetic leaves: a pure function of the inputs, then ``latency`` registers.

    A subclass passes its ports and parameters to this constructor and writes ``_datapath(m)``,
    which drives its outputs combinationally. Its constructor accepts every parameter by keyword,
    together with ``latency``.

    ``latency`` registers (domain ``sync``) follow the outputs: the result of the operands present
    in cycle ``t`` is there in cycle ``t + latency``, one result per cycle. A leaf with latency is
    the leaf without it, as submodule ``core``, and registers, so that an engine which treats
    leaves specially meets only combinational ones.
    """

    def __init__(
        self, ports: Mapping[str, Member], *, latency: int = 0, **parameters: Hashable
    ) -> None:
        if latency < 0:
            raise ValueError(f"{type(self).__name__}: latency must not be negative, not {latency}")
        self._latency = latency
        self._parameters = parameters
        super().__init__(dict(ports))

    @property
    def latency(self) -> int:
        """Cycles from operands to result."""
        return self._latency

    @property
    def key(self) -> tuple[str, tuple[tuple[str, Hashable], ...], int]:
        """Class name, parameters, latency. Leaves with equal keys are equal hardware."""
        return type(self).__name__, tuple(sorted(self._parameters.items())), self._latency

    def bind(self, **inputs: ValueLike) -> Self:
        """Replace input ports by existing values of the same width; returns the leaf.

        The neighbours then share one signal, and the parent copies nothing, which in Amaranth's
        simulator is ten times faster. Call it before elaboration. A bound port does not belong
        to the leaf any more: the parent must not drive it through the leaf.
        """
        for name, source in inputs.items():
            member = self.signature.members.get(name)
            if member is None or member.flow is not Flow.In:
                ports = [n for n, p in self.signature.members.items() if p.flow is Flow.In]
                raise ValueError(f"{type(self).__name__} has no input '{name}', only {ports}")
            value = Value.cast(source)
            width = Shape.cast(member.shape).width
            if len(value) != width:
                raise ValueError(
                    f"{type(self).__name__}.{name} is {width} bits wide,"
                    f" the bound value {len(value)}"
                )
            setattr(self, name, value)
        return self

    def _datapath(self, m: Module) -> None:
        """Drive the outputs in ``m.d.comb``; submodules have names."""
        raise NotImplementedError  # each leaf has its own

    def unbound(self, latency: int = 0) -> Self:
        """A new leaf with the same parameters, whose ports are signals of its own."""
        return type(self)(**self._parameters, latency=latency)  # pyright: ignore

    def elaborate(self, platform: Any) -> Module | Instance:
        """Build the function, and the registers behind it."""
        if isinstance(platform, LeafLibrary) and platform.keeps_whole(self):
            return platform.instance(self)
        m = Module()
        if self._latency == 0:
            self._datapath(m)
            return m
        members = self.signature.members
        m.submodules.core = core = self.unbound()
        core.bind(**{n: getattr(self, n) for n, p in members.items() if p.flow is Flow.In})
        for name, member in members.items():
            if member.flow is Flow.In:
                continue
            value = getattr(core, name)
            for stage in range(1, self._latency):
                register = Signal(member.shape, name=f"{name}_{stage}")
                m.d.sync += register.eq(value)
                value = register
            m.d.sync += getattr(self, name).eq(value)
        return m
