"""The hardware loop stack of C_LOOP_START and C_LOOP_END."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rtl.interfaces import PC_BITS


class LoopStack(wiring.Component):
    """Up to `depth` open loops of (pc of the start, counter register); outputs show the innermost
    one.

    Members: `push`/`pop` take effect at the cycle's end (never both); `push_pc`, `push_register`;
    `top_pc`, `top_register`, `empty`, `full`.
    """

    push: Any
    pop: Any
    push_pc: Any
    push_register: Any
    top_pc: Any
    top_register: Any
    empty: Any
    full: Any
    level: Any

    def __init__(self, depth: int) -> None:
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "pop": In(1),
                "push_pc": In(PC_BITS),
                "push_register": In(4),
                "top_pc": Out(PC_BITS),
                "top_register": Out(4),
                "empty": Out(1),
                "full": Out(1),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entry = data.StructLayout({"pc": PC_BITS, "register": 4})
        entries = [Signal(entry, name=f"loop_{i}") for i in range(self._depth)]
        with m.If(self.push):
            m.d.sync += self.level.eq(self.level + 1)
            with m.Switch(self.level):
                for i, slot in enumerate(entries):
                    with m.Case(i):
                        m.d.sync += [slot.pc.eq(self.push_pc), slot.register.eq(self.push_register)]
        with m.Elif(self.pop):
            m.d.sync += self.level.eq(self.level - 1)
        with m.Switch(self.level):
            for i, slot in enumerate(entries):
                with m.Case(i + 1):
                    m.d.comb += [self.top_pc.eq(slot.pc), self.top_register.eq(slot.register)]
        m.d.comb += [self.empty.eq(self.level == 0), self.full.eq(self.level == self._depth)]
        return m
