"""Why the machine stopped: the causes that the halt record can hold (isa.md, "Traps")."""

from amaranth.lib import enum


class Trap(enum.IntEnum, shape=5):
    """Cause of a halt; `DONE` and `BREAK` are orderly, every other one is an error of the program
    or the memory."""

    NONE = 0
    DONE = 1
    BREAK = 2
    ILLEGAL_OPCODE = 3
    ILLEGAL_ENCODING = 4
    REGISTER_INDEX = 5
    TOPK_POLICY_UNSET = 6
    TOPK_POLICY_RANGE = 7
    LOOP_COUNT_ZERO = 8
    LOOP_OVERFLOW = 9
    LOOP_MISMATCH = 10
    MATRIX_ADDRESS = 11
    VECTOR_ADDRESS = 12
    FP_MEM_ADDRESS = 13
    INT_MEM_ADDRESS = 14
    HBM_ADDRESS = 15
    WATCHDOG = 16

    @property
    def is_error(self) -> bool:
        """Whether the run failed; an orderly halt is DONE or BREAK."""
        return self not in (Trap.NONE, Trap.DONE, Trap.BREAK)


#: What each error means and the way out, for the host's report.
TRAP_HELP: dict[Trap, str] = {
    Trap.ILLEGAL_OPCODE: "the word's opcode is not defined; the image is corrupt or made for "
    "another ISA",
    Trap.ILLEGAL_ENCODING: "a field that this opcode does not use is not zero, or a selector has "
    "an undefined value; re-assemble it",
    Trap.REGISTER_INDEX: "f and a registers are numbered 0 to 7",
    Trap.TOPK_POLICY_UNSET: "V_TOPK with rmask 15 needs a C_SET_TOPK_REG before it",
    Trap.TOPK_POLICY_RANGE: "the policy must satisfy 1 <= top_k <= min(num_experts, TOPK_MAX)",
    Trap.LOOP_COUNT_ZERO: "C_LOOP_START needs a count of at least 1; leave the loop out instead",
    Trap.LOOP_OVERFLOW: "loops nest at most 8 deep",
    Trap.LOOP_MISMATCH: "C_LOOP_END must name the counter register of the innermost open loop",
    Trap.MATRIX_ADDRESS: "matrix SRAM address out of range or not aligned to the tile or column "
    "group",
    Trap.VECTOR_ADDRESS: "vector SRAM address out of range or not aligned to a row",
    Trap.FP_MEM_ADDRESS: "FP_MEM address out of range",
    Trap.INT_MEM_ADDRESS: "INT_MEM address out of range",
    Trap.HBM_ADDRESS: "HBM address out of range, an offset that is not a multiple of the MX block, "
    "or a memory error",
    Trap.WATCHDOG: "raise the cycle limit of a long run; else look for a loop that never ends, or "
    "for an instruction that never completes",
}
