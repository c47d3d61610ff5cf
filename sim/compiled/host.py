"""C accessors of the ports that the host works with, and the loop that uses them."""

from pathlib import Path
from typing import Protocol

from amaranth.hdl import Value, ValueLike

from isa.opcodes import Unit
from rtl.interfaces import SLOT_BITS
from sim.compiled.scalar import ctype
from sim.compiled.terms import Term
from sim.compiled.units import UnitEmitter
from sim.compiled.wide import StorageEmitter, words
from sim.probe import Probe

__all__ = ["Accessors", "NetlistAccessors", "host_source"]

_LOOP = (Path(__file__).parent / "hostloop.h").read_text(encoding="utf-8")


class Accessors(Protocol):
    """Writes C functions that read and drive values of a design; `text` has their lines."""

    text: list[str]

    def value(self, name: str, value: ValueLike) -> None:
        """A function that returns a value of at most 64 bits."""
        ...

    def values(
        self, name: str, cases: list[list[ValueLike]], lanes: list[ValueLike | None] | None = None
    ) -> None:
        """A function that stores several values per case, and optionally a wide one of
        LANE_WORDS."""
        ...

    def wide(self, name: str, cases: list[ValueLike]) -> None:
        """A function that stores a wide value per case."""
        ...

    def drive(self, name: str, value: ValueLike) -> None:
        """A function that drives an input of at most 64 bits."""
        ...

    def present(self, name: str, value: ValueLike) -> None:
        """A function that drives the response: 512 bits of data and the error above."""
        ...


class NetlistAccessors:
    """Accessors of a design in this engine's storage."""

    def __init__(self, emitter: UnitEmitter) -> None:
        self._emitter = emitter
        self.text: list[str] = []

    def _term(self, value: ValueLike) -> Term:
        return self._emitter.netlist.lowering.term(Value.cast(value))

    def _start(self) -> StorageEmitter:
        return self._emitter.start()

    def _function(self, head: str, e: StorageEmitter) -> None:
        self.text += [f"static {head} {{", *e.lines, "}"]

    def value(self, name: str, value: ValueLike) -> None:
        e, term = self._start(), self._term(value)
        result = e.scalar(term)
        e.line(f"return {result};")
        self._function(f"{ctype(term.width)} {name}(u8 *M)", e)

    def values(
        self, name: str, cases: list[list[ValueLike]], lanes: list[ValueLike | None] | None = None
    ) -> None:
        e = self._start()
        with e.block("switch (port)"):
            for number, case in enumerate(cases):
                with e.block(f"case {number}:"):
                    for k, value in enumerate(case):
                        e.line(f"e[{k}] = {e.as_width(self._term(value), 64)};")
                    wide = lanes[number] if lanes else None
                    if wide is not None:
                        self._store(e, wide, "lanes")
                    elif lanes:
                        e.line("for (int i = 0; i < LANE_WORDS; i++) lanes[i] = ALL_LANES(i);")
                    e.line("return;")
        self._function(
            f"void {name}(u8 *M, int port, u64u *e{', u64u *lanes' if lanes else ''})", e
        )

    def wide(self, name: str, cases: list[ValueLike]) -> None:
        e = self._start()
        with e.block("switch (port)"):
            for number, value in enumerate(cases):
                with e.block(f"case {number}:"):
                    self._store(e, value, "to")
                    e.line("return;")
        self._function(f"void {name}(u8 *M, int port, u64u *to)", e)

    def _store(self, e: StorageEmitter, value: ValueLike, target: str) -> None:
        term = self._term(value)
        if term.width <= 64:
            e.line(f"{target}[0] = {e.as_width(term, 64)};")
        else:
            e.line(f"w_copy({target}, {e.wide(term)}, {words(term.width)});")

    def drive(self, name: str, value: ValueLike) -> None:
        net = self._input(value)
        slot = self._emitter.layout.slots[net]
        place = f"S{8 * slot.size}({slot.at})"
        wake = self._emitter.wakes.net(net)
        self.text.append(
            f"static void {name}(u8 *M, u32 x) {{ if ({place} != x) {{ {place} = x; {wake} }} }}"
        )

    def present(self, name: str, value: ValueLike) -> None:
        net = self._input(value)
        assert self._emitter.layout.nets[net].width == 513
        at, wake = self._emitter.layout.slots[net].at, self._emitter.wakes.net(net)
        self.text.append(
            f"static void {name}(u8 *M, const u64 *data, u32 error) "
            f"{{ w_copy(P64({at}), data, 8); S64({at + 64}) = error; {wake} }}"
        )

    def _input(self, value: ValueLike) -> int:
        term = self._term(value)
        assert term.op == "ref", term
        net = self._emitter.layout.nets[term.attr[0]]
        assert (net.kind, net.width, term.attr[1]) == ("input", term.width, 0), net
        return net.index


def host_source(probe: Probe, a: Accessors) -> str:
    """C for the end of the main file: `plena_run` for this probe's machine."""
    top, config = probe.top, probe.top.config
    request, response = top.hbm_request, top.hbm_response
    a.value("host_flags", probe.flags)
    a.value("host_request_address", request.payload.address)
    a.value("host_request_write", request.payload.write)
    a.value("host_request_strobe", request.payload.strobe)
    a.value("host_request_stage", request.payload.tag.stage)
    a.value("host_request_pc", request.payload.tag.pc)
    a.wide("host_request_data_of", [request.payload.data])
    a.text.append(
        "static void host_request_data(u8 *M, u64u *to) { host_request_data_of(M, 0, to); }"
    )
    d = top.dispatch
    state = list(probe.state_registers.values())
    a.values("host_dispatch_of", [[d.pc, d.word, d.stage, d.unit, *state]])
    a.text.append("static void host_dispatch(u8 *M, u64u *e) { host_dispatch_of(M, 0, e); }")
    a.values("host_completion", [[c.tag.pc, c.tag.stage] for c in probe.completions.values()])
    cases: list[list[ValueLike]] = []
    lanes: list[ValueLike | None] = []
    for write in probe.writes:
        port = write.port
        row = port.tile * config.MLEN + port.row if write.memory == "mram" else port.row
        cases.append([row, port.tag.pc, port.tag.stage])
        lanes.append(None if write.memory == "mram" else port.lanes)
    a.values("host_write", cases, lanes)
    a.wide("host_write_data", [w.port.data for w in probe.writes])
    a.values("host_word", [[word.index, word.value] for word in probe.words])
    a.drive("host_valid", response.valid)
    a.drive("host_ready", request.ready)
    a.present("host_present", response.payload)
    completions, writes = list(probe.completion_bits), list(probe.write_bits)
    stores = list(probe.word_bits)
    ones = min(64, config.MLEN)
    defines = {
        "STATE_MASK": probe.state_mask,
        "HALTED_STATE": probe.halted,
        "COUNTING_BIT": probe.counting_bit,
        "ORDER_ROOM": (1 << SLOT_BITS) + 1,
        "UNITS": len(Unit),
        "REQUEST_BIT": probe.request_bit,
        "DISPATCH_BIT": probe.dispatch_bit,
        "COMPLETION_MASK": probe.completion_mask,
        "COMPLETION_SHIFT": completions[0].bit_length() - 1,
        "COMPLETION_PORTS": len(completions),
        "IMMEDIATE_PORT": list(probe.completions).index("immediate"),
        "WRITE_MASK": probe.write_mask,
        "WRITE_SHIFT": writes[0].bit_length() - 1,
        "WRITE_PORTS": len(writes),
        "WORD_MASK": probe.word_mask,
        "WORD_SHIFT": stores[0].bit_length() - 1,
        "WORD_PORTS": len(stores),
        "DISPATCH_WORDS": 4 + len(state),
        "VRAM_PORTS": sum(1 << i for i, w in enumerate(probe.writes) if w.memory == "vram"),
        "LANE_WORDS": words(config.MLEN),
        "DATA_WORDS": words(16 * config.MLEN),
        "ALL_LANES(i)": f"{(1 << ones) - 1:#x}ull",
    }
    head = [f"#define {name} {value}" for name, value in defines.items()]
    return "\n".join([*head, *a.text, _LOOP])
