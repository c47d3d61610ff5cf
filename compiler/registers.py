"""Register files of the program under construction: who holds what, and until when."""

from dataclasses import dataclass

from compiler.errors import CompileError
from isa.operands import REGISTER_COUNT, Kind


@dataclass(frozen=True)
class Register:
    """One register of the gp, f or a file, as its holder knows it; an operand of `Program.emit`."""

    kind: Kind
    index: int
    holder: str

    def __index__(self) -> int:
        return self.index

    def __str__(self) -> str:
        return f"{self.kind.value}{self.index}"


#: The registers that read zero; nobody holds them, everybody may read them.
GP0 = Register(Kind.GP, 0, "zero")
F0 = Register(Kind.F, 0, "zero")
_ZERO = {Kind.GP: GP0, Kind.F: F0}


class RegisterFile:
    """Allocates the registers of one kind, lowest index first, so that output is deterministic."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        first = 1 if kind in _ZERO else 0
        self.capacity = REGISTER_COUNT[kind] - first
        self._free = list(range(first, REGISTER_COUNT[kind]))
        self._held: dict[int, Register] = {}

    @property
    def held(self) -> tuple[Register, ...]:
        """The registers that are in use, by index."""
        return tuple(self._held[i] for i in sorted(self._held))

    @property
    def free(self) -> int:
        """How many can still be taken."""
        return len(self._free)

    def holder(self, index: int) -> Register:
        """The register `index` as its holder knows it; KeyError when it is free."""
        return self._held[index]

    def take(self, holder: str) -> Register:
        """The lowest free register, held as `holder`; CompileError names all holders if none is."""
        if not self._free:
            users = ", ".join(f"{r} {r.holder!r}" for r in self.held)
            raise CompileError(
                f"{self.kind.value} register for {holder!r}: all {self.capacity} are held "
                f"(release one first: {users})"
            )
        register = Register(self.kind, self._free.pop(0), holder)
        self._held[register.index] = register
        return register

    def give(self, register: Register) -> None:
        """Release `register`; CompileError unless exactly this holder has it."""
        self.check(register)
        del self._held[register.index]
        self._free = sorted([*self._free, register.index])

    def check(self, register: Register) -> None:
        """CompileError unless `register` is held by its holder, or reads zero."""
        if register is not _ZERO.get(self.kind) and self._held.get(register.index) is not register:
            now = self._held.get(register.index)
            state = f"is held by {now.holder!r}" if now else "is free"
            raise CompileError(
                f"{register} {register.holder!r}: used after its release; it {state} "
                "(keep the use inside its with block)"
            )
