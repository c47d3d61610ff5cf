"""What every engine offers to the host: state access and single clock cycles of one elaborated
design."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from amaranth.hdl import MemoryData, Shape, Value

from isa.config import PlenaConfig
from rtl.top import PlenaTop
from sim.probe import Probe


class Engine(ABC):
    """One elaborated machine that a host can clock.

    Values are bit patterns as Python integers. Between `step` calls the design is settled: `get`
    returns what the registers hold and what the combinational logic makes of the inputs that were
    `set`.
    """

    name: str

    def __init__(self, config: PlenaConfig) -> None:
        self.config = config
        self.top = PlenaTop(config)
        self.probe = Probe(self.top)
        self.elaboration_seconds = 0.0
        self.reason = ""  #: why it was taken, when its name was chosen by `make_engine`

    @abstractmethod
    def reset(self) -> None:
        """Every register and memory back to its initial value, inputs to zero."""

    @abstractmethod
    def get(self, value: Value) -> int:
        """The settled value of a signal or expression of the design."""

    def get_all(self, values: Sequence[Value]) -> list[int]:
        """The same of many; an engine may be faster at it when it is asked for them again."""
        return [self.get(value) for value in values]

    @abstractmethod
    def set(self, signal: Value, value: int) -> None:
        """Drives an input of the top, or overwrites a register."""

    @abstractmethod
    def step(self) -> None:
        """One clock cycle."""

    @abstractmethod
    def read_memory(self, memory: MemoryData, start: int, count: int) -> list[int]:
        """`count` rows from row `start`."""

    def read_row(self, memory: MemoryData, row: int) -> int:
        """One row."""
        return self.read_memory(memory, row, 1)[0]

    def read_bytes(self, memory: MemoryData, start: int, count: int) -> bytes:
        """The same, each row as its bytes, the lowest first."""
        size = -(-Shape.cast(memory.shape).width // 8)
        rows = self.read_memory(memory, start, count)
        return b"".join(row.to_bytes(size, "little") for row in rows)

    @abstractmethod
    def write_memory(self, memory: MemoryData, start: int, rows: Sequence[int]) -> None:
        """Overwrites rows from row `start`."""
