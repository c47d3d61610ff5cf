"""C for the ports of memories."""

from sim.compiled.emitting import UnitWriter
from sim.compiled.netlist import ReadPort, WritePort
from sim.compiled.scalar import ctype, mask_of
from sim.compiled.schedule import Unit
from sim.compiled.terms import Term
from sim.compiled.wide import StorageEmitter, words

__all__ = ["PortWriter"]


class PortWriter(UnitWriter):
    """Units of kind show, fetch and write."""

    def _row(self, memory: int, e: StorageEmitter, address: str) -> str:
        base, size = self.layout.memories[memory]
        return f"{base} + {size} * (u64){address}"

    def _in_range(self, memory: int, address: Term, text: str) -> str:
        depth = self.netlist.memories[memory].depth
        return "1" if depth >= 1 << address.width else f"{text} < {depth}u"

    def _show(self, unit: Unit) -> str:
        e = self.start()
        (port,) = unit.ports
        name = f"v{port.net}"
        self._declare_row(e, port.net, name)
        self._read_row(e, port, name)
        self._settle(e, port.net, name, itself=unit.looped)
        return self._function(f"unit_{unit.index}", e.lines, self.netlist.nets[port.net].name)

    def _declare_row(self, e: StorageEmitter, net: int, name: str) -> None:
        width = self.netlist.nets[net].width
        e.line(f"{ctype(width)} {name};" if width <= 64 else f"u64 {name}[{words(width)}];")

    def _read_row(self, e: StorageEmitter, port: ReadPort, name: str) -> None:
        """The stored row into a variable or the words at a pointer; zeros beyond the end."""
        width = self.netlist.nets[port.net].width
        address = e.scalar(port.address) if port.address.width else "0"
        row = self._row(port.memory, e, address)
        _, size = self.layout.memories[port.memory]
        fits = self._in_range(port.memory, port.address, address)
        if width <= 64:
            e.line(f"{name} = {fits} ? L{8 * size}({row}) : 0;")
        elif fits == "1":
            e.line(f"w_copy({name}, P64({row}), {words(width)});")
        else:
            e.line(f"if ({fits}) w_copy({name}, P64({row}), {words(width)});")
            e.line(f"else w_zero({name}, {words(width)});")

    def _fetch(self, unit: Unit) -> str:
        e = self.start()
        commit = self.wakes.text([unit.index + self._commit])
        nets = [self.netlist.nets[p.net] for p in unit.ports]
        targets: list[str] = []
        for net in nets:
            slot = self.layout.slots[net.index]
            targets.append(
                f"S{8 * slot.size}({slot.next})" if slot.size <= 8 else f"P64({slot.next})"
            )
        if self.netlist.reset is not None:
            with e.block(f"if ({e.scalar(self.netlist.reset)})"):
                for net, target in zip(nets, targets, strict=True):
                    if not net.reset_less:
                        self._init(e, net.index, target)
                e.line(commit)
        with e.block(f"if ({e.scalar(unit.ports[0].en)})"):
            for port, net, target in zip(unit.ports, nets, targets, strict=True):
                self._read_row(e, port, target)
                for number in port.transparent_for:
                    write = self.netlist.memories[port.memory].writes[number]
                    if port.address.width:
                        text = f"if ({e.scalar(port.address)} == {e.scalar(write.address)})"
                    else:
                        text = "if (1)"
                    with e.block(text):
                        self._merge(e, write, target, net.width)
            e.line(commit)
        return self._function(f"unit_{unit.index}", e.lines, nets[0].name) + self._committer(unit)

    def _write(self, unit: Unit) -> str:
        e = self.start()
        if len({w.memory for w in unit.writes}) > 1:
            # All have one enable.
            en = unit.writes[0].en
            enabled = e.scalar(en) if en.width <= 64 else f"w_any({e.wide(en)}, {words(en.width)})"
            with e.block(f"if ({enabled})"):
                for write in unit.writes:
                    self._write_port(e, write)
        else:
            for write in unit.writes:
                en = write.en
                enabled = (
                    e.scalar(en) if en.width <= 64 else f"w_any({e.wide(en)}, {words(en.width)})"
                )
                with e.block(f"if ({enabled})"):
                    self._write_port(e, write)
        return self._function(
            f"unit_{unit.index}", e.lines, self.netlist.memories[unit.writes[0].memory].name
        )

    def _write_port(self, e: StorageEmitter, write: WritePort) -> None:
        memory = self.netlist.memories[write.memory]
        _, size = self.layout.memories[memory.index]
        address = e.scalar(write.address) if write.address.width else "0"
        row = self._row(memory.index, e, address)
        target = f"S{8 * size}({row})" if size <= 8 else f"P64({row})"
        with e.block(f"if ({self._in_range(memory.index, write.address, address)})"):
            self._merge(e, write, target, memory.width)
            e.line(self.wakes.memory(memory.index))

    def _merge(self, e: StorageEmitter, write: WritePort, target: str, width: int) -> None:
        """Writes the enabled groups of bits of a row."""
        groups, grain = write.en.width, write.granularity
        if groups == 1:
            enabled = e.scalar(write.en)
            if width <= 64:
                e.line(f"if ({enabled}) {target} = {e.scalar(write.data)};")
            else:
                e.line(f"if ({enabled}) w_copy({target}, {e.wide(write.data)}, {words(width)});")
        elif width <= 64:
            en, mask = e.scalar(write.en), e.name("mask")
            kind = ctype(width)
            e.line(f"{kind} {mask} = 0;")
            one = f"if ({en} >> i & 1) {mask} |= {mask_of(grain, width)} << {grain} * i;"
            e.line(f"for (int i = 0; i < {groups}; i++) {one}")
            e.line(f"{target} = ({target} & ~{mask}) | ({e.scalar(write.data)} & {mask});")
        else:
            en, data = e.wide(write.en), e.wide(write.data)
            if groups <= 64:
                whole = f"{en}[0] == {mask_of(groups, 64)}"
                e.line(f"if ({whole}) w_copy({target}, {data}, {words(width)});")
                head = "else "
            else:
                head = ""
            one = f"{en}[i / 64] >> (i % 64) & 1"
            if grain % 8 == 0:
                step = grain // 8
                to, origin = (f"(u8 *)({p}) + {step} * i" for p in (target, data))
                copy = f"memcpy({to}, {origin}, {step});"
            else:
                copy = f"w_move({target}, {data}, {grain} * i, {grain});"
            e.line(f"{head}for (int i = 0; i < {groups}; i++) if ({one}) {copy}")
