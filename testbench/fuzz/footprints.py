"""Where one instruction reads and writes, given the state that it executes in."""

from collections.abc import Iterable
from dataclasses import dataclass

from isa.instruction import Instruction
from isa.opcodes import Access, Extent, State
from isa.operands import Kind
from isa.topk import FIXED_SHAPES, FROM_REGISTER, TOP_K_BITS
from sim.machine import MachineState
from testbench.fuzz.dependencies import Use, uses

#: Flags that decide whether a state is read: the operand, and the value with which it is.
_READ_ONLY_WITH = {
    State.V_MASK: ("rmask", 1),
    State.STRIDE: ("rstride", 1),
    State.TOPK_POLICY: ("rmask", FROM_REGISTER),
}
#: Products whose columns are rows of the tile as it is stored.
_TRANSPOSED = ("M_TMM", "M_TMV")


@dataclass(frozen=True)
class Place:
    """Some keys (registers, rows, words, bytes), and a range of lanes in each."""

    keys: frozenset[int]
    first_lane: int = 0
    end_lane: int = 1

    def meets(self, other: "Place") -> bool:
        """Whether they share a lane of a key."""
        return (
            self.first_lane < other.end_lane
            and other.first_lane < self.end_lane
            and not self.keys.isdisjoint(other.keys)
        )


def _keys(keys: Iterable[int]) -> Place:
    return Place(frozenset(keys))


class _Resolver:
    """Resolves the accesses of one instruction; it is legal, so no address is checked."""

    def __init__(self, state: MachineState, instruction: Instruction) -> None:
        self.state, self.instruction, self.config = state, instruction, state.config

    def place(self, access: Access) -> Place | None:
        """None when the instruction as encoded does not make the access."""
        flag, wanted = _READ_ONLY_WITH.get(access.state, ("", 0))
        if flag and not access.writes and self.instruction.value(flag) != wanted:
            return None
        if access.extent is Extent.WHOLE:
            return _keys([0])
        if access.extent is Extent.HBM_ROWS:
            return self._hbm(access)
        address = sum(self.state.gp[self.instruction.value(f)] for f in access.base)
        address += self.instruction.value("imm") if access.imm else 0
        if access.state is State.VECTOR_SRAM:
            return self._rows(access.extent, address)
        if access.state is State.MATRIX_SRAM:
            return self._tile(access.extent, address)
        count = {Extent.WORD: 1, Extent.ROW_WORDS: self.config.MLEN}.get(access.extent)
        count = self._topk()[1] if count is None else count
        return _keys(range(address, address + count))

    def _topk(self) -> tuple[int, int]:
        rmask = self.instruction.value("rmask")
        policy = self.state.topk or 0
        return FIXED_SHAPES.get(rmask) or (policy >> TOP_K_BITS, policy & ((1 << TOP_K_BITS) - 1))

    def _rows(self, extent: Extent, address: int) -> Place:
        c = self.config
        row, lane = divmod(address, c.MLEN)
        if extent in (Extent.STRIDED_ROWS, Extent.BLEN_LANES):
            register = self.instruction.value("rs1") if extent is Extent.STRIDED_ROWS else 0
            stride = self.state.gp[register] if register else 1
            count = c.BLEN if extent is Extent.STRIDED_ROWS else 1
            return Place(frozenset(row + i * stride for i in range(count)), lane, lane + c.BLEN)
        count = {
            Extent.ROW: 1,
            Extent.BLEN_ROWS: c.BLEN,
            Extent.MLEN_ROWS: c.MLEN,
            Extent.PREFETCH_ROWS: c.v_prefetch,
            Extent.WRITEBACK_ROWS: c.v_writeback,
            Extent.HEAD_ROWS: c.heads,
            Extent.HEAD_TILES: c.heads * c.MLEN,
        }.get(extent)
        count = -(-self._topk()[0] // c.MLEN) if count is None else count
        return Place(frozenset(range(row, row + count)), 0, c.MLEN)

    def _tile(self, extent: Extent, address: int) -> Place:
        c = self.config
        tile, offset = divmod(address, c.tile_elements)
        base, row = tile * c.MLEN, offset // c.MLEN
        every = range(base, base + c.MLEN)
        if extent is Extent.TILE:
            return Place(frozenset(range(base, base + c.m_prefetch)), 0, c.MLEN)
        if extent is Extent.HEAD_SLICE_COLUMNS:
            return Place(frozenset(every), offset, offset + c.HLEN)
        if extent is Extent.HEAD_SLICE_ROWS:
            return Place(frozenset(range(base + row, base + row + c.HLEN)), 0, c.MLEN)
        if self.instruction.opcode.mnemonic in _TRANSPOSED:
            return Place(frozenset(range(base + row, base + row + c.BLEN)), 0, c.MLEN)
        return Place(frozenset(every), row, row + c.BLEN)

    def _hbm(self, access: Access) -> Place:
        c, i, s = self.config, self.instruction, self.state
        if access.writes:
            count = c.v_writeback
        elif i.opcode.access(State.MATRIX_SRAM, writes=True):
            count = c.m_prefetch
        else:
            count = c.v_prefetch
        stride = s.stride if i.value("rstride") else c.MLEN
        offset, base = s.gp[i.value("rs1")], s.a[i.value("rs2")]
        scales, block = base + s.scale + offset // c.MX_BLOCK, c.MX_BLOCK
        content: set[int] = set()
        for r in range(count):
            first = base + offset + r * stride
            content |= set(range(first, first + c.MLEN))
            scale = scales + r * stride // block
            content |= set(range(scale, scale + c.MLEN // block))
        return _keys(content)


def footprint(state: MachineState, word: int) -> list[tuple[Use, Place]]:
    """What the instruction `word` is about to read and write; gp0 and f0 are nobody's."""
    instruction = Instruction.decode(word)
    resolver = _Resolver(state, instruction)
    found: list[tuple[Use, Place]] = []
    for use in uses(instruction.opcode.mnemonic):
        if use.operand is not None:
            index = instruction.value(use.operand.name)
            if index or use.operand.kind is Kind.A:
                found.append((use, _keys([index])))
        elif use.access is not None:
            place = resolver.place(use.access)
            if place is not None:
                found.append((use, place))
    return found
