"""How long a program is when it runs, as far as its words say."""

from isa.image import ProgramImage
from isa.instruction import DecodeError, Instruction

__all__ = ["expected_dispatches"]


def expected_dispatches(image: ProgramImage, enough: int | None = None) -> int:
    """Instructions that a run dispatches, if every loop makes the turns of its C_LOOP_START.

    No cycle dispatches two, so a run has at least as many cycles. A program that changes a trip
    count, or ends before its last word, has other numbers; a word that is none counts 1. With
    `enough`, counting ends there.
    """
    total, turns = 0, [1]
    for word in image.words:
        total += turns[-1]
        if enough is not None and total >= enough:
            break
        try:
            instruction = Instruction.decode(word)
        except DecodeError:
            continue
        if instruction.opcode.mnemonic == "C_LOOP_START":
            turns.append(turns[-1] * max(1, instruction.value("imm")))
        elif instruction.opcode.mnemonic == "C_LOOP_END" and len(turns) > 1:
            turns.pop()
    return total
