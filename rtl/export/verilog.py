"""Verilog out of RTLIL, by the pinned Yosys, and made readable."""

import re
from collections.abc import Collection, Iterable

from amaranth.back.verilog import YosysError

from rtl.export.private import find_yosys
from rtl.export.rtlil import Module

__all__ = ["YosysError", "run_yosys", "write_verilog"]

#: Only simulators older than SystemVerilog need it, and only for a process without inputs.
_TRIGGER = re.compile(
    r"^ +(?:reg \\\$auto\$[^;]* = 0|if \(\\\$auto\$.*\) begin end);?\n", re.MULTILINE
)
_MODULE = re.compile(r"^module (\S+?)\((.*?)\);\n(.*?)^endmodule\n", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  (input|output) ((?:\[\d+:0\] )?)(\S+) *;\n", re.MULTILINE)
_NET = r"^  (wire|reg) (?:signed )?(?:\[\d+:0\] )?{}((?: = [^;]*)?);\n"
_ZEROS = re.compile(r"\b(\d+)'h0+\b")
_CONSTANT = re.compile(
    r"^  always @\*\n    ((\w+)(?:\[\d+(?::\d+)?\])? = \d+'[hdb][0-9a-fx]+;)\n", re.MULTILINE
)
_MEMORY = r"^  reg \[\d+:0\] {} \[(\d+):0\];\n"


def run_yosys(modules: Iterable[Module], script: str) -> str:
    """What Yosys prints for a script that finds the modules read in."""
    text = "".join(module.text() for module in modules)
    yosys = find_yosys(lambda version: version >= (0, 40))
    # Yosys warns that not every process can be written; those that Amaranth makes can.
    return yosys.run(
        ["-q", "-"], f"read_rtlil <<rtlil\n{text}\nrtlil\n{script}\n", ignore_warnings=True
    )


def write_verilog(modules: Collection[Module], cleared: Iterable[tuple[str, str]]) -> str:
    """The modules in Verilog-2005, in their order.

    Args:
        modules: renamed ones.
        cleared: (module, memory) of the memories that begin with zeros.
    """
    script = "proc -nomux -norom\nmemory_collect\nwrite_verilog -noattr -norename"
    text = _ZEROS.sub(r"\1'h0", _TRIGGER.sub("", run_yosys(modules, script)))
    zero: dict[str, list[str]] = {}
    for module, memory in cleared:
        zero.setdefault(module, []).append(memory)
    written = {
        name: _module(name, header, body, sorted(zero.get(name, ())))
        for name, header, body in _MODULE.findall(text)
    }
    order = [module.name[1:] for module in modules]
    assert written.keys() == set(order), written.keys() ^ set(order)
    return "\n".join(written[name] for name in order)


def _module(name: str, header: str, body: str, cleared: list[str]) -> str:
    """One module, with its ports declared where they are listed."""
    ports: dict[str, str] = {}
    for direction, size, port in _PORT.findall(body):
        kind, init = "wire", ""
        net = re.compile(_NET.format(re.escape(port)), re.MULTILINE)
        if (match := net.search(body)) is not None:
            kind, init = match[1], match[2]
            body = body[: match.start()] + body[match.end() :]
        ports[port] = f"{direction:6} {kind} {size}{port}{init}"
    body = _join_constants(_PORT.sub("", body))
    for memory in cleared:
        body = re.sub(
            _MEMORY.format(re.escape(memory)), _clearing(memory), body, flags=re.MULTILINE
        )
    order = [port.strip() for port in header.split(",")]
    head = ",\n".join(f"  {ports[port]}" for port in order if port)
    return f"module {name} (\n{head}\n);\n{body}endmodule\n"


def _join_constants(body: str) -> str:
    """Moves constant bits of a computed signal to the head of a block that computes others.

    Yosys gives each an `always @*` of its own, which reads nothing and so would never run.
    """
    for match in _CONSTANT.finditer(body):
        assignment, name = match[1], re.escape(match[2])
        block = re.compile(
            rf"^  always @\* begin\n(?=(?:   .*\n)*? +{name}(?:\[\d+(?::\d+)?\])? = )", re.MULTILINE
        )
        body, moved = block.subn(lambda m, a=assignment: f"{m[0]}    {a}\n", body, count=1)
        if moved:
            body = body.replace(match[0], "", 1)
    return body


def _clearing(memory: str):
    def replacement(match: re.Match[str]) -> str:
        loop = f"for (i = 0; i <= {match[1]}; i = i + 1) {memory}[i] = 0;"
        # Synthesis tools unroll the loop, which takes them minutes.
        return (
            f"{match[0]}`ifndef SYNTHESIS\n  initial begin : clear_{memory}\n    integer i;\n"
            f"    {loop}\n  end\n`endif\n"
        )

    return replacement
