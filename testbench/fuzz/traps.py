"""Instructions that must trap, and instructions at the limits of what is legal."""

from collections.abc import Callable, Sequence

from isa.opcodes import BY_MNEMONIC, OPCODES
from isa.operands import Kind
from testbench.fuzz.emitter import Emitter

_LARGE = 0x3FFFF


def _vector(e: Emitter) -> None:
    address = e.rng.choice((1, e.config.VRAM_ROWS * e.config.MLEN, _LARGE))
    bad = e.set_gp(address)
    operands = [0, 0, 0]
    operands[e.rng.randrange(3)] = bad
    e.line("V_ADD_VV", *operands, 0)


def _matrix(e: Emitter) -> None:
    bad = e.set_gp(e.rng.choice((8, e.config.mram_elements)))
    e.line("M_MM", 0, bad, e.set_gp(1))


def _write_out(e: Emitter) -> None:
    e.line("M_MM_WO", 0, e.set_gp(e.config.VRAM_ROWS), 0)


def _words(e: Emitter) -> None:
    mnemonic = e.rng.choice(("S_LD_FP", "S_ST_FP", "S_MAP_V_FP", "S_LD_INT", "S_ST_INT"))
    e.line(mnemonic, 0, e.set_gp(e.rng.choice((1, 100))), _LARGE)


def _wrapping(e: Emitter) -> None:
    one, bad = e.set_gp(1), e.target()
    e.line("S_SUB_INT", bad, 0, one)
    e.known[bad] = None
    e.line("S_LD_INT", 0, bad, 1)


def _hbm(e: Emitter) -> None:
    high = e.set_gp(e.rng.choice((4, 1 << 17)))
    e.line("C_SET_ADDR_REG", 7, high, 0)
    e.line(e.rng.choice(("H_PREFETCH_V", "H_PREFETCH_M", "H_STORE_V")), 0, 0, 7, 0, 0)


def _hbm_offset(e: Emitter) -> None:
    e.line("H_PREFETCH_V", 0, e.set_gp(e.rng.choice((1, 4, 12))), 0, 0, 0)


def _loops(e: Emitter) -> None:
    kind = e.rng.randrange(3)
    if kind == 0:
        e.line("C_LOOP_START", e.target(), 0)
    elif kind == 1:
        e.line("C_LOOP_END", 0)
    else:
        for _ in range(e.config.LOOP_DEPTH + 1):
            e.line("C_LOOP_START", 0, 1)


def _topk(e: Emitter) -> None:
    policy = e.rng.choice((0, 8 << 8, 2 << 8 | 3, 255 << 8 | 200, 1 << 22 | 8 << 8 | 1))
    register = e.target()
    e.line("S_LUI_INT", register, policy >> 12)
    e.line("S_ADDI_INT", register, register, policy & 0xFFF)
    e.known[register] = None
    e.line("C_SET_TOPK_REG", register)
    e.line("V_TOPK", 0, 0, 0, 15)


def _topk_words(e: Emitter) -> None:
    operands = [0, 0, 0]
    operands[e.rng.randrange(3)] = e.set_gp(e.rng.choice((1017, 1021, _LARGE)))
    e.line("V_TOPK", *operands, e.rng.randrange(2))


def _word(e: Emitter) -> None:
    code = e.rng.randrange(64)
    word = e.rng.getrandbits(26) << 6 | code
    if code in OPCODES and not word & ~OPCODES[code].used_mask:
        word |= 1 << 31 | 8 << 6
    e.raw(word)


def limits(e: Emitter) -> list[int]:
    """Values at which an address, a count or a stride stops being legal, and beside them."""
    c, mlen = e.config, e.config.MLEN
    whole = [
        c.vram_elements,
        c.mram_elements,
        c.FP_MEM_WORDS,
        c.INT_MEM_WORDS,
        c.VRAM_ROWS,
        1 << 32,
    ]
    units = [0, 1, c.BLEN, c.HLEN, mlen, c.BLEN * mlen, c.HLEN * mlen, mlen * mlen]
    units += [c.heads * mlen, c.heads * mlen * mlen, c.TOPK_MAX, 4, 8]
    near = [limit - unit for limit in whole for unit in units]
    return [value & 0xFFFFFFFF for value in (*near, *units, c.VRAM_ROWS // (c.BLEN - 1))]


def near_limits(e: Emitter, mnemonics: Sequence[str]) -> None:
    """Append any instruction, its registers and immediate at the limits: it may trap or not."""
    opcode = BY_MNEMONIC[e.rng.choice(mnemonics)]
    values = limits(e)
    fields: dict[str, int] = {}
    for operand in opcode.operands:
        if operand.kind is Kind.GP and operand.reads:
            value = e.rng.choice(values)
            register = e.rng.randrange(1, 15)
            e.line("S_LUI_INT", register, value >> 12)
            e.line("S_ADDI_INT", register, register, value & 0xFFF)
            e.known[register] = None
            fields[operand.name] = register if e.rng.random() < 0.8 else 0
        elif operand.kind is Kind.GP:
            fields[operand.name] = register = e.rng.randrange(1, 15)
            e.known[register] = None
        elif operand.kind is Kind.FLAG:
            fields[operand.name] = e.rng.choice(operand.allowed)
        elif operand.kind is Kind.ZERO:
            fields[operand.name] = 0
        elif operand.kind is Kind.IMM:
            fits = [v for v in values if v <= operand.largest]
            fields[operand.name] = e.rng.choice((0, e.rng.choice(fits)))
        else:
            fields[operand.name] = e.rng.randrange(operand.largest + 1)
    e.line(opcode.mnemonic, *(fields[o.name] for o in opcode.operands))


KINDS: tuple[Callable[[Emitter], None], ...] = (
    _vector,
    _matrix,
    _write_out,
    _words,
    _wrapping,
    _hbm,
    _hbm_offset,
    _loops,
    _topk,
    _topk_words,
    _word,
)


def emit_trap(emitter: Emitter) -> None:
    """Append something that traps; a random word may also be legal, then anything goes."""
    emitter.rng.choice(KINDS)(emitter)
