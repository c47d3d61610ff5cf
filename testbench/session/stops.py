"""Breakpoints and steps: when a run pauses, between two cycles, before an instruction."""

from collections.abc import Sequence
from dataclasses import dataclass

from isa.image import VOCABULARY, ProgramImage
from isa.instruction import nearest, parse_number
from isa.stages import Stage
from rtl.dispatch.events import RunState
from sim.observers import Dispatched, Observer
from sim.simulation import Simulation
from testbench.session.request import RequestError

_STAGE_PREFIX = "stage="
NAMES_SHOWN = 8


@dataclass(frozen=True)
class Breakpoint:
    """One `--break`: a pc, or the tag of a stage that is entered (one of its instructions comes
    behind one of another).

    `text` is what the user wrote.
    """

    text: str
    pc: int | None = None
    tag: int | None = None

    @classmethod
    def parse(cls, text: str, image: ProgramImage) -> "Breakpoint":
        """The breakpoint that `text` names: PC, LABEL or stage=NAME.

        Raises:
            RequestError: nothing of the program is there; the message says what there is.
        """
        option = f"--break {text}"
        if text.startswith(_STAGE_PREFIX):
            name = text.removeprefix(_STAGE_PREFIX)
            if name not in VOCABULARY:
                raise RequestError(
                    f"{option}: {name!r} is not a stage{nearest(name, VOCABULARY)}; stages are "
                    f"{', '.join(VOCABULARY)}"
                )
            stage = Stage.from_label(name)
            if stage.value not in image.stages:
                raise RequestError(
                    f"{option}: no instruction has this stage; the program has "
                    f"{', '.join(image.stage_counts())}"
                )
            return cls(text, tag=stage.value)
        pc = parse_number(text)
        if pc is None:
            if text not in image.symbols:
                known = list(image.symbols)
                shown = ", ".join(known[:NAMES_SHOWN]) + (", ..." * (len(known) > NAMES_SHOWN))
                raise RequestError(
                    f"{option}: no label of the program{nearest(text, known)}; labels: "
                    f"{shown or 'none'}; a pc is 0 to {len(image) - 1}, a stage stage=NAME"
                )
            pc = image.symbols[text]
        if pc >= len(image):
            raise RequestError(
                f"{option}: no instruction is at pc {pc}; the program has pc 0 to {len(image) - 1}"
            )
        return cls(text, pc=pc)


class Stops(Observer):
    """Says, as `until` of a run, when to pause; observe the same run with it.

    It pauses before the instruction of a breakpoint is dispatched, each time that it is next, for
    the first time behind `skip` such occasions. With `steps` it goes on from there (from the start
    without breakpoints) for that many dispatched instructions; where the program ends earlier, it
    ends. Everything before the pause has been dispatched and may be under way; nothing from it on
    has begun.
    """

    def __init__(
        self,
        image: ProgramImage,
        breakpoints: Sequence[Breakpoint] = (),
        *,
        skip: int = 0,
        steps: int | None = None,
    ) -> None:
        self._stages = image.stages.tolist()
        self._breakpoints = breakpoints
        self._skip = skip
        self._steps = steps
        self._left: int | None = None if breakpoints else steps
        self._fresh = True
        self._tag: int | None = None
        self.reason = ""
        self.reached: set[str] = set()

    @property
    def stepping(self) -> bool:
        """Whether the instructions that are dispatched now are the user's steps."""
        return self._left is not None

    def start(self, simulation: object) -> None:
        """Begins with the run, or goes on with it."""
        assert isinstance(simulation, Simulation)
        self._engine = simulation.engine

    def dispatched(self, event: Dispatched) -> None:
        """Another instruction is next now."""
        self._fresh = True
        self._tag = event.stage
        if self._left is not None:
            self._left -= 1

    def __call__(self) -> bool:
        if not self._fresh:
            return False
        self._fresh = False
        top = self._engine.top
        if self._engine.get(top.state) != RunState.RUNNING.value:
            return False
        pc = self._engine.get(top.pc)
        if pc >= len(self._stages):
            return False
        if self._left is not None:
            self.reason = f"after {self._steps} steps"
            return self._left <= 0
        for point in self._breakpoints:
            here = pc == point.pc if point.pc is not None else self._enters(pc, point.tag)
            if here:
                self.reached.add(point.text)
                if self._skip:
                    self._skip -= 1
                    return False
                self.reason = f"--break {point.text}"
                self._left = self._steps
                return self._left is None
        return False

    def _enters(self, pc: int, tag: int | None) -> bool:
        return self._stages[pc] == tag and self._tag != tag
