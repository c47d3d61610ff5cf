"""One weight matrix of every expert in HBM, and the one that a word of INT_MEM chooses.

table base        + stride            + 2 stride
| expert 0        | expert 1          | expert 2 ...         every one with its own scales
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from compiler.arena import Interval
from compiler.errors import require
from compiler.hbm import ADDRESS_WORD, HbmTensor, Order
from compiler.immediates import add_immediate, load_immediate, set_scale, set_stride
from compiler.program import Program
from compiler.registers import GP0, Register


@dataclass(frozen=True, kw_only=True)
class ExpertTable:
    """[rows, cols] of `experts` experts, at `tensor.base + expert * stride`.

    `tensor` is expert 0. `high_words`: an INT_MEM table with the high word of every expert's
    address, where they differ.
    """

    experts: int
    tensor: HbmTensor
    high_words: Interval | None = None

    @classmethod
    def allocate(
        cls,
        prog: Program,
        name: str,
        experts: int,
        rows: int,
        cols: int,
        *,
        order: Order = Order.TILES,
        at: int | None = None,
    ) -> "ExpertTable":
        """A table behind the last tensor, or at byte `at`.

        One that crosses a 4 GiB line (larger than 4 GiB, or put there by `at`) gets a table of high
        words in INT_MEM, one per expert.
        """
        tensor = prog.hbm.tensor(name, rows, cols, order=order, copies=experts, at=at)
        high = [(tensor.base + e * tensor.pitch) // ADDRESS_WORD for e in range(experts)]
        words = None
        if high[0] != high[-1]:
            words = prog.int_mem.table(f"{name} high words", np.array(high, np.uint32))
        return cls(experts=experts, tensor=tensor, high_words=words)

    @property
    def stride(self) -> int:
        """Bytes from one expert's tensor to the next one's; at least the footprint."""
        return self.tensor.pitch

    def of(self, expert: int) -> HbmTensor:
        """The tensor of one expert."""
        require(
            0 <= expert < self.experts,
            f"{self.tensor.name}: expert {expert}",
            f"must be 0 to {self.experts - 1}",
            "use the model's own expert numbers",
        )
        base = self.tensor.base + expert * self.stride
        return replace(self.tensor, name=f"{self.tensor.name}[{expert}]", base=base)

    def set_address(self, prog: Program, address: Register, word: int) -> None:
        """a = the address of the tensor of expert INT_MEM[word], computed on the machine."""
        high, low = divmod(self.tensor.base, ADDRESS_WORD)
        with prog.gps("expert", "expert tensor", "high word") as (expert, tensor, high_word):
            prog.emit("S_LD_INT", expert, GP0, word)
            load_immediate(prog, tensor, self.stride % ADDRESS_WORD)
            prog.emit("S_MUL_INT", tensor, expert, tensor)
            add_immediate(prog, tensor, tensor, low, spare=high_word)
            if self.high_words is not None:
                prog.emit("S_LD_INT", high_word, expert, self.high_words.start)
            elif high:
                load_immediate(prog, high_word, high)
            varies = self.high_words is not None or high
            prog.emit("C_SET_ADDR_REG", address, high_word if varies else GP0, tensor)
        prog.tracked.forget(str(address))


class ExpertWeight:
    """The weight in `table` of the expert that INT_MEM[word] names, for `WeightPanels`.

    The address is computed once, before the first fetch. `label` is the detail of the stages
    expert_weight_address and expert_weight_prefetch; `resume` marks again what goes on behind a
    fetch, which is placed between the products of an earlier weight.
    """

    def __init__(
        self, table: ExpertTable, word: int, label: str, resume: Callable[[], None]
    ) -> None:
        self._table, self._word, self._label, self._resume = table, word, label, resume
        self._addressed = False

    @property
    def tensor(self) -> HbmTensor:
        """Shape and order; the address is expert 0's."""
        return self._table.tensor

    @contextmanager
    def fetching(self, prog: Program, address: Register) -> Iterator[None]:
        """Marks the stages, computes the address the first time, sets SCALE and STRIDE."""
        if not self._addressed:
            prog.stage("expert_weight_address", self._label)
            self._table.set_address(prog, address, self._word)
            self._addressed = True
        prog.stage("expert_weight_prefetch", self._label)
        set_scale(prog, self.tensor.scale_offset)
        set_stride(prog, self.tensor.stride)
        yield
        self._resume()
