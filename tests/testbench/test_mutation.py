"""Mutation testing: mutants do what they say, equal ones are left out, results are kept and
judged."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sim.compiled.extract import extract
from sim.compiled.model import Model, describe, place_of
from sim.compiled.netlist import Netlist
from sim.compiled.program import make_program
from sim.compiled.term_factory import TermFactory
from sim.compiled.toolchain import compile_library, find_compiler
from testbench.mutation import __main__ as command
from testbench.mutation.hunt import MachineBench, Verdict
from testbench.mutation.leaves import bench_of
from testbench.mutation.mutant import MODES, ROOT, Mutant
from testbench.mutation.proof import Prover
from testbench.mutation.report import report_of
from testbench.mutation.schemata import SELECT_BITS, build_in
from testbench.mutation.sites import Input, Locations, Planned, choose, machine_inputs
from testbench.mutation.survivors import Explanation, SurvivorsError, read
from testbench.mutation.terms import Constants, Uses, ones
from testbench.mutation.units import LEAF_UNITS, MACHINE_UNITS, unit_of
from tests.conftest import needs_compiler


class Small(wiring.Component):
    """o = a + b if c, else a & 12; `never` does not reach it."""

    def __init__(self):
        super().__init__({"a": In(4), "b": In(4), "c": In(1), "o": Out(4)})
        self.never = Signal(4)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(Mux(self.c, (self.a + self.b)[:4], self.a & 12))
        m.d.sync += self.never.eq(self.never + self.a)
        return m


def small() -> tuple[Small, Netlist, list[Input], Uses]:
    design = Small()
    netlist = extract(design)
    signals = {index: signal for signal, index in netlist._net_of.items()}
    locations = Locations(netlist.lowering._cache, signals)
    inputs = machine_inputs(netlist, locations, 1)
    return design, netlist, inputs, Uses(netlist, [netlist.signal(design.o)])


def prover_of(netlist: Netlist, inputs: list[Input]) -> Prover:
    roots = [(i.place, i.term) for i in inputs if i.consumer is None]
    return Prover(netlist.factory, {(): roots})


def all_mutants(*, proven: bool) -> list[Planned]:
    _, netlist, inputs, uses = small()
    prover = prover_of(netlist, inputs)

    def used(given: Input) -> int:
        return (
            uses.terms.get(id(given.term), 0)
            if given.consumer is None
            else uses.of_operand(given.consumer, int(given.place[1]))
        )

    def is_equal(planned: Planned) -> bool:
        return proven and prover.is_equal(planned)

    return choose("u", inputs, used, count=10_000, seed=1, is_equal=is_equal)


def test_what_reaches_no_output_is_left_out():
    keys = [p.mutant.key for p in all_mutants(proven=False)]
    assert keys
    assert not [key for key in keys if "never" in key]
    assert len(set(keys)) == len(keys)
    assert {p.mutant.mode for p in all_mutants(proven=False)} == set(MODES)


def test_proven_mutants_are_those_that_change_no_output():
    every, unequal = all_mutants(proven=False), all_mutants(proven=True)
    assert {p.mutant.key for p in unequal} < {p.mutant.key for p in every}
    _, netlist, inputs, _ = small()
    prover = prover_of(netlist, inputs)
    (low_of_mask,) = [i for i in inputs if i.cell == "and" and i.place[1] == 0]
    fields = {"mutant": Mutant("", "", "inv", "", 0), "input": low_of_mask}
    assert prover.is_equal(Planned(**fields, bit=0))  # a & 12 does not look at it
    assert not prover.is_equal(Planned(**fields, bit=3))


def test_choice_depends_on_seed_and_keys_alone():
    _, netlist, inputs, _ = small()
    options = {"count": 5, "is_equal": lambda _: False}

    def chosen(given: list[Input], seed: int) -> list[str]:
        return [
            p.mutant.key
            for p in choose("u", given, lambda i: ones(i.term.width), seed=seed, **options)
        ]

    assert chosen(inputs, 1) == chosen(inputs[::-1], 1)
    assert chosen(inputs, 1) != chosen(inputs, 2)
    assert len(netlist.nets)


def mutated(mode: str | None, control: int, bit: int) -> int:
    match mode:
        case "inv":
            return 1 - bit
        case "const0" | "const1":
            return int(mode[-1])
        case "cnot0" | "cnot1":
            return bit ^ (control == int(mode[-1]))
    return bit


@needs_compiler
def test_a_mutant_does_what_its_mode_says(tmp_path: Path):
    design, netlist, inputs, _ = small()
    (condition,) = [i for i in inputs if i.cell == "not"]
    control = netlist._net_of[design.a], 0
    planned = [
        Planned(Mutant(mode, "u", mode, "", 0), condition, 0, control if "cnot" in mode else None)
        for mode in MODES
    ]
    select = build_in(netlist, planned, 1)
    program = make_program(netlist)
    compiler = find_compiler()
    assert compiler is not None
    model = Model(compile_library(compiler, program.sources, tmp_path, "m.so"), describe(program))
    a, b, c, o = (place_of(netlist.signal(s)) for s in (design.a, design.b, design.c, design.o))
    for number, mode in enumerate((None, *MODES)):
        model.set([(select, 0, SELECT_BITS)], number)
        for values in itertools.product(range(16), (0, 5, 15), (0, 1)):
            for place, value in zip((a, b, c), values, strict=True):
                model.set(place, value)
            x, y, z = values
            assert model.get(o) == ((x + y) & 15 if mutated(mode, x & 1, z) else x & 12), mode


def test_bits_that_are_constant_are_known():
    f, known = TermFactory(), Constants()
    x = f.ref(0, 0, 4)
    assert known.of(f.cat((f.const(2, 2), x))) == (0b000011, 0b000010)
    assert known.of(f.op("and", x, f.const(0b0101, 4))) == (0b1010, 0)
    assert known.of(f.op("or", x, f.const(0b0101, 4))) == (0b0101, 0b0101)
    assert known.of(f.op("add", x, x)) == (0, 0)


def test_every_module_belongs_to_the_nearest_unit():
    assert unit_of(("dispatcher", "scoreboard", "age_hbm")) == "scoreboard"
    assert unit_of(("dispatcher", "issue_hbm")) == "dispatch"
    assert unit_of(("dispatcher", "policy$194")) == "registers"
    assert unit_of(("matrix", "heads", "address")) == "heads"
    assert unit_of(("matrix", "array", "column_0")) == "matrix"
    assert unit_of(()) == "profile"
    names = [u.name for u in (*MACHINE_UNITS, *LEAF_UNITS)]
    assert len(set(names)) == len(names)


# Judgement.

MUTANT = Mutant("u:m:n:and#0.1[3]:inv", "u", "inv", "rtl/dispatch/loops.py", 1)


def test_rates_leave_out_what_is_equivalent():
    def verdicts(by: str, count: int) -> list[Verdict]:
        mutant = replace(MUTANT, key=f"u:{by}") if by else MUTANT
        return [Verdict(mutant, by, "")] * count

    run = verdicts("lock step", 18) + verdicts("equal", 3) + verdicts("", 2)
    nothing = report_of("u", run, [])
    assert (nothing.counted, nothing.rate, nothing.ok) == (20, 0.9, False)
    assert len(nothing.unexplained) == 2
    why = Explanation((MUTANT.key,), MUTANT.source, True, "a reason")
    equivalent = report_of("u", run, [why])
    assert (equivalent.equivalent, equivalent.counted, equivalent.rate) == (2, 18, 1.0)
    assert equivalent.ok
    visible = report_of("u", run, [Explanation((MUTANT.key,), MUTANT.source, False, "a reason")])
    assert (visible.unexplained, visible.ok) == ([], False)  # too many of them


def test_what_the_file_says_beyond_the_survivors_is_a_misfit():
    other = replace(MUTANT, key="u:m:n:and#0.1[4]:inv")
    run = [Verdict(MUTANT, "", ""), Verdict(other, "timing", "traffic 3")]
    wide = Explanation(("u:m:n:and#0.1[*]:inv",), MUTANT.source, True, "a reason")
    (misfit,) = report_of("u", run, [wide]).misfits
    assert misfit.startswith("u:m:n:and#0.1[*]:inv: said to be equivalent, but u:m:n:and#0.1[4]")
    assert not report_of("u", run, [wide]).ok
    old = Explanation((MUTANT.key, "u:gone"), MUTANT.source, False, "a reason")
    assert report_of("u", run, [old]).misfits == []
    assert report_of("u", run, [old], complete=True).misfits == [
        "u:gone: covers no survivor (any more); take it out"
    ]
    assert report_of("v", [], [wide, old], complete=True).misfits == []


def test_explanations_are_about_a_key_and_a_line():
    assert Explanation(("u:m:n:and#*[3]:inv",), MUTANT.source, True, "").covers(MUTANT)
    assert not Explanation(("u:m:n:and#*[4]:inv",), MUTANT.source, True, "").covers(MUTANT)
    assert not Explanation(("*",), "rtl/dispatch/loops.py: other", True, "").covers(MUTANT)


def test_a_wrong_file_of_survivors_is_refused(tmp_path: Path):
    path = tmp_path / "survivors.toml"
    assert read(path) == []
    path.write_text('[[survivors]]\nkeys = ["a"]\nsource = "b"\nequivalent = true\n')
    with pytest.raises(SurvivorsError, match=r"entry 1 needs exactly .* unknown: reason"):
        read(path)
    path.write_text('[[survivors]]\nkeys = ["a"]\nsource = "b"\nequivalent = true\nreason = " "\n')
    with pytest.raises(SurvivorsError, match="entry 1 has no reason"):
        read(path)
    path.write_text("[[survivors]\n")
    with pytest.raises(SurvivorsError, match=r"survivors\.toml"):
        read(path)


def test_lines_in_the_file_of_survivors_are_still_there():
    for entry in read():
        file, text = entry.source.split(": ", 1)
        if not text:  # the port of a memory has no line of its own
            assert (ROOT / file).is_dir()
            continue
        lines = [line.strip() for line in (ROOT / file).read_text().splitlines()]
        assert text in lines, f"{entry.source} is gone; hunt again"


# Hunts.


def test_units_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]):
    assert command.main(["--list"]) == 0
    assert "scoreboard" in capsys.readouterr().out
    assert command.main(["--unit", "nothing"]) == 2
    assert "error: no unit 'nothing'; units: decode" in capsys.readouterr().err


@needs_compiler
def test_leaf_mutants_are_killed_or_equal(tmp_path: Path):
    (unit,) = (u for u in LEAF_UNITS if u.name == "leaf_reciprocal")
    bench = bench_of(unit, count=30, seed=3, folder=tmp_path)
    verdicts = Counter(bench.judge(number)[0] for number in range(1, 31))
    assert verdicts.keys() <= {"leaf", "equal"}
    assert verdicts["leaf"] > 20


@pytest.mark.slow
@needs_compiler
def test_a_hunt_kills_reports_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    report = tmp_path / "report.json"
    arguments = ["--unit", "matrix_sram", "--mutants", "20", "--programs", "2"]
    arguments += ["--build-dir", str(tmp_path), "--report", str(report)]
    first = command.main(arguments)
    unit = json.loads(report.read_text())["units"]["matrix_sram"]
    killed = sum(unit["killed"].values())
    assert unit["mutants"] == 20
    assert killed + unit["equivalent"] + len(unit["survivors"]) == 20
    assert killed >= 15
    assert unit["killed"]["lock step"] >= 10
    assert (first == 0) == (unit["rate"] >= 0.95 and not unit["unexplained"])
    (kept,) = tmp_path.glob("matrix_sram-20-0.jsonl")
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:11]) + "\n")
    judged: list[int] = []
    original = MachineBench.judge

    def judge(self, number: int):
        judged.append(number)
        return original(self, number)

    monkeypatch.setattr(MachineBench, "judge", judge)
    assert command.main(arguments) == first
    assert judged == list(range(11, 21))
    assert kept.read_text().splitlines() == lines
    capsys.readouterr()
