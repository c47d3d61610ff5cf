"""Directed programs: every limit of the decoder and of the address checks, bit by bit.

Most of their instructions trap; `testbench.fuzz.restarts.run_through` starts again behind each.
"""

from collections.abc import Iterator

import numpy as np

from isa.config import PlenaConfig
from isa.opcodes import BY_MNEMONIC, OPCODES, Access, Extent, Opcode
from isa.operands import FIELDS, Kind, Operand
from testbench.fuzz.addresses import AddressRules
from testbench.fuzz.case import Contents, FuzzCase
from testbench.fuzz.source import Source
from testbench.fuzz.values import bf16_values, mx_bytes

__all__ = ["contents", "sweeps"]

#: Opcodes per program: small programs, so that a difference is found soon.
_GROUP = 6
_LAST = 0xFFFF_FFFF


def contents(config: PlenaConfig, seed: int) -> Contents:
    """Random contents of all memories, up to 64 rows and 4 tiles."""
    rng = np.random.default_rng(seed)
    mlen = config.MLEN
    return Contents(
        vector=bf16_values(rng, (64, mlen)),
        matrix=bf16_values(rng, (min(4, config.MRAM_TILES), mlen, mlen)),
        fp=bf16_values(rng, (128,)),
        ints=rng.integers(0, 1 << 32, 128, dtype=np.uint32),
        hbm=mx_bytes(rng, 2048, 2048),
    )


def sweeps(config: PlenaConfig) -> Iterator[tuple[str, FuzzCase]]:
    """All programs, with a name each."""
    opcodes = list(OPCODES.values())
    for start in range(0, len(opcodes), _GROUP):
        source = Source(config)
        for opcode in opcodes[start : start + _GROUP]:
            _encodings(source, opcode)
        yield f"encodings {start}", source.case(contents(config, start))
    source = Source(config)
    for code in range(64):
        source.word(code)
        source.word(0xFFFF_FFC0 | code)
    yield "opcodes", source.case(contents(config, 64))
    seen: set[object] = set()
    for opcode in opcodes:
        kind = tuple(
            (a.state, a.writes, a.base, a.extent, a.imm) for a in opcode.accesses if _is_swept(a)
        )
        if kind and kind not in seen:
            seen.add(kind)
            source = Source(config)
            _addresses(source, opcode)
            yield f"addresses of {opcode.mnemonic}", source.case(contents(config, opcode.code))
    for mnemonic in ("H_PREFETCH_M", "H_PREFETCH_V", "H_STORE_V"):
        for name, sweep in (("bases", _hbm_bases), ("strides", _hbm_strides)):
            source = Source(config)
            sweep(source, mnemonic)
            case = source.case(contents(config, BY_MNEMONIC[mnemonic].code))
            yield f"{name} of {mnemonic}", case
    for name, sweep in (
        ("policies", _policies),
        ("many experts", _many_experts),
        ("loops", _loops),
        ("state", _state),
        ("waits", _waits),
    ):
        source = Source(config)
        sweep(source)
        yield name, source.case(_with_powers(contents(config, 7)))


# Words.


def _encodings(source: Source, opcode: Opcode) -> None:
    """Every unused bit, every value of every flag, every register index; the rest 0."""
    source.word(opcode.code)
    for bit in range(6, 32):
        if not opcode.used_mask >> bit & 1:
            source.word(opcode.code | 1 << bit)
    for operand in opcode.operands:
        if operand.kind in (Kind.FLAG, Kind.F, Kind.A):
            for value in range(operand.field.limit + 1):
                source.word(opcode.code | operand.field.put(value))
    registers = [o for o in opcode.operands if o.kind in (Kind.F, Kind.A)]
    for first in registers:
        for second in registers:
            source.word(opcode.code | first.field.put(8) | second.field.put(9))


# Addresses.


def _is_swept(access: Access) -> bool:
    """Whether its address registers are swept here; those of HBM have sweeps of their own."""
    return bool(access.base) and access.extent is not Extent.HBM_ROWS


def _legal(rules: AddressRules, extent: Extent) -> list[int]:
    """A legal address away from 0, and the last one."""
    align, largest = rules.limits(extent)
    return [min(align, largest - largest % align), largest - largest % align]


def _addresses(source: Source, opcode: Opcode) -> None:
    """Each address register of an instruction with one bit of a legal address inverted, at the last
    legal address and beyond it; so too the immediate, and sums that leave 32 bits."""
    rules = AddressRules(source.config)
    addressed = {field: a for a in opcode.accesses if _is_swept(a) for field in a.base}
    fields = {o.name: o for o in opcode.operands}
    numbers = {"rd": 1, "rs1": 2, "rs2": 3}
    for field, access in addressed.items():
        align, largest = rules.limits(access.extent)
        top = largest - largest % align
        values = [legal ^ 1 << bit for legal in _legal(rules, access.extent) for bit in range(32)]
        values += [top + align, top + 1, align // 2, _LAST, _limit(source.config, access.extent)]
        values += [_limit(source.config, access.extent) + d for d in (-1, 1, align, -align)]
        for value in values:
            for other in addressed:
                source.gp(numbers[other], 0)
            source.gp(numbers[field], value)
            _emit(source, opcode, fields, numbers, 0)
            if access.imm and 0 <= value < 1 << 18:
                source.gp(numbers[field], 0)
                _emit(source, opcode, fields, numbers, value)
        if access.imm:
            for part in (1, top, _LAST - 1):
                source.gp(numbers[field], _LAST - part + 1)
                _emit(source, opcode, fields, numbers, part & 0x3FFFF)
    if opcode.mnemonic == "M_MM_WO":
        rows, blen = source.config.VRAM_ROWS, source.config.BLEN
        for row in (0, 3, rows // 2):
            largest = (rows - 1 - row) // (blen - 1)
            for stride in (0, 1, largest, largest + 1, *(1 << bit for bit in range(32))):
                source.gp(1, row * source.config.MLEN)
                source.gp(2, stride)
                source.op("M_MM_WO", 1, 2, 0)
                source.op("M_MM_WO", 1, 0, 0)


def _limit(config: PlenaConfig, extent: Extent) -> int:
    """The size of the memory that an access is in."""
    if extent in (Extent.TILE, Extent.COLUMN_GROUP) or "SLICE" in extent.name:
        return config.mram_elements
    if extent in (Extent.WORD, Extent.TOPK_WORDS, Extent.ROW_WORDS):
        return config.FP_MEM_WORDS
    return config.vram_elements


def _emit(
    source: Source, opcode: Opcode, fields: dict[str, Operand], numbers: dict[str, int], imm: int
) -> None:
    values: list[int] = []
    for name, operand in fields.items():
        if operand.kind is Kind.GP:
            addressed = any(name in a.base for a in opcode.accesses)
            values.append(numbers[name] if addressed or operand.reads else 4)
        else:
            values.append(imm if operand.kind is Kind.IMM else 0)
    source.op(opcode.mnemonic, *values)


# HBM.


def _transfer(
    source: Source, mnemonic: str, base: int, offset: int, flags: tuple[int, int]
) -> None:
    """One transfer; a store is read back, and rows are stored before they are fetched."""
    source.base(1, base, (5, 6))
    source.gp(2, offset)
    rstride, precision = flags
    if mnemonic == "H_STORE_V":
        source.op("H_STORE_V", 1, 2, 1, rstride, precision)
        source.gp(3, 40 * source.config.MLEN)
        source.op("H_PREFETCH_V", 3, 2, 1, rstride, precision)
    else:
        source.op("H_STORE_V", 4, 2, 1, rstride, precision)
        source.op(mnemonic, 1, 2, 1, rstride, precision)


def _hbm_bases(source: Source, mnemonic: str) -> None:
    """Bits of the base, the offset and SCALE; the end of the memory."""
    c = source.config
    rows = {"H_PREFETCH_M": c.m_prefetch, "H_PREFETCH_V": c.v_prefetch}
    count = rows.get(mnemonic, c.v_writeback)
    bytes_of = count * c.MLEN
    source.gp(4, 8 * c.MLEN)
    source.gp(7, 4096)
    source.op("C_SET_SCALE_REG", 7)
    for bit in range(64):
        _transfer(source, mnemonic, 1 << bit, 0, (0, 0))
    for bit in range(32):
        _transfer(source, mnemonic, 64, 1 << bit, (0, bit & 1))
    for bit in range(32):
        source.gp(7, 1 << bit)
        source.op("C_SET_SCALE_REG", 7)
        _transfer(source, mnemonic, 8192, 64, (0, 0))
    source.gp(7, 0)
    source.op("C_SET_SCALE_REG", 7)
    for more in (0, 1, c.MX_BLOCK, 64, -1):
        _transfer(source, mnemonic, c.HBM_BYTES - bytes_of + more, 0, (0, 0))
        _transfer(source, mnemonic, c.HBM_BYTES - bytes_of - 64 + more, 64, (0, 0))
    scales = bytes_of // c.MX_BLOCK
    for more in (0, 1, -1, 64, c.MX_BLOCK, -c.MX_BLOCK):
        base = c.HBM_BYTES - (1 << 20)
        source.gp(7, (1 << 20) - scales + more)
        source.op("C_SET_SCALE_REG", 7)
        _transfer(source, mnemonic, base, 0, (0, 0))
        _transfer(source, mnemonic, base - 8, 64, (0, 0))


def _hbm_strides(source: Source, mnemonic: str) -> None:
    """Bits of STRIDE, alone and with others; strides that end at the memory's last byte."""
    c = source.config
    source.gp(4, 8 * c.MLEN)
    source.gp(7, 1 << 15)
    source.op("C_SET_SCALE_REG", 7)
    for bit in range(32):
        source.gp(7, 1 << bit)
        source.op("C_SET_STRIDE_REG", 7)
        _transfer(source, mnemonic, 0, 0, (1, 0))
        source.gp(7, 1 << bit | c.MX_BLOCK)
        source.op("C_SET_STRIDE_REG", 7)
        _transfer(source, mnemonic, 24, 8, (1, 1))
    for count in (c.v_prefetch, c.m_prefetch, c.v_writeback):
        for stride in (1 << 20, (1 << 31) + 64):
            source.gp(7, stride)
            source.op("C_SET_STRIDE_REG", 7)
            for more in (0, 8, -8):
                reach = (count - 1) * stride + c.MLEN
                _transfer(source, mnemonic, c.HBM_BYTES - reach + more, 0, (1, 0))


# Policies, loops, state.


def _with_powers(given: Contents) -> Contents:
    """INT_MEM begins with the powers of 2 from 2^1 on, then 1."""
    powers = [1 << bit for bit in range(1, 32)] + [1]
    ints = given.ints.copy()
    ints[: len(powers)] = powers
    return Contents(given.vector, given.matrix, given.fp, ints, given.hbm)


def _policies(source: Source) -> None:
    """Top-k policies at the limits of their fields; unset before."""
    most = source.config.TOPK_MAX
    source.op("V_TOPK", 0, 0, 0, 15)
    policies = [experts << 8 | k for experts in (1, 2, 7, 8, 9, 16, 17, 40) for k in range(20)]
    policies += [experts << 8 | 1 for experts in (0, 63, 64, 65, 127, 128, 129, 255, 256, 511)]
    policies += [experts << 8 | most for experts in (1023, 1024, 1025, 2049)]
    policies += [8 << 8 | 2 | 1 << bit for bit in range(32)]
    policies += [300 << 8 | k for k in (17, 18, 20, 24, 32, 33, 64, 65, 128, 129, 144, 240, 255)]
    for policy in policies:
        source.gp(1, policy)
        source.op("C_SET_TOPK_REG", 1)
        source.op("V_TOPK", 0, 0, 0, 15)
    for rmask, experts in ((0, 32), (1, 128)):
        last = source.config.vram_elements - -(-experts // source.config.MLEN) * source.config.MLEN
        for start in (last, last + source.config.MLEN):
            source.gp(1, start)
            source.op("V_TOPK", 0, 1, 0, rmask)
    words, size = source.config.FP_MEM_WORDS, source.config.INT_MEM_WORDS
    for k in range(1, most + 1):
        source.gp(1, 20 << 8 | k)
        source.op("C_SET_TOPK_REG", 1)
        for limit, fields in ((words, (1, 0)), (size, (0, 1))):
            for more in (0, 1):
                source.gp(1, limit - k + more)
                source.op("V_TOPK", fields[0], 0, fields[1], 15)
    for bit in range(32):
        for address in (1 << bit, words - most + (1 << bit)):
            source.gp(1, address)
            source.op("V_TOPK", 1, 0, 0, 15)
            source.op("V_TOPK", 0, 0, 1, 15)


def _many_experts(source: Source) -> None:
    """The last rows that fit, and those behind: numbers of experts with every one and two bits."""
    c = source.config
    rows_bits = range(c.MLEN.bit_length() - 1, 13)
    numbers = {
        1 << a | 1 << b | low for a in rows_bits for b in rows_bits for low in (0, 1, c.BLEN)
    }
    for experts in sorted(numbers):
        source.gp(1, experts << 8 | 1)
        source.op("C_SET_TOPK_REG", 1)
        first = c.VRAM_ROWS - -(-experts // c.MLEN)
        for row in (first + 1, first) if experts < 600 or experts % 2 else (first + 1,):
            source.gp(1, row * c.MLEN)
            source.op("V_TOPK", 0, 1, 0, 15)


def _loops(source: Source) -> None:
    """Every depth with another register, ends of the wrong loop at every depth, counters with every
    bit, counts with every bit."""
    depth = source.config.LOOP_DEPTH
    source.op("C_LOOP_END", 0)
    source.op("C_LOOP_START", 1, 0)
    for order in (range(depth), reversed(range(depth))):
        registers = [1 + i for i in order]
        for level, register in enumerate(registers):
            source.op("C_LOOP_START", register, 1 + (level % 3 == 2))
            for wrong in (register ^ 1, register ^ 2, register ^ 4, register ^ 8, 0):
                source.op("C_LOOP_END", wrong & 15)
            source.op("S_ADDI_INT", 15, 15, 1 << level)
        source.op("C_LOOP_START", 9, 3)
        _at_full_depth(source)
        for register in reversed(registers):
            source.op("S_ADDI_INT", 14, 14, register)
            source.op("C_LOOP_END", register)
    source.op("C_LOOP_END", 1)
    source.op("S_ST_INT", 14, 0, 100)
    source.op("S_ST_INT", 15, 0, 101)
    for bit in range(22):
        for register in (1, 2, 4, 7, 8, 15):
            source.op("C_LOOP_START", register, 1 << bit)
            source.op("S_ST_INT", register, 0, 64 + bit)
            source.gp(register, 1)
            source.op("C_LOOP_END", register)
    for register in range(16):
        source.op("C_LOOP_START", register, 0)
    source.gp(2, 0)
    source.op("C_LOOP_START", 1, 2)
    source.op("S_ST_INT", 1, 2, 200)
    source.op("S_LD_INT", 1, 2, 0)
    source.op("S_ADDI_INT", 2, 2, 1)
    source.op("C_LOOP_END", 1)
    source.op("S_ST_INT", 2, 0, 190)


def _at_full_depth(source: Source) -> None:
    """Loops that do not fit, with any count, and other traps and words meanwhile."""
    for bit in range(22):
        source.op("C_LOOP_START", 9, 1 << bit)
    source.gp(13, _LAST)
    source.op("S_LD_FP", 1, 13, 0)
    source.op("S_ST_INT", 1, 13, 0)
    source.op("V_EXP_V", 13, 13, 0)
    source.op("M_MV", 0, 13, 0)
    source.op("H_PREFETCH_V", 0, 13, 0, 0, 0)
    source.op("V_TOPK", 13, 0, 0, 0)
    for register in range(1, 16):
        source.op("C_SET_ADDR_REG", 7, register, register)


def _state(source: Source) -> None:
    """State registers with every bit, visible in the halt's state; wrapped integer arithmetic."""
    for mnemonic in ("C_SET_SCALE_REG", "C_SET_STRIDE_REG", "C_SET_V_MASK_REG", "C_SET_TOPK_REG"):
        for bit in range(32):
            source.gp(1, 1 << bit)
            source.op(mnemonic, 1)
            if bit % 8 == 7:
                source.op("C_BREAK")
        source.gp(1, _LAST)
        source.op(mnemonic, 1)
        source.op("C_BREAK")
    for index in range(8):
        source.base(index, 0x0123_4567_89AB_CDEF << index, (1, 2))
        source.base((index + 3) % 8, ~(0x0F0F_3333_5555_0001 << index), (1, 2))
    source.op("C_BREAK")
    for register in range(1, 16):
        source.op("S_LD_INT", register, 0, register + 40)
    for number in range(64):
        mnemonic = ("S_ADD_INT", "S_SUB_INT", "S_MUL_INT")[number % 3]
        source.op(mnemonic, 1 + number * 7 % 15, 1 + number * 4 % 15, 1 + number * 11 % 15)
        source.op("S_ST_INT", 1 + number * 7 % 15, 0, 128 + number)


def _waits(source: Source) -> None:
    """Every register read in every field, and written, in the cycle after it was asked for; words
    that trap read it too."""
    for register in range(1, 16):
        for number, (mnemonic, *operands) in enumerate(
            (
                ("S_ADD_INT", 15, register, 0),
                ("S_ADD_INT", 15, 0, register),
                ("S_ST_INT", register, 0, 200),
                ("S_ADDI_INT", register, 0, 5),
                ("S_LD_INT", register, 0, 3),
                ("C_SET_SCALE_REG", register),
            )
        ):
            source.op("S_LD_INT", register, 0, 40 + number)
            source.op(mnemonic, *operands)
            source.op("S_ST_INT", 15, 0, 201 + 8 * register + number)
        for mnemonic, field in (("S_ADD_INT", "rs1"), ("S_ADD_INT", "rs2"), ("S_ST_FP", "rs1")):
            source.op("S_LD_INT", register, 0, 2)
            opcode = BY_MNEMONIC[mnemonic]
            illegal = 1 << 31 if mnemonic == "S_ADD_INT" else 8 << 6
            source.word(opcode.code | FIELDS[field].put(register) | illegal)
    for register in range(1, 8):
        for mnemonic, *operands in (
            ("S_ADD_FP", 7, register, 0),
            ("S_ADD_FP", 7, 0, register),
            ("S_ST_FP", register, 0, 100),
            ("S_LD_FP", register, 0, 9),
            ("V_RED_SUM", register, 0, 0),
            ("V_MUL_VF", 0, 0, register, 0),
        ):
            source.op("S_LD_FP", register, 0, register)
            source.op(mnemonic, *operands)
            source.op("S_ST_FP", 7, 0, 101 + register)
        for other in range(1, 16):
            _both_wait(source, other, register)
        for field in ("rs1", "rs2"):
            source.op("S_LD_FP", register, 0, 5)
            word = BY_MNEMONIC["S_ADD_FP"].code | FIELDS[field].put(register)
            source.word(word | FIELDS["rd"].put(9))
            source.op("V_RED_SUM", register, 0, 0)
            source.word(word | FIELDS["rd"].put(9))


def _both_wait(source: Source, gp: int, f: int) -> None:
    """A gp register and an f register that are both awaited, read in every field; and read while
    only another one is awaited."""
    for operands in ((15, gp, 0), (15, 0, gp)):
        source.op("V_RED_SUM", f, 0, 0)
        source.op("S_LD_INT", gp, 0, 20 + gp)
        source.op("S_ADD_INT", *operands)
    source.op("V_RED_SUM", f, 0, 0)
    source.op("S_LD_INT", gp, 0, 40 + gp)
    source.op("S_ST_FP", f, 0, 90)
    source.op("S_LD_INT", gp, 0, 20 + f)
    source.op("S_ST_FP", f, 0, 91)
    source.op("S_LD_INT", gp, 0, 40 + f)
    source.op("S_ADD_FP", 7, f, f)
    source.op("S_ST_INT", 15, 0, 92)
