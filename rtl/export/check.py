"""Proves that leaves in the Verilog, and modules that stand for others, are what they should be."""

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rtl.export.convert import Design
from rtl.export.private import rtlil_component
from rtl.leaves.leaf import Leaf

__all__ = ["CheckError", "Outcome", "check"]

_RUN = (
    "import sys; from pyosys import libyosys; "
    "libyosys.run_pass(f'script {sys.argv[1]}', libyosys.Design())"
)
#: Registers and instances become ports, so that what is left to compare is combinational.
_SCRIPT = """\
read_verilog -DSYNTHESIS {folder}/gate.v
read_rtlil {folder}/gold.il
{flatten}
proc -norom {gold} {gate}
select {gold} {gate}
memory_collect
opt_clean
expose -shared -evert-dff -evert
opt -full
wreduce
opt -full
select -clear
miter -equiv -flatten {gold} {gate} both
hierarchy -top both
opt -full
techmap
opt
aigmap
opt_clean
write_aiger {folder}/both.aig
"""
_PROVED, _REFUTED = "UNSATISFIABLE", "SATISFIABLE"


class CheckError(RuntimeError):
    """The check cannot be made; the message says what to install, or what Yosys said."""


@dataclass
class Outcome:
    """Which modules were proven equal to their source, and which were not."""

    proven: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything was proven."""
        return not self.failed

    @property
    def text(self) -> str:
        """A sentence."""
        if self.failed:
            return f"NOT PROVEN: {', '.join(self.failed)}"
        return f"{len(self.proven)} modules proven equal to their source"


def check(design: Design, report: Callable[[str], object] = lambda _line: None) -> Outcome:
    """Proves with Yosys and ABC, which read the Verilog text as anybody would:

    - each leaf in the Verilog computes what the leaf computes that Amaranth converts by itself, for
      all operands;
    - each module that others were merged into equals every one of them, in outputs and in the
      next value of every register, where the modules inside count as proven.

    Registers and instances correspond by name.

    Args:
        report: gets a line for each module.

    Raises:
        CheckError: pyosys is missing, or Yosys could not read something.
    """
    outcome = Outcome()
    for gate, title, gold in _pairs(design):
        name = f"{gate} = {title}"
        top = _first_module(gold)
        proven = prove(
            gold,
            _modules_below(design, gate),
            gold_top=top,
            gate_top=gate,
            whole=title.startswith("leaf "),
        )
        (outcome.proven if proven else outcome.failed).append(name)
        report(f"{'proven' if proven else 'NOT PROVEN'}: {name}")
    return outcome


def _pairs(design: Design) -> Iterator[tuple[str, str, str]]:
    """(module of the Verilog, what it should equal, that in RTLIL)."""
    for name, leaf in design.library.leaves.items():
        module = design.leaf_modules[name]
        yield module, f"leaf {name}", _by_itself(leaf, name)
    for module, title, body in design.merged_members():
        yield module, title, body.text()


def _by_itself(leaf: Leaf, name: str) -> str:
    return rtlil_component(leaf.unbound(), name=f"leaf.{name}", emit_src=False)


def _modules_below(design: Design, name: str) -> str:
    """The Verilog of a module and of what it instantiates."""
    wanted, pending = {name}, [name]
    while pending:
        for cell in design.modules[pending.pop()].cells:
            kind = cell.kind[1:]
            if kind in design.modules and kind not in wanted:
                wanted.add(kind)
                pending.append(kind)
    texts = re.findall(r"^(module (\S+) .*?^endmodule\n)", design.text, re.MULTILINE | re.DOTALL)
    return "".join(text for text, name in texts if name in wanted)


def _first_module(text: str) -> str:
    found = re.search(r"^module \\(\S+)", text, re.MULTILINE)
    assert found is not None
    return found[1]


def prove(gold: str, verilog: str, *, gold_top: str, gate_top: str, whole: bool) -> bool:
    """Whether module `gold_top` of an RTLIL text equals module `gate_top` of a Verilog text.

    With `whole`, what they instantiate belongs to them; else instances of one name count as equal.

    Raises:
        CheckError: as `check`.
    """
    spec = importlib.util.find_spec("pyosys")
    if spec is None or spec.origin is None:
        raise CheckError("the check needs Yosys with ABC: pip install pyosys")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gold.il").write_text(gold, encoding="utf-8")
        (folder / "gate.v").write_text(verilog, encoding="utf-8")
        flatten = f"proc -norom\nflatten {gold_top} {gate_top}" if whole else ""
        script = _SCRIPT.format(folder=folder, flatten=flatten, gold=gold_top, gate=gate_top)
        (folder / "script").write_text(script, encoding="utf-8")
        _run([sys.executable, "-c", _RUN, str(folder / "script")], gate_top)
        prover = str(Path(spec.origin).with_name("yosys-abc"))
        output = _run([prover, "-c", f"read_aiger {folder / 'both.aig'}; iprove"], gate_top)
    if _PROVED not in output and _REFUTED not in output:
        raise CheckError(f"ABC came to no verdict on {gate_top}:\n{output[-2000:]}")
    return _PROVED in output


def _run(command: list[str], subject: str) -> str:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    output = run.stdout + run.stderr
    if run.returncode:
        raise CheckError(f"Yosys failed on {subject}:\n{output[-2000:]}")
    return output
