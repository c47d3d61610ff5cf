"""The machine as Verilog: merged, named, listed, counted and proven."""

import difflib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

import rtl.export
from isa.config import PRESETS
from rtl.dispatch.dispatcher import Dispatcher
from rtl.export import __main__ as command
from rtl.export import export_machine
from rtl.export.check import CheckError, check, prove
from rtl.export.convert import Design, convert
from rtl.export.stats import statistics
from rtl.leaves import BF16, FloatAdd
from rtl.matrix.array import MultiplierArray
from rtl.top import PlenaTop
from sim.verilator.tool import find_verilator

TINY = PRESETS["tiny"]


def lint(path: Path, top: str) -> str:
    """What Verilator says about a file with the project's waivers."""
    tool = find_verilator()
    waivers = Path(rtl.export.__file__).parent / "waivers.vlt"
    run = subprocess.run(
        [*tool.command, "--lint-only", "-Wall", "--top-module", top, str(waivers), str(path)],
        env=tool.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stderr if run.returncode else ""


def modules_of(text: str) -> list[str]:
    return re.findall(r"^module (\S+) \(", text, re.MULTILINE)


class Adders(wiring.Component):
    """Two ranks of leaves, a memory-free register file of sums; `extra` is a small change."""

    x: Any
    y: Any

    def __init__(self, extra: bool = False) -> None:
        self.extra = extra
        super().__init__({"x": In(BF16.width).array(4), "y": Out(BF16.width)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        left, right, total = FloatAdd(BF16), FloatAdd(BF16), FloatAdd(BF16)
        m.submodules.left = left.bind(a=self.x[0], b=self.x[1])
        m.submodules.right = right.bind(a=self.x[2], b=self.x[3])
        if self.extra:
            seen = Signal()
            m.d.sync += seen.eq(self.x[0] != 0)
        small = Signal(BF16.width)
        m.d.sync += small.eq(left.o)
        for number in range(8):
            count = Signal(4, name=f"count_{number}")
            with m.If((self.x[number % 4] ^ number)[: number + 1].any()):
                m.d.sync += count.eq(count + number)
        m.submodules.total = total.bind(a=small, b=right.o)
        m.d.comb += self.y.eq(total.o)
        return m


def test_a_leaf_is_converted_once_and_columns_are_one_module():
    design = convert(MultiplierArray(TINY), "array")
    names = modules_of(design.text)
    assert names[0] == "array"
    assert len(names) == len(set(names)) == len(design.modules)
    assert names.count("array_column") == 1
    assert len(re.findall(r"^  array_column column_\d \(", design.text, re.MULTILINE)) == TINY.BLEN
    assert "array_float_add_fp32" in names
    adders = re.findall(r"^  array_float_add_fp32 (\w+) \(", design.text, re.MULTILINE)
    assert len(adders) == TINY.MLEN - 1  # of the one column
    assert "\\" not in design.text  # no escaped identifier, so no keyword either
    assert "$" not in design.text


def test_the_text_is_the_same_every_time_and_a_small_change_stays_small():
    first, again, changed = (convert(Adders(extra), "t").text for extra in (False, False, True))
    assert first == again
    lines = [
        line
        for line in difflib.unified_diff(first.split("\n"), changed.split("\n"), n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    # Declarations, the comparison, the reset multiplexer and the register of the new signal.
    assert 0 < len(lines) <= 16, "\n".join(lines)
    # A line may move to stay behind what it reads; none may change, so no name does.
    added = [line[1:] for line in lines if line[0] == "+"]
    assert all(line[1:] in added for line in lines if line[0] == "-"), "\n".join(lines)


def test_signals_and_memories_are_found_where_they_went():
    top = MultiplierArray(TINY)
    sums = top.sums.as_value()
    design = convert(top, "array")
    assert design.locate(sums).name == "sums"
    assert design.locate(sums).instances == ()
    dispatcher = Dispatcher(TINY)
    imem = dispatcher.imem
    location = convert(dispatcher, "d").locate(imem)
    assert (location.module, location.instances, location.name) == ("d", (), "imem")


def test_a_small_design_is_proven_and_a_changed_one_is_refuted():
    design = convert(Adders(), "t")
    outcome = check(design)
    assert outcome.ok, outcome.text
    assert len(outcome.proven) == 1
    (line,) = re.findall(r"^ +assign \w+ = shl_\w+\[11:0\] \+ 3'h7;$", design.text, re.MULTILINE)
    design.text = design.text.replace(line, line.replace("3'h7", "3'h6"))
    outcome = check(design)
    assert outcome.failed == ["t_float_add_bf16 = leaf float_add_bf16"]
    assert "NOT PROVEN" in outcome.text


def test_merged_modules_are_proven_and_a_wrong_merge_is_refuted():
    class Counter(wiring.Component):
        o: Any

        def __init__(self, step: int) -> None:
            self.step = step
            super().__init__({"o": Out(8)})

        def elaborate(self, platform: Any) -> Module:
            m = Module()
            m.d.sync += self.o.eq(self.o + self.step)
            return m

    class Both(wiring.Component):
        p: Any
        q: Any

        def __init__(self) -> None:
            super().__init__({"p": Out(8), "q": Out(8)})

        def elaborate(self, platform: Any) -> Module:
            m = Module()
            for name, port in (("first", self.p), ("second", self.q)):
                m.submodules[name] = counter = Counter(3)
                m.d.comb += port.eq(counter.o)
            return m

    design = convert(Both(), "both")
    assert modules_of(design.text) == ["both", "both_first"]
    assert check(design).ok
    member = design._merged.members["\\both.second"]
    (cell,) = (cell for cell in member.cells if cell.kind == "$add")
    cell.ports = [(port, value.replace("2'11", "2'01")) for port, value in cell.ports]
    assert check(design).failed == ["both_first = both.second"]


def test_constant_bits_beside_computed_ones_are_driven():
    class Packed(wiring.Component):
        i: Any
        o: Any
        k: Any

        def __init__(self) -> None:
            super().__init__({"i": In(2), "o": Out(8), "k": Out(8)})

        def elaborate(self, platform: Any) -> Module:
            m = Module()
            m.d.comb += [self.k[:4].eq(9), self.k[4:].eq(self.i)]
            with m.Switch(self.i):
                with m.Case(1):
                    m.d.comb += self.o[:3].eq(5)
                with m.Case(2):
                    m.d.comb += self.o[3].eq(1)
            m.d.comb += self.o[5].eq(self.i[0])
            with m.If(self.i == 3):
                m.d.comb += self.o[7].eq(1)
            return m

    design = convert(Packed(), "mixed")
    # An always block that reads nothing would never run.
    assert not re.search(r"always @\*\n +\S+ = \d+'", design.text), design.text
    # As a leaf is: against what Amaranth converts by itself.
    gold = rtlil.convert(Packed(), name="gold")
    proven = prove(gold, design.text, gold_top="gold", gate_top="mixed", whole=True)
    assert proven, design.text


def test_a_check_without_yosys_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(CheckError, match="pip install pyosys"):
        check(convert(Adders(), "t"))


def test_statistics_count_merged_modules_as_often_as_they_are_used():
    found = statistics(convert(MultiplierArray(TINY), "array"))
    lanes, columns = TINY.MLEN, TINY.BLEN
    assert found.total.leaves == columns * (2 * lanes - 1)
    assert found.instances["array_column"] == columns
    column = found.units["column_0"]
    # Waiting and working weights, the registers behind multipliers and adders, and one head's sum.
    assert column.register_bits == 2 * 16 * lanes + 32 * (2 * lanes - 1) + 32 * TINY.heads
    activations = 16 * lanes
    assert found.total.register_bits == columns * column.register_bits + activations
    assert sum(unit.cells for unit in found.units.values()) == found.total.cells
    assert json.loads(found.json())["total"]["leaves"] == found.total.leaves


@pytest.fixture(scope="module")
def tiny() -> tuple[str, Design, Any]:
    return export_machine(PlenaTop(TINY))


@pytest.mark.slow
def test_the_command_writes_the_same_bytes_in_another_process_and_the_ports(tmp_path, tiny):
    text, ports = tmp_path / "plena.v", tmp_path / "ports.json"
    command = [sys.executable, "-m", "rtl.export", "--config", "tiny"]
    root = str(Path(rtl.export.__file__).parents[2])
    subprocess.run(
        [*command, "-o", str(text), "--ports", str(ports)],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": root},
        check=True,
        capture_output=True,
    )
    verilog = text.read_text()
    assert verilog == tiny[0]
    assert "//   MLEN = 8" in verilog
    (header,) = re.findall(r"^module plena \((.*?)\);", verilog, re.MULTILINE | re.DOTALL)
    declared = {
        name: (direction, int(high or 0) + 1)
        for direction, high, name in re.findall(
            r"(input|output) +(?:wire|reg) (?:\[(\d+):0\] )?(\w+)", header
        )
    }
    table = json.loads(ports.read_text())
    assert declared == {p["name"]: (p["direction"], p["width"]) for p in table["ports"]}
    request = next(p for p in table["ports"] if p["name"] == "hbm_request__payload")
    assert sum(field["width"] for field in request["fields"]) == request["width"]
    assert "RESIDUAL_SETUP" in table["enumerations"]["Stage"].values()


@pytest.mark.slow
def test_the_tiny_machine_is_free_of_warnings_and_of_registers_without_a_name(tmp_path, tiny):
    text, _, _ = tiny
    path = tmp_path / "plena.v"
    path.write_text(text)
    assert lint(path, "plena") == ""
    assert re.findall(r"^  reg (?:\[\d+:0\] )?signal(?:_\d+)?\b.*", text, re.MULTILINE) == []


@pytest.mark.slow
def test_lint_still_sees_a_real_fault(tmp_path, tiny):
    text, _, _ = tiny
    path = tmp_path / "plena.v"
    path.write_text(text.replace("\nendmodule", "\n  wire [3:0] a = 5'h1f;\nendmodule", 1))
    assert "WIDTHTRUNC" in lint(path, "plena")


@pytest.mark.slow
def test_everything_in_the_tiny_machine_is_proven(tiny):
    _, design, _ = tiny
    outcome = check(design)
    assert outcome.ok, outcome.text
    leaves = len(design.leaf_modules)
    assert len(outcome.proven) == leaves + sum(n - 1 for n in design.occurrences.values())


@pytest.mark.slow
def test_the_memories_of_the_tiny_machine_have_the_sizes_of_the_configuration(tiny):
    _, design, _ = tiny
    found = statistics(design)
    row = 16 * TINY.MLEN
    assert found.units["vector_sram"].memory_bits == TINY.VRAM_ROWS * row
    assert found.units["matrix_sram"].memory_bits == TINY.MRAM_TILES * TINY.MLEN * row


def test_the_machine_has_no_combinational_cycle():
    # The simulator tolerates one, a netlist cannot have it. The dispatcher is where one may arise.
    assert "module" in rtlil.convert(Dispatcher(PRESETS["tiny"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "nope"], "nope"),
        (["--config", "tiny", "--ports", "ports.txt"], "must end in .md or .json"),
    ],
)
def test_a_bad_request_writes_nothing(tmp_path, capsys, arguments, message):
    path = tmp_path / "plena.v"
    assert command.main([*arguments, "-o", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert not path.exists()
