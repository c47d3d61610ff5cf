"""Constants in registers, and control registers that are written only when their value changes.

Values are legalised here (lowering.md, "Registers and immediates"): an 18-bit immediate where it
fits, else S_LUI_INT with S_ADDI_INT. Negative immediates do not exist.
"""

from compiler.errors import CompileError
from compiler.program import Program
from compiler.registers import GP0, Register
from isa.operands import FIELDS, Kind

IMM18 = FIELDS["imm18"].limit
_LOW_BITS = 12
_LOW_MASK = (1 << _LOW_BITS) - 1
_WORD = 1 << 32


def load_immediate(prog: Program, register: Register, value: int) -> None:
    """gp = value, 0 to 2^32 - 1, in one or two instructions."""
    if not 0 <= value < _WORD:
        raise CompileError(
            f"{register} = {value}: a register holds 0 to {_WORD - 1} (load it modulo 2**32)"
        )
    if value <= IMM18:
        prog.emit("S_ADDI_INT", register, GP0, value)
        return
    prog.emit("S_LUI_INT", register, value >> _LOW_BITS)
    if value & _LOW_MASK:
        prog.emit("S_ADDI_INT", register, register, value & _LOW_MASK)


def add_immediate(
    prog: Program, target: Register, source: Register, value: int, *, spare: Register | None = None
) -> None:
    """target = source + value, value at least 0.

    Above 18 bits the value is built in `spare`, in `target` when that is another register than
    `source`, or in a free register; without any, S_ADDI_INT is repeated. Nothing is emitted for an
    addition of 0 in place.
    """
    if value < 0:
        raise CompileError(
            f"{target} = {source} + {value}: immediates are unsigned (use S_SUB_INT)"
        )
    if spare is not None and spare.index == source.index:
        raise CompileError(
            f"{target} = {source} + {value}: the spare register must not be the source {source}"
        )
    if value == 0 and target.index == source.index:
        return
    if value <= IMM18:
        prog.emit("S_ADDI_INT", target, source, value)
    elif spare is not None or target.index != source.index:
        built = target if spare is None else spare
        load_immediate(prog, built, value)
        prog.emit("S_ADD_INT", target, source, built)
    elif prog.registers[Kind.GP].free:
        with prog.gp("large immediate") as built:
            load_immediate(prog, built, value)
            prog.emit("S_ADD_INT", target, source, built)
    else:
        for done in range(0, value, IMM18):
            prog.emit("S_ADDI_INT", target, source, min(IMM18, value - done))


def set_scale(prog: Program, value: int) -> None:
    """SCALE = value, unless it is known to hold it."""
    _set_control(prog, "SCALE", value)


def set_stride(prog: Program, value: int) -> None:
    """STRIDE = value, unless it is known to hold it."""
    _set_control(prog, "STRIDE", value)


def set_topk_policy(prog: Program, value: int) -> None:
    """The policy register of V_TOPK = value, unless it is known to hold it."""
    _set_control(prog, "TOPK", value)


def set_address(prog: Program, register: Register, address: int) -> None:
    """a = address with both 32-bit words, unless it is known to hold it."""
    if not prog.tracked.known(str(register), address):
        _write_address(prog, register, address)


def restore(prog: Program, key: str, value: int) -> None:
    """Set the control register that `TrackedState` calls `key` again."""
    if key in _CONTROL:
        _set_control(prog, key, value)
    else:
        register = prog.registers[Kind.A].holder(int(key.removeprefix("a")))
        _write_address(prog, register, value)


_CONTROL = {
    "SCALE": "C_SET_SCALE_REG",
    "STRIDE": "C_SET_STRIDE_REG",
    "V_MASK": "C_SET_V_MASK_REG",
    "TOPK": "C_SET_TOPK_REG",
}


def _set_control(prog: Program, key: str, value: int) -> None:
    if prog.tracked.known(key, value):
        return
    with prog.gp(key) as loaded:
        load_immediate(prog, loaded, value)
        prog.emit(_CONTROL[key], loaded)
    prog.tracked.wrote(key, value)


def _write_address(prog: Program, register: Register, address: int) -> None:
    high, low = divmod(address, _WORD)
    with prog.gps("address, low word", "address, high word") as (low_word, high_word):
        load_immediate(prog, low_word, low)
        if high:
            load_immediate(prog, high_word, high)
        prog.emit("C_SET_ADDR_REG", register, high_word if high else GP0, low_word)
    prog.tracked.wrote(str(register), address)
