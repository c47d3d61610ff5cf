"""A program under construction: typed instructions, stage markers, registers, words per emitter."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import SupportsIndex

from compiler.errors import CompileError
from compiler.hbm import HbmLayout
from compiler.registers import Register, RegisterFile
from compiler.scalar_memory import FpMem, IntMem
from compiler.tracking import TrackedState
from compiler.vram import VramLayout
from isa import BY_MNEMONIC, Instruction, PlenaConfig, ProgramImage, Stage, assemble
from isa.operands import Kind, Operand

#: A detail is one printable line; `pair=` in it must be a number (attribution.md, "Pair labels").
_DETAIL = re.compile(r"[ -~]*")
_BAD_PAIR = re.compile(r"pair=(?![0-9]+(\s|$))")
_MARKER = "; @stage="
#: Emitters named in the error about a program that is too long.
_EMITTERS_SHOWN = 5


#: A line of the program: an instruction, or a comment (a marker is one).
Item = Instruction | str


class Program:
    """Instructions, comments and markers in order, and the memories and registers they use.

    Emitters take a `Program` and append to it. Output depends on the calls alone. `hbm`, `vram`,
    `fp_mem`, `int_mem` are the memory layouts, `tracked` the known control registers.
    """

    def __init__(self, config: PlenaConfig, name: str) -> None:
        self.config, self.name = config, name
        self.hbm, self.vram = HbmLayout(config), VramLayout(config)
        self.fp_mem, self.int_mem = FpMem(config), IntMem(config)
        self.tracked = TrackedState()
        self.registers = {kind: RegisterFile(kind) for kind in (Kind.GP, Kind.F, Kind.A)}
        self._items: list[Item] = []
        self._marker = ""
        self._emitters: list[str] = []
        self._words: Counter[str] = Counter()

    # Instructions.

    def emit(self, mnemonic: str, *operands: SupportsIndex, **flags: int) -> None:
        """Append an instruction; operands in assembler order without the literal 0, flags by name.

        Raises:
            CompileError: a register of the wrong kind or one that is not held, an unknown flag, a
                missing operand or one too many.
            InstructionError: a value out of range.
        """
        row = BY_MNEMONIC.get(mnemonic)
        if row is None:
            Instruction.make(mnemonic)  # raises, and names the nearest mnemonic
            raise AssertionError(mnemonic)
        given, values = iter(operands), []
        for operand in row.operands:
            if operand.kind is Kind.ZERO:
                values.append(0)
            elif operand.kind is Kind.FLAG:
                values.append(flags.pop(operand.name, 0))
            else:
                value = next(given, None)
                if value is None:
                    raise CompileError(f"{mnemonic}: operand {operand.name} is missing")
                values.append(self._checked(mnemonic, operand, value))
        surplus = [str(v) for v in given] + sorted(flags)
        if surplus:
            raise CompileError(f"{mnemonic}: takes no operand or flag {', '.join(surplus)}")
        self._items.append(Instruction.make(mnemonic, *values))
        self._words[self._emitters[-1] if self._emitters else "program"] += 1

    def _checked(self, mnemonic: str, operand: Operand, value: SupportsIndex) -> int:
        if operand.is_register:
            if not isinstance(value, Register) or value.kind is not operand.kind:
                raise CompileError(
                    f"{mnemonic}: operand {operand.name} must be a {operand.kind.value} register, "
                    f"not {value}"
                )
            self.registers[value.kind].check(value)
        elif isinstance(value, Register):
            raise CompileError(f"{mnemonic}: operand {operand.name} must be a number, not {value}")
        return value.__index__()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions so far, without comments."""
        return tuple(item for item in self._items if isinstance(item, Instruction))

    @property
    def words_by_emitter(self) -> dict[str, int]:
        """Words per emitter, the largest first."""
        return dict(sorted(self._words.items(), key=lambda item: (-item[1], item[0])))

    @contextmanager
    def emitter(self, name: str) -> Iterator[None]:
        """Account what is emitted inside to `name` (the innermost open one counts)."""
        self._emitters.append(name)
        try:
            yield
        finally:
            self._emitters.pop()

    # Comments and stages.

    def comment(self, text: str) -> None:
        """Append a comment line; it may not look like a marker or carry a label."""
        if "@stage" in text or "pair" in text or not _DETAIL.fullmatch(text):
            raise CompileError(f"comment {text!r}: markers and labels are written by stage() only")
        self._items.append(f"; {text}")

    def stage(self, stage: Stage | str, detail: str = "") -> None:
        """Append the marker of `stage`; only the emitter that owns the stage calls this.

        `detail` is free text and may start with the label `pair=N` or `row=N`.

        Raises:
            CompileError: a name outside the vocabulary, or a detail that is no printable line.
        """
        try:
            known = Stage.from_label(stage) if isinstance(stage, str) else stage
        except ValueError as error:
            raise CompileError(str(error)) from error
        if not _DETAIL.fullmatch(detail) or _BAD_PAIR.search(detail) or "@stage" in detail:
            raise CompileError(f"stage detail {detail!r}: one printable line; pair= takes a number")
        self._marker = f"{_MARKER}{known.label} {detail}".rstrip()
        self._items.append(self._marker)

    def end_region(self, detail: str = "end of the MoE region") -> None:
        """Mark the end of the MoE region; whoever assembles the whole program calls this once."""
        self.stage("non_moe", detail)

    # Order.

    @contextmanager
    def aside(self) -> Iterator[list[Item]]:
        """What is emitted inside goes to the list that is yielded, for `weave`; the stage before it
        holds behind it again."""
        items, marker = self._items, self._marker
        self._items = [marker] if marker else []
        try:
            yield self._items
        finally:
            self._items, self._marker = items, marker

    def weave(self, main: list[Item], side: list[Item]) -> None:
        """Append two runs of instructions, those of `side` evenly between those of `main`.

        Each keeps its order and its stages; the stage that holds now holds behind them again. The
        two depend on each other in no way, and neither has a loop or a loop's end.
        """
        rest = list(_marked(side))
        total, put = len(rest), 0
        length = sum(isinstance(item, Instruction) for item in main)
        before = self._marker
        for number, (marker, instruction) in enumerate(_marked(main), 1):
            self._append_marked(marker, instruction)
            while put < total * number // length:
                self._append_marked(*rest[put])
                put += 1
        for marker, instruction in rest[put:]:
            self._append_marked(marker, instruction)
        self._append_marked(before, None)

    def _append_marked(self, marker: str, instruction: Instruction | None) -> None:
        if marker != self._marker:
            self._marker = marker
            self._items.append(marker)
        if instruction is not None:
            self._items.append(instruction)

    # Registers.

    @contextmanager
    def gp(self, holder: str) -> Iterator[Register]:
        """One general-purpose register for the length of the block."""
        with self._hold(Kind.GP, holder) as (register,):
            yield register

    @contextmanager
    def f(self, holder: str) -> Iterator[Register]:
        """One BF16 register for the length of the block."""
        with self._hold(Kind.F, holder) as (register,):
            yield register

    @contextmanager
    def a(self, holder: str) -> Iterator[Register]:
        """One HBM address register for the length of the block."""
        with self._hold(Kind.A, holder) as (register,):
            yield register
        self.tracked.forget(str(register))

    @contextmanager
    def gps(self, *holders: str) -> Iterator[tuple[Register, ...]]:
        """Several general-purpose registers, in the order of `holders`."""
        with self._hold(Kind.GP, *holders) as registers:
            yield registers

    @contextmanager
    def fs(self, *holders: str) -> Iterator[tuple[Register, ...]]:
        """Several BF16 registers, in the order of `holders`."""
        with self._hold(Kind.F, *holders) as registers:
            yield registers

    @contextmanager
    def _hold(self, kind: Kind, *holders: str) -> Iterator[tuple[Register, ...]]:
        file = self.registers[kind]
        with ExitStack() as stack:
            taken = []
            for holder in holders:
                taken.append(file.take(holder))
                stack.callback(file.give, taken[-1])
            yield tuple(taken)

    # The result.

    def render(self) -> str:
        """The program as assembly text."""
        lines = [item if isinstance(item, str) else f"    {item.text()}" for item in self._items]
        return "\n".join([f"; program {self.name}", *lines, ""])

    def build(self) -> ProgramImage:
        """Assemble the text, so that there is one path from source to tag.

        Raises:
            CompileError: registers still held, or more words than IMEM_WORDS (the error names the
                emitters that take most).
        """
        held = [f"{r} {r.holder!r}" for file in self.registers.values() for r in file.held]
        if held:
            raise CompileError(f"program {self.name!r}: registers still held: {', '.join(held)}")
        words, limit = self._words.total(), self.config.IMEM_WORDS
        if words > limit:
            largest = list(self.words_by_emitter.items())[:_EMITTERS_SHOWN]
            raise CompileError(
                f"program {self.name!r}: {words} words exceed IMEM_WORDS = {limit}; most words by "
                f"emitter: {', '.join(f'{name} {count}' for name, count in largest)} "
                "(use fewer rows, or raise IMEM_WORDS)"
            )
        image = assemble(self.render(), source_name=self.name, config=self.config)
        return dataclasses.replace(image, emitters={"words": self.words_by_emitter})


def _marked(items: list[Item]) -> Iterator[tuple[str, Instruction]]:
    """Every instruction with the marker that holds for it; other comments are left out."""
    marker = ""
    for item in items:
        if isinstance(item, Instruction):
            yield marker, item
        elif item.startswith(_MARKER):
            marker = item
