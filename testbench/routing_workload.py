"""A routing alone as a workload of the commands: what its kinds have in common."""

from abc import ABC, abstractmethod

from compiler.attribution_note import shared_vs_routed_note
from isa.config import PlenaConfig
from isa.stages import Stage
from sim.hbm import HbmDevice
from sim.result import RunResult
from testbench.workload import stage_problems


class RoutingWorkload(ABC):
    """A program that chooses experts and runs none; the host places all operands on the chip."""

    @property
    @abstractmethod
    def config(self) -> PlenaConfig:
        """The machine."""

    @property
    def note(self) -> str:
        """The caveat of a program without routed experts."""
        return shared_vs_routed_note(None)

    @property
    def projection_stages(self) -> tuple[Stage, ...]:
        """None: the multipliers stand still."""
        return ()

    def hbm(self) -> HbmDevice:
        """An empty memory."""
        return HbmDevice(self.config)

    def check_stages(self, result: RunResult) -> list[str]:
        """What is wrong with the stages of a finished run."""
        return stage_problems(result, frozenset({Stage.ROUTER_TOPK}))
