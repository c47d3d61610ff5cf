"""The order of logits, and the list of the largest ones."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from isa.topk import EXPERTS_BITS
from rtl.leaves import BF16

__all__ = ["ENTRY", "KEY_OF_MINUS_INF", "RankedList", "key_of", "logit_of"]

# A key is this much more than the magnitude of a positive logit, and less than it for a negative
# one: keys order like the logits, and both zeros have the same key.
ZERO_KEY = BF16.sign_mask
KEY_OF_MINUS_INF = ZERO_KEY - BF16.inf
ENTRY = data.StructLayout({"key": BF16.width, "index": EXPERTS_BITS})


def key_of(logit: Value) -> Value:
    """The key by which a BF16 logit ranks: NaN as -inf, -0.0 as +0.0."""
    size = BF16.magnitude_of(logit)
    negative = (ZERO_KEY - size)[: BF16.width]
    key = Mux(BF16.sign_of(logit), negative, ZERO_KEY + size)
    return Mux(size > BF16.inf, KEY_OF_MINUS_INF, key)[: BF16.width]


def logit_of(key: Value) -> Value:
    """The logit with a key; it is neither NaN nor -0.0."""
    positive = key >= ZERO_KEY
    size = Mux(positive, key - ZERO_KEY, ZERO_KEY - key)[: BF16.width - 1]
    return Cat(size, ~positive)


class RankedList(wiring.Component):
    """The ``size`` largest of the logits that entered, largest first, equal ones in their order of
    arrival: a sorted insertion network.

    One logit per cycle: with ``insert``, ``key`` and ``index`` are registered (cycle 0), compared
    with every entry at once and put in their place (cycle 1); the list is there in cycle 2. What
    falls off the end is lost. ::

        key, index --> x_ --> (x_key > entry j) for all j --> entry j keeps its value,
                                                             takes x_, or takes entry j - 1

    Members
    -------
    clear : In(1)
        Empty the list.
    insert : In(1)
    key, index : In
        Keys of ``key_of``; an empty entry is 0 and ranks below all of them.
    shift : In(1)
        Drop the first entry; the others move up.
    first : Out(ENTRY)
        The largest.
    """

    clear: Signal
    insert: Signal
    key: Signal
    index: Signal
    shift: Signal
    first: Any

    def __init__(self, size: int) -> None:
        self._size = size
        super().__init__(
            {
                "clear": In(1),
                "insert": In(1),
                "key": In(BF16.width),
                "index": In(EXPERTS_BITS),
                "shift": In(1),
                "first": Out(ENTRY),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # One signal, which costs an idle cycle of Amaranth's simulator less than one per entry.
        entries: Any = Signal(data.ArrayLayout(ENTRY, self._size))
        x_valid = Signal()
        beaten = Signal(self._size)
        x: Any = Signal(ENTRY)
        m.d.comb += self.first.eq(entries[0])

        m.d.sync += x_valid.eq(self.insert)
        with m.If(self.insert):
            m.d.sync += [x.key.eq(self.key), x.index.eq(self.index)]

        # The entries that the logit beats are the last ones, as the list is sorted.
        m.submodules.compare = compare = Module()
        compare.d.comb += beaten.eq(Cat(x.key > entry.key for entry in entries))

        with m.If(x_valid):
            for j, entry in enumerate(entries):
                before = Mux(beaten[j - 1], entries[j - 1].as_value(), x.as_value()) if j else x
                with m.If(beaten[j]):
                    m.d.sync += entry.eq(before)
        with m.If(self.shift):
            m.d.sync += entries.eq(entries.as_value() >> ENTRY.size)
        with m.If(self.clear):
            m.d.sync += entries.eq(0)
        return m
