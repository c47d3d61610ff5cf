"""How much hardware each unit is: cells, register bits and memory bits, counted in Yosys's
netlist."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from rtl.export.convert import Design
from rtl.export.verilog import run_yosys

__all__ = ["Amount", "Statistics", "statistics"]

#: Processes become multiplexers and comparators, memory ports one cell per memory.
_SCRIPT = "proc\nopt_clean\nmemory_collect\nwrite_json"
_WIRING = ("$scopeinfo",)


@dataclass
class Amount:
    """What an instance of a module contains, with everything below it.

    Attributes:
        cells: operators, multiplexers and registers of any width, without memories.
        result_bits: bits that these cells compute.
        register_bits, memory_bits: bits of state outside and inside of memories.
        leaves: arithmetic leaves.
        kinds: cells by Yosys's type.
    """

    cells: int = 0
    result_bits: int = 0
    register_bits: int = 0
    memories: int = 0
    memory_bits: int = 0
    leaves: int = 0
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Amount") -> None:
        """Adds another amount to this one."""
        for name, value in vars(other).items():
            if name != "kinds":
                setattr(self, name, getattr(self, name) + value)
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count


@dataclass(frozen=True)
class Statistics:
    """Amounts by unit (an instance in the top; `(top)` is what stands between them), in all, and
    by module of the Verilog (`total` of one instance, and the number of `instances`)."""

    units: dict[str, Amount]
    total: Amount
    modules: dict[str, Amount]
    instances: dict[str, int]

    def json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def table(self) -> Table:
        """The units, for a terminal."""
        table = Table(title="word-level cells after Yosys's proc and memory_collect")
        heads = (
            "unit",
            "cells",
            "result bits",
            "register bits",
            "memories",
            "memory bits",
            "leaves",
        )
        for head in heads:
            left = head == "unit"
            table.add_column(head, justify="left" if left else "right", no_wrap=left)
        for name, amount in (*self.units.items(), ("total", self.total)):
            if name == "total":
                table.add_section()
            numbers = (
                amount.cells,
                amount.result_bits,
                amount.register_bits,
                amount.memories,
                amount.memory_bits,
                amount.leaves,
            )
            table.add_row(name, *(f"{number:,}" for number in numbers))
        return table


def statistics(design: Design) -> Statistics:
    """Counts a converted design; a merged module counts as often as it is instantiated."""
    netlist = json.loads(run_yosys(design.modules.values(), _SCRIPT))["modules"]
    leaves = set(design.leaf_modules.values())
    amounts: dict[str, Amount] = {}
    instances: dict[str, int] = {}

    def amount_of(name: str) -> Amount:
        if name not in amounts:
            own = Amount(leaves=int(name in leaves))
            for cell in netlist[name]["cells"].values():
                own.add(amount_of(cell["type"]) if cell["type"] in netlist else _cell(cell))
            amounts[name] = own
        return amounts[name]

    def visit(name: str) -> None:
        instances[name] = instances.get(name, 0) + 1
        for cell in netlist[name]["cells"].values():
            if cell["type"] in netlist:
                visit(cell["type"])

    total = amount_of(design.top)
    visit(design.top)
    units: dict[str, Amount] = {"(top)": Amount()}
    for instance, cell in netlist[design.top]["cells"].items():
        if cell["type"] in netlist:
            units[instance] = amount_of(cell["type"])
        else:
            units["(top)"].add(_cell(cell))
    return Statistics(units, total, amounts, instances)


def _cell(cell: Mapping[str, Any]) -> Amount:
    kind, ports = cell["type"], cell["connections"]
    if kind in _WIRING:
        return Amount()
    if kind.startswith("$mem"):
        size, width = (int(cell["parameters"][name], 2) for name in ("SIZE", "WIDTH"))
        return Amount(memories=1, memory_bits=size * width)
    result = len(ports.get("Y", ports.get("Q", ())))
    return Amount(
        cells=1,
        result_bits=result,
        register_bits=result if "Q" in ports else 0,
        kinds={kind: 1},
    )
